"""Two schemas as one: what an instance must satisfy that satisfies both; and which types a schema speaks of.

Only schemas without references and compositions come here (`unmask.grammar.schema` takes those apart first).
"""

from collections.abc import Callable, Mapping
from typing import Any

from unmask.grammar.keywords import ANNOTATIONS, KEYWORDS_OF_TYPE, TYPES, Schema

Plain = Mapping[str, Any]

_STRICTER: Mapping[str, Callable[[Any, Any], Any]] = {
    "minimum": max,
    "exclusiveMinimum": max,
    "minLength": max,
    "minItems": max,
    "maximum": min,
    "exclusiveMaximum": min,
    "maxLength": min,
    "maxItems": min,
    "required": lambda left, right: list(dict.fromkeys([*left, *right])),
    "uniqueItems": lambda left, right: False,
}


def types_of(schema: Plain) -> tuple[str, ...]:
    """The types of the texts we generate: the named ones, else those the keywords are about, else all."""
    named = schema.get("type")
    if named is not None:
        return (named,) if isinstance(named, str) else tuple(named)
    meant = tuple(kind for kind, keywords in KEYWORDS_OF_TYPE.items() if keywords & schema.keys() - {"format"})
    if not meant and "format" in schema:
        meant = ("string",)
    return meant or TYPES


def allowed_types(schema: Plain) -> frozenset[str]:
    """The types that JSON Schema itself allows: without `type` or `enum`, all of them."""
    if "enum" in schema:
        return frozenset(type_of(value) for value in schema["enum"])
    named = schema.get("type", TYPES)
    types = {named} if isinstance(named, str) else set(named)
    return frozenset(types | ({"integer"} if "number" in types else set()))


def type_of(value: Any) -> str:
    """The JSON type of a value; a float without a fraction is an integer."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "integer" if value == int(value) else "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"


def is_open(schema: Plain) -> bool:
    """Whether an object of the schema may have members that it does not name.

    Without `additionalProperties` a schema that names properties is closed, one that names none is open.
    """
    return schema.get("additionalProperties", "properties" not in schema) is not False


def additional(schema: Plain) -> Schema:
    """The schema of members that are not named."""
    return schema.get("additionalProperties", True)


def merged(left: Plain, right: Plain) -> Plain | None:
    """The two as one plain schema; None if no plain schema says so (two patterns, two enums, ...)."""
    left, right = ({k: v for k, v in s.items() if k not in ANNOTATIONS} for s in (left, right))
    result: dict[str, Any] = {**left, **right}
    for keyword in left.keys() & right.keys() - KEYWORDS_OF_TYPE["object"]:
        one, two = left[keyword], right[keyword]
        if keyword == "type":
            result["type"] = _common_types(one, two)
        elif keyword in _STRICTER:
            result[keyword] = _STRICTER[keyword](one, two)
        elif keyword == "items" and "prefixItems" not in result:
            result["items"] = {"allOf": [one, two]}
        elif one != two or repr(one) != repr(two):  # 1 == True
            return None
    if "prefixItems" in result and (left.get("prefixItems") is None or right.get("prefixItems") is None):
        other = left if "prefixItems" in right else right
        if "items" in other:
            return None
    _merge_members(left, right, result)
    return result


def _common_types(left: str | list[str], right: str | list[str]) -> list[str]:
    one, two = ({names} if isinstance(names, str) else set(names) for names in (left, right))
    both = one & two
    if "integer" in one | two and all(names & {"integer", "number"} for names in (one, two)) and "number" not in both:
        both.add("integer")
    return [name for name in TYPES if name in both]


def _merge_members(left: Plain, right: Plain, result: dict[str, Any]) -> None:
    """Each side's `additionalProperties` speaks of the names that the same side does not list."""
    if "required" in left or "required" in right:
        result["required"] = _STRICTER["required"](left.get("required", []), right.get("required", []))
    names = list(dict.fromkeys([*left.get("properties", {}), *right.get("properties", {})]))
    if "properties" in left or "properties" in right:
        result["properties"] = {name: _both([_member(left, name), _member(right, name)]) for name in names}
    if "additionalProperties" in left or "additionalProperties" in right:
        result["additionalProperties"] = _both([additional(left), additional(right)])


def _member(side: Plain, name: str) -> Schema:
    return side["properties"][name] if name in side.get("properties", {}) else additional(side)


def _both(schemas: list[Schema]) -> Schema:
    if any(schema is False for schema in schemas):
        return False
    kept = [schema for schema in schemas if schema is not True]
    return True if not kept else kept[0] if len(kept) == 1 else {"allOf": kept}
