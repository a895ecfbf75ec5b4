"""JSON Schema to automata: what is accepted is valid, by the `jsonschema` package; what is not supported is refused."""

import json
import random
from collections import Counter
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.schema_suite import PAGE, count, table
from unmask.core.errors import RequestError
from unmask.grammar.automaton import Automaton
from unmask.grammar.build import Limits
from unmask.grammar.json_values import Separators
from unmask.grammar.keywords import SchemaError
from unmask.grammar.schema import compile_choices, compile_schema
from unmask.grammar.serialise import serialise

TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}},
            "required": ["v"],
        }
    },
    "$ref": "#/$defs/node",
}
BOOKING = {
    "type": "object",
    "properties": {
        "from": {"type": "string", "pattern": "^[A-Z]{3}$", "description": "airport"},
        "day": {"type": "string", "format": "date"},
        "seats": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
        "class": {"enum": ["economy", "first"]},
        "budget": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 999.5},
        "mails": {"type": "array", "items": {"type": "string", "format": "email"}, "minItems": 1, "maxItems": 3},
        "notes": {"type": "string", "minLength": 2, "maxLength": 4},
        "extra": {"type": "object", "additionalProperties": {"type": "boolean"}},
    },
    "required": ["from", "day", "class"],
    "additionalProperties": False,
}
SHAPES = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"kind": {"const": "dot"}, "at": {"$ref": "#/$defs/point"}},
            "required": ["kind", "at"],
        },
        {"type": "object", "properties": {"kind": {"const": "text"}, "text": {"type": "string"}}, "required": ["kind"]},
        {"type": "null"},
    ],
    "$defs": {"point": {"type": "array", "prefixItems": [{"type": "number"}, {"type": "number"}], "minItems": 2}},
}
MERGED = {
    "allOf": [
        {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]},
        {"properties": {"b": {"type": "string"}, "a": {"maximum": 5}}, "required": ["b"]},
    ],
    "properties": {"c": {"type": "boolean"}},
}
OPEN = {
    "type": "object",
    "properties": {"id": {"type": "integer"}},
    "required": ["id"],
    "additionalProperties": {"type": "string", "maxLength": 3},
}
# schema, valid instances that we generate, instances that we do not
CASES: list[tuple[Any, list[Any], list[Any]]] = [
    (
        BOOKING,
        [
            {"from": "OSL", "day": "2024-02-29", "class": "first"},
            {"class": "economy", "from": "OSL", "day": "2024-10-31", "seats": 9, "budget": None, "notes": 'é"'},
            {"from": "OSL", "day": "2024-02-29", "class": "first", "budget": 999.5, "extra": {}, "mails": ["a.b@c.de"]},
            {"from": "OSL", "day": "2024-02-29", "class": "first", "budget": 1e-7, "extra": {"x": True, "y": False}},
        ],
        [
            {"from": "OSLO", "day": "2024-02-29", "class": "first"},
            {"from": "OSL", "day": "2023-02-29", "class": "first"},
            {"from": "OSL", "day": "2024-02-29"},
            {"from": "OSL", "day": "2024-02-29", "class": "first", "seats": 10},
            {"from": "OSL", "day": "2024-02-29", "class": "first", "budget": 0},
            {"from": "OSL", "day": "2024-02-29", "class": "first", "mails": []},
            {"from": "OSL", "day": "2024-02-29", "class": "first", "notes": "🦊"},
            {"from": "OSL", "day": "2024-02-29", "class": "first", "surplus": 1},
            "OSL",
        ],
    ),
    (
        TREE,
        [{"v": 1}, {"next": {"v": 2, "next": {"v": -3}}, "v": 1}],
        [{"next": {"v": 1}}, {"v": 1, "next": {}}, {"v": 1.5}],
    ),
    (
        SHAPES,
        [None, {"at": [1, 2.5], "kind": "dot"}, {"kind": "text"}, {"text": "x", "kind": "text"}],
        [{"kind": "dot"}, {"kind": "dot", "at": [1]}, {"kind": "dot", "at": [1, "2"]}, {"kind": "line"}],
    ),
    (
        MERGED,
        [{"a": 3, "b": ""}, {"c": True, "b": "x", "a": 5}],
        [{"a": 6, "b": ""}, {"a": 2, "b": ""}, {"a": 3}, {"b": ""}, {"a": 3, "b": "", "c": 0}],
    ),
    (OPEN, [{"id": 1}, {"id": 1, "x": "abc", "": ""}], [{"id": 1, "x": "abcd"}, {"x": "abc"}, {"id": "abc"}]),
    ({"type": "object", "properties": {}}, [{}], [{"a": 1}]),
    ({"type": "object"}, [{}, {"a": {"b": [1, "x", None]}}], [[], 1]),
    ({"type": "object", "required": ["a"]}, [{"a": 1}, {"a": [], "b": 2}], [{}, {"b": 2}]),
    ({"type": "array"}, [[], [1, "a", [True], {"x": {}}]], [{}]),
    ({"items": {"enum": [1, 1.5, "1"]}, "type": "array", "minItems": 2}, [[1, 1.5], ["1", 1, 1]], [[1], [2, 1]]),
    ({"prefixItems": [{"const": 0}], "items": {"type": "boolean"}}, [[], [0], [0, True]], [[True], [0, 1]]),
    ({"enum": [{"b": 1, "a": [None, 2.0]}, "x"]}, [{"a": [None, 2], "b": 1}, "x"], [{"a": [None, 2]}, "y"]),
    ({"enum": [1, "a", 3], "type": "integer", "minimum": 2}, [3], [1, "a"]),
    ({"type": "string", "nullable": True, "pattern": "b"}, ["abc"], ["ac", 1]),
    ({"type": ["integer", "string"], "maxLength": 1, "maximum": 3}, [3, "a"], [4, "ab", None]),
    ({"allOf": [{"type": "string", "pattern": "a"}, {"pattern": "b$"}]}, ["ab", "a b"], ["ba", "b"]),
    ({"allOf": [{"type": "number"}, {"type": "integer"}], "maximum": 2.5}, [2, -7], [3, 1.5]),
    ({"oneOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}, [1, "a", None], [True, 1.5]),
    ({"oneOf": [{"minimum": 5, "type": "number"}, {"maximum": 4.5, "type": "integer"}]}, [5, 5.5, 4], [4.5, 4.75]),
    (True, [None, {"a": [[]]}], []),
    ({"type": "integer", "format": "int32"}, [2**31 - 1], [2**31]),
    ({"type": "string", "format": "uuid"}, ["01234567-89ab-cdef-0123-456789ABCDEF"], ["01234567"]),
    ({"maximum": 10**40 + 1, "exclusiveMinimum": 10**40 - 1, "type": "integer"}, [10**40, 10**40 + 1], [10**40 - 1]),
]


def samples(automaton: Automaton, seed: int, count: int) -> list[bytes]:
    """Random texts of the language: long walks first, then the shortest way out."""
    rng = random.Random(seed)
    texts: list[bytes] = []
    for _ in range(count):
        state, text, patience = automaton.start, bytearray(), rng.randint(0, 120)
        while not (automaton.accepting_S[state] and (len(text) >= patience or not automaton.edges[state])):
            targets = list(automaton.edges[state])
            if len(text) >= patience:
                targets = [min(targets, key=lambda target: automaton.shortest_S[target])]
            target = rng.choice(targets)
            mask = automaton.edges[state][target]
            text.append(rng.choice([byte for byte in range(256) if mask >> byte & 1]))
            state = target
        texts.append(bytes(text))
    return texts


def assert_sound(schema: Any, automaton: Automaton, seed: int = 0, count: int = 60) -> None:
    """Every sampled text is JSON and valid under the schema, formats included."""
    kind = jsonschema.Draft202012Validator
    validator = kind(schema, format_checker=kind.FORMAT_CHECKER)
    for text in samples(automaton, seed, count):
        assert automaton.accepts(text)
        instance = json.loads(text)
        if not (isinstance(schema, dict) and schema.get("nullable")):
            assert validator.is_valid(instance), text


@pytest.mark.parametrize(("schema", "good", "bad"), CASES, ids=lambda value: json.dumps(value)[:40])
def test_accepts_what_is_valid(schema: Any, good: list[Any], bad: list[Any]) -> None:
    automaton = compile_schema(schema)
    for instance in good:
        text = serialise(schema, instance)
        assert json.loads(text) == instance
        assert automaton.rejects_at(text) is None, (text, automaton.rejects_at(text))
    for instance in bad:
        text = serialise(schema, instance)
        assert json.loads(text) == instance
        assert automaton.rejects_at(text) is not None, text
    assert_sound(schema, automaton)


def leaves() -> st.SearchStrategy[Any]:
    number = st.integers(-40, 40) | st.floats(-40, 40).map(lambda value: round(value, 2))
    return st.one_of(
        st.just({"type": "null"}),
        st.just({"type": "boolean"}),
        st.just({}),
        st.fixed_dictionaries(
            {"type": st.sampled_from(["integer", "number", ["number", "null"]])},
            optional={"minimum": number, "maximum": number, "exclusiveMinimum": number, "exclusiveMaximum": number},
        ),
        st.fixed_dictionaries(
            {"type": st.just("string")},
            optional={
                "minLength": st.integers(0, 3),
                "maxLength": st.integers(2, 5),
                "pattern": st.sampled_from(["^a", "[0-9]", "x|é$", '"']),
            },
        ),
        st.fixed_dictionaries(
            {"type": st.just("string"), "format": st.sampled_from(["date", "time", "email", "ipv4"])}
        ),
        st.fixed_dictionaries({"enum": st.lists(st.sampled_from([1, "1", None, "é\n", [1], {"a": 1}]), min_size=1)}),
    )


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["a", "ab", "b", 'q"', "é"])
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(names, inner, max_size=4)},
        optional={
            "required": st.lists(names, max_size=2, unique=True),
            "additionalProperties": st.one_of(st.just(False), inner),
        },
    )
    arrays = st.fixed_dictionaries(
        {"type": st.just("array"), "items": inner},
        optional={
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(1, 3),
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
        },
    )
    branches = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        objects,
        arrays,
        branches.map(lambda parts: {"anyOf": parts}),
        branches.map(lambda parts: {"allOf": parts}),
        branches.map(lambda parts: {"oneOf": parts}),
        st.tuples(objects, inner).map(lambda pair: {**pair[0], "allOf": [pair[1]]}),
        st.tuples(objects, st.lists(objects, min_size=1, max_size=2)).map(lambda pair: {**pair[0], "oneOf": pair[1]}),
    )


@given(st.recursive(leaves(), grown, max_leaves=6), st.integers(0, 10**6))
@settings(max_examples=150, deadline=None)
def test_every_text_of_a_random_schema_is_valid(schema: Any, seed: int) -> None:
    try:
        automaton = compile_schema(schema)
    except SchemaError:
        return
    assert_sound(schema, automaton, seed, 15)
    for text in samples(automaton, seed, 5):
        instance = json.loads(text)
        assert automaton.accepts(serialise(schema, instance)), (text, serialise(schema, instance))


def test_the_suite_of_json_schema() -> None:
    """Whatever we do not refuse is never unsound, and the documentation says how much is complete."""
    counts = count()
    total = sum(counts.values(), Counter())
    assert total["unsound"] == 0
    assert total["agree"] > 4 * total["narrower"]
    assert table(counts) in PAGE.read_text(encoding="utf-8"), "run `python benchmarks/schema_suite.py --write`"


@pytest.mark.parametrize(
    ("schema", "keyword", "path", "reason"),
    [
        ({"properties": {"a/b": {"items": {"not": {}}}}}, "not", "/properties/a~1b/items", "not supported"),
        ({"type": "object", "patternProperties": {}}, "patternProperties", "", "not supported"),
        ({"anyOf": [{}, {"if": {}}]}, "if", "/anyOf/1", "not supported"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"uniqueItems": True}}}, "uniqueItems", "/$defs/a", "not supported"),
        ({"type": "text"}, "type", "", "must be one of null"),
        ({"properties": {"a": 3}}, "3", "/properties/a", "where a schema must be"),
        ({"items": [{}]}, "items", "", "must be a schema"),
        ({"exclusiveMinimum": True}, "exclusiveMinimum", "", "must be a finite number"),
        ({"minLength": -1}, "minLength", "", "whole number"),
        ({"enum": []}, "enum", "", "at least one"),
        ({"items": {"pattern": "a(?=b)"}}, "pattern", "/items", "lookahead"),
        ({"type": "string", "format": "regex"}, "format", "", "known: date"),
        ({"$ref": "other.json"}, "$ref", "", "this document"),
        ({"$ref": "#/$defs/a"}, "$ref", "", "leads nowhere"),
        ({"properties": {"x": {"$id": "y"}}}, "$id", "/properties/x", "what references mean"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf", "", "branches 0 and 1"),
        ({"type": "string", "oneOf": [{"pattern": "^a"}, {"format": "time"}]}, "oneOf", "", "branches 0 and 1"),
        (
            {"oneOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}]},
            "oneOf",
            "",
            "may both hold",
        ),
        ({"properties": {"s": {"type": "string", "maxLength": 10**6}}}, "maxLength", "/properties/s", "20000 states"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "maximum", "", "no text"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "maxLength", "", "no text"),
        ({"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, "required", "", "no text"),
        (False, "schema", "", "no text"),
    ],
)
def test_refuses_with_keyword_and_path(schema: Any, keyword: str, path: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason) as refusal:
        compile_schema(schema, param="response_format")
    assert (refusal.value.keyword, refusal.value.path, refusal.value.param) == (keyword, path, "response_format")
    assert "\n" not in str(refusal.value)


def test_properties_come_in_the_order_of_the_schema() -> None:
    schema = {"properties": {"b": {}, "a": {}, "c": {"properties": {"z": {}, "y": {}}}}}
    assert serialise(schema, {"c": {"y": 1, "z": 2}, "a": 3}) == b'{"a": 3, "c": {"z": 2, "y": 1}}'
    assert not compile_schema(schema).accepts(b'{"a": 1, "b": 2}')


def test_separators_are_a_value() -> None:
    schema = {"properties": {"a": {"type": "array"}, "b": {"type": "object"}}}
    compact = Separators(item=",", key=":")
    text = serialise(schema, {"a": [1, 2], "b": {"x": None, "y": []}}, separators=compact)
    assert text == b'{"a":[1,2],"b":{"x":null,"y":[]}}'
    assert compile_schema(schema, separators=compact).accepts(text)
    assert compile_schema(schema).rejects_at(text) == 5


def test_references_nest_up_to_the_limit() -> None:
    chain: Any = None
    accepted = []
    automaton = compile_schema(TREE, limits=Limits(ref_depth=3))
    for value in range(5):
        chain = {"v": value} if chain is None else {"v": value, "next": chain}
        accepted.append(automaton.accepts(serialise(TREE, chain)))
    assert accepted == [True, True, True, False, False]


def test_annotations_change_nothing() -> None:
    plain = compile_schema({"type": "string", "maxLength": 3})
    noted = compile_schema(
        {
            "type": "string",
            "maxLength": 3,
            "title": "t",
            "default": 5,
            "x-order": 1,
            "examples": [1],
            "deprecated": True,
        }
    )
    assert (plain.next_SB == noted.next_SB).all()


def test_choices() -> None:
    automaton = compile_choices(["yes", "yesterday", "né"])
    assert automaton.accepts("né".encode())
    assert automaton.rejects_at(b"yest") == 4
    with pytest.raises(RequestError, match="at least one"):
        compile_choices([])


def test_what_nests_too_deep_is_refused() -> None:
    links = {f"d{index}": {"properties": {"x": {"$ref": f"#/$defs/d{index + 1}"}}} for index in range(600)}
    with pytest.raises(SchemaError, match="nests too deep"):
        compile_schema({"$ref": "#/$defs/d0", "$defs": {**links, "d600": {}}})


def test_alternatives_do_not_multiply_without_end() -> None:
    choices = [{"anyOf": [{"minLength": a}, {"maxLength": 9 - a}, {"pattern": "x" * a}]} for a in range(1, 9)]
    with pytest.raises(SchemaError, match="more than 256 alternatives") as refusal:
        compile_schema({"type": "string", "allOf": choices})
    assert refusal.value.keyword == "anyOf"
