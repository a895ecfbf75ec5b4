"""The generator of tool-calling conversations: stable, well-formed, and honest about what is held out."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from typing import Any

import pytest

from unmask.core.errors import ConfigError
from unmask.train.tooldata import SPLITS, TRAIN_TOOLS, UNSEEN_TOOLS, Conversation, generate, generate_group
from unmask.train.tooldata.offers import PART, SLOT
from unmask.train.tooldata.values import POOLS, is_held
from unmask.train.tooldata.words import PLAIN

TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
}


@cache
def sample(split: str, count: int = 500) -> tuple[Conversation, ...]:
    return tuple(generate(split, 5, count))


def calls(conversation: Conversation) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Every call of a conversation, with the schema of its tool."""
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in conversation.tools}
    functions = [call["function"] for message in conversation.messages for call in message.get("tool_calls", ())]
    return [(json.loads(function["arguments"]), schemas[function["name"]]) for function in functions]


def request(conversation: Conversation) -> str:
    return " ".join(message["content"] for message in conversation.messages if message["role"] == "user")


def test_equal_arguments_give_equal_conversations() -> None:
    for split in SPLITS:
        assert generate_group(split, 3, 17, 6) == generate_group(split, 3, 17, 6)
        assert generate(split, 3, 9) == generate(split, 3, 12)[:9]
    assert generate_group("train", 3, 17, 6) != generate_group("train", 4, 17, 6)
    assert generate_group("train", 3, 17, 6).conversations[3].id == "train-17-3"


def test_unknown_split_or_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="test"):
        generate_group("test", 0, 0, 1)
    with pytest.raises(ConfigError, match="chat"):
        generate("train", 0, 1, {"chat": 1.0})


def test_kinds_can_be_chosen() -> None:
    assert {conversation.kind for conversation in generate("tools", 0, 40, {"call": 1.0})} == {"call"}
    counts = Counter(conversation.kind for conversation in sample("train", 3000))
    assert counts["call"] / 3000 == pytest.approx(0.62, abs=0.04)
    assert counts["no_tool"] / 3000 == pytest.approx(0.20, abs=0.04)


@pytest.mark.parametrize("split", SPLITS)
def test_calls_fit_their_schema(split: str) -> None:
    for conversation in sample(split):
        for arguments, schema in calls(conversation):
            properties = schema["properties"]
            assert set(schema["required"]) <= set(arguments) <= set(properties)
            assert list(arguments) == [name for name in properties if name in arguments]
            for name, value in arguments.items():
                assert isinstance(value, TYPES[properties[name]["type"]])
                assert isinstance(value, bool) == (properties[name]["type"] == "boolean")
                assert value in properties[name].get("enum", [value])


@pytest.mark.parametrize("split", SPLITS)
def test_targets_and_offers_are_well_formed(split: str) -> None:
    for conversation in sample(split):
        target = conversation.messages[-1]
        names = [tool["function"]["name"] for tool in conversation.tools]
        assert target["role"] == "assistant"
        assert 1 <= len(names) <= 6
        assert len(set(names)) == len(names)
        assert (conversation.tool is None) == (conversation.kind == "no_tool")
        assert (target["content"] is None) == ("tool_calls" in target)
        if conversation.kind == "call":
            assert len(target["tool_calls"]) == 1
        for text in (request(conversation), target["content"] or ""):
            assert not set("{}[]|()") & set(text)


@pytest.mark.parametrize("split", SPLITS)
def test_copied_arguments_stand_in_the_request(split: str) -> None:
    for conversation in sample(split):
        text = request(conversation)
        for arguments, schema in calls(conversation):
            for name, value in arguments.items():
                detail = schema["properties"][name]
                copied = value if isinstance(value, list) else [value]
                if detail["type"] == "array" or (
                    detail["type"] == "string" and not {"enum", "description"} & set(detail)
                ):
                    assert all(item in text for item in copied), (text, arguments)


def test_held_out_values_never_occur_in_training() -> None:
    seen = {json.dumps(arguments) for talk in sample("train", 3000) for arguments, _ in calls(talk)}
    seen = {text.casefold() for text in seen}
    for conversation in sample("values"):
        for arguments, _ in calls(conversation):
            assert json.dumps(arguments).casefold() not in seen
    words = {item for text in PLAIN.values() for item in text.split("|") if is_held(item)}
    for conversation in sample("train", 3000):
        for arguments, schema in calls(conversation):
            free = [name for name in arguments if "enum" not in schema["properties"][name]]
            copied = [item for name in free for item in _items(arguments[name])]
            assert not words.intersection(copied)


def _items(value: Any) -> list[str]:
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str)]


def test_every_pool_has_both_halves() -> None:
    for name, text in PLAIN.items():
        items = text.split("|")
        assert len(set(items)) == len(items)
        held = sum(is_held(item) for item in items)
        assert held >= 3, name
        assert len(items) - held >= 3, name


def test_held_out_phrasings_never_occur_in_training() -> None:
    for spec in TRAIN_TOOLS:
        assert not set(spec.phrasings) & set(spec.held_out)
    seen = {request(conversation).casefold() for conversation in sample("train", 3000) if conversation.kind == "call"}
    assert not {request(conversation).casefold() for conversation in sample("phrasings") if conversation.tool} & seen


def test_unseen_tools_share_no_names_with_training() -> None:
    known = {name for spec in TRAIN_TOOLS for name in (spec.name, *spec.aliases)}
    known_arguments = {name for spec in TRAIN_TOOLS for a in spec.arguments for name in (a.name, *a.aliases)}
    offered = {tool["function"]["name"] for conversation in sample("train", 3000) for tool in conversation.tools}
    descriptions = {text for spec in TRAIN_TOOLS for text in spec.descriptions}
    for spec in UNSEEN_TOOLS:
        assert spec.name not in known | offered
        assert not {argument.name for argument in spec.arguments} & known_arguments
        assert not set(spec.descriptions) & descriptions


def test_catalogue_is_wide_enough() -> None:
    assert len(TRAIN_TOOLS) >= 44
    assert len({spec.domain for spec in TRAIN_TOOLS}) >= 11
    assert len(UNSEEN_TOOLS) >= 14
    assert len({spec.domain for spec in UNSEEN_TOOLS}) >= 5
    assert not {spec.domain for spec in UNSEEN_TOOLS} & {spec.domain for spec in TRAIN_TOOLS}
    for spec in TRAIN_TOOLS:
        assert len(spec.phrasings) >= 6, spec.name
        assert len(spec.held_out) >= 2, spec.name
        assert len({spec.name, *spec.aliases}) >= 4, spec.name
        assert all(len({a.name, *a.aliases}) >= 3 for a in spec.arguments), spec.name


@pytest.mark.parametrize("spec", [*TRAIN_TOOLS, *UNSEEN_TOOLS], ids=lambda spec: spec.name)
def test_entry_is_consistent(spec: Any) -> None:
    names = {argument.name for argument in spec.arguments}
    required = {argument.name for argument in spec.arguments if argument.required}
    assert any(argument.required and POOLS[argument.pool].open for argument in spec.arguments)
    for line in (*spec.phrasings, *spec.held_out):
        slots = SLOT.findall(line)
        assert required <= set(SLOT.findall(PART.sub("", line))), line
        assert set(slots) <= names, line
        assert len(set(slots)) == len(slots), line
    for line in spec.reports:
        assert set(SLOT.findall(line)) <= required | {name for name, _ in spec.fields}, line
    assert all(len(text.split()) <= 8 for text in spec.descriptions)


def test_group_shares_its_tools_and_uses_them_all() -> None:
    for index in range(40):
        group = generate_group("train", 1, index, 24)
        assert len(group.conversations) == 24
        assert all(conversation.tools is group.tools for conversation in group.conversations)
        offered = {tool["function"]["name"] for tool in group.tools}
        used = {
            call["function"]["name"]
            for conversation in group.conversations
            for message in conversation.messages
            for call in message.get("tool_calls", ())
        }
        assert used == offered
