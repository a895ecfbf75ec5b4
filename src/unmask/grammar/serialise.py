"""Instances as the text that the automaton of their schema is made of: its property order, its separators."""

from collections.abc import Mapping
from typing import Any, cast

from unmask.grammar.build import Limits
from unmask.grammar.composition import Conjunction, Part
from unmask.grammar.json_values import Separators
from unmask.grammar.keywords import Schema
from unmask.grammar.merging import Plain, additional
from unmask.grammar.schema import Compiler
from unmask.grammar.spelling import spelled, spelled_array, spelled_object


def serialise(
    schema: Schema, instance: Any, *, limits: Limits | None = None, separators: Separators | None = None
) -> bytes:
    """Writes an instance the way a schema's automaton expects it.

    Works for invalid instances too: the automaton then rejects the text, at the place where it goes wrong.

    Args:
        schema: the schema.
        instance: any JSON value.
        limits: as for `compile_schema`; alternatives are compiled to see which one the instance belongs to.
        separators: white space of the text.

    Raises:
        RequestError: the schema is refused, or the instance is not JSON.
    """
    compiler = Compiler(schema, limits=limits, separators=separators, param="schema")
    return write(compiler, compiler.root, instance)


def write(compiler: Compiler, part: Part, instance: Any) -> bytes:
    """Writes an instance of one schema of a document; see `serialise`."""
    plain = spelled(instance, compiler.separators)
    if not isinstance(instance, Mapping | list | tuple):
        return plain
    conjunctions = compiler.document.alternatives([part])
    texts: list[bytes] = []
    for conjunction in conjunctions:
        text = _alternative(compiler, conjunction, instance)
        if len(conjunctions) == 1 or compiler.conjunction(conjunction).accepts(text):
            return text
        texts.append(text)
    return next((text for text in texts if text != plain), plain)


def _alternative(compiler: Compiler, conjunction: Conjunction, instance: Any) -> bytes:
    part = compiler.document.plain(conjunction) or conjunction[0]
    if isinstance(part.schema, bool):
        return spelled(instance, compiler.separators)
    for value in part.schema.get("enum", []):
        if _in_order(value) == _in_order(instance):
            return spelled(value, compiler.separators)
    if isinstance(instance, Mapping):
        return _object(compiler, part, part.schema, cast("Mapping[str, Any]", instance))
    prefix = part.schema.get("prefixItems", [])
    items = part.schema.get("items", True)
    schemas = [*prefix, *[items] * len(instance)]
    written = [write(compiler, part.child(s, "items"), item) for s, item in zip(schemas, instance, strict=False)]
    return spelled_array(written, compiler.separators)


def _in_order(value: Any) -> bytes:
    """A spelling that equal JSON values share, whatever the order of their members."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return spelled_object([(key, _in_order(members[key])) for key in sorted(members)], Separators())
    if isinstance(value, list | tuple):
        return spelled_array([_in_order(item) for item in cast("list[Any]", value)], Separators())
    return spelled(value, Separators())


def _object(compiler: Compiler, part: Part, schema: Plain, instance: Mapping[str, Any]) -> bytes:
    properties = schema.get("properties", {})
    order = list(dict.fromkeys([*properties, *schema.get("required", []), *instance]))
    members = [
        (
            name,
            write(compiler, part.child(properties.get(name, additional(schema)), "properties", name), instance[name]),
        )
        for name in order
        if name in instance
    ]
    return spelled_object(members, compiler.separators)
