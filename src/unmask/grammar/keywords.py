"""Which JSON Schema keywords are honoured, which are ignored by right, and the refusal of all others."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard, cast
from urllib.parse import unquote

from unmask.core.errors import RequestError
from unmask.grammar.formats import FORMATS, NUMBER_FORMATS
from unmask.grammar.regex import parse_regex

Schema = Mapping[str, Any] | bool
"""A schema as JSON has it; true allows everything, false nothing."""

_DESCRIBING = frozenset({"title", "description", "default", "examples", "example", "deprecated", "externalDocs", "xml"})
_ACCESS = frozenset({"readOnly", "writeOnly", "contentEncoding", "contentMediaType", "contentSchema"})
_NAMING = frozenset({"$schema", "$id", "$comment", "$anchor", "$dynamicAnchor", "$defs", "definitions"})
ANNOTATIONS = _DESCRIBING | _ACCESS | _NAMING
"""Keywords that say nothing about which instances are valid (or, as `$defs`, only where a reference leads)."""

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
KEYWORDS_OF_TYPE: Mapping[str, frozenset[str]] = {
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}),
    "object": frozenset({"properties", "required", "additionalProperties"}),
}
"""Type -> the keywords that constrain it; those of numbers are those of integers too."""


class SchemaError(RequestError):
    """A schema cannot be honoured.

    Args:
        message: what is wrong and the way out.
        keyword: the keyword at fault.
        path: JSON pointer to the schema that holds it ("" for the root).
        param: the request field the schema came in.
    """

    def __init__(self, message: str, *, keyword: str, path: str, param: str | None) -> None:
        place = f"schema at {path}" if path else "schema"
        super().__init__(f"{place}: {keyword!r} {message}", param=param)
        self.keyword = keyword
        self.path = path


def is_annotation(name: str) -> bool:
    """Whether a keyword says nothing about which instances are valid."""
    return name in ANNOTATIONS or name.startswith("x-")


def is_schema(value: Any) -> TypeGuard[Schema]:
    """Whether a JSON value can be a schema at all."""
    return isinstance(value, bool | Mapping)


def below(path: str, *steps: str | int) -> str:
    """The JSON pointer to something inside a schema."""
    return path + "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)


def resolve(root: Schema, reference: Any, path: str, param: str | None) -> tuple[Schema, str]:
    """Follows a reference inside the same document.

    Returns:
        The schema and its JSON pointer.

    Raises:
        SchemaError: it leads out of the document or nowhere.
    """
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        message = f"{reference!r} does not point into this document; put the schema under $defs"
        raise SchemaError(message, keyword="$ref", path=path, param=param)
    found: Any = root
    pointer = unquote(reference[1:])
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if _is_mapping(found) and key in found:
            found = found[key]
        elif _is_list(found) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            raise SchemaError(f"{reference!r} leads nowhere", keyword="$ref", path=path, param=param)
    if not is_schema(found):
        raise SchemaError(f"{reference!r} is not a schema", keyword="$ref", path=path, param=param)
    return found, pointer


def check_schema(root: Any, param: str | None) -> None:
    """Reads every schema that can be reached and refuses what is not honoured.

    Raises:
        SchemaError: a keyword is unknown or unsupported, or its value is malformed; names keyword and path.
    """
    seen: set[str] = set()
    queue: list[tuple[Any, str]] = [(root, "")]
    for schema, path in queue:
        if path in seen:
            continue
        seen.add(path)
        if isinstance(schema, bool):
            continue
        if not isinstance(schema, Mapping):
            raise SchemaError("stands where a schema must be", keyword=str(schema)[:40], path=path, param=param)
        queue += _checked(cast("Mapping[str, Any]", schema), root, path, param)


def _checked(schema: Mapping[str, Any], root: Schema, path: str, param: str | None) -> list[tuple[Any, str]]:
    """Checks one schema; returns those it leads to, with their places."""
    reached: list[tuple[Any, str]] = []
    for keyword, value in schema.items():
        if is_annotation(keyword):
            if keyword == "$id" and path:
                message = "inside a schema changes what references mean, which is not supported"
                raise SchemaError(message, keyword=keyword, path=path, param=param)
            continue
        complaint = _complaint(keyword, value)
        if complaint:
            raise SchemaError(complaint, keyword=keyword, path=path, param=param)
        if keyword == "$ref":
            reached.append(resolve(root, value, path, param))
        reached += [(part, below(path, keyword, *steps)) for steps, part in _subschemas(keyword, value)]
    if "pattern" in schema:
        _check_pattern(schema["pattern"], path, param)
    if "format" in schema:
        _check_format(schema, path, param)
    return reached


def _check_pattern(pattern: str, path: str, param: str | None) -> None:
    try:
        parse_regex(pattern, param)
    except RequestError as error:
        raise SchemaError(f"is refused: {error}", keyword="pattern", path=path, param=param) from error


def _check_format(schema: Mapping[str, Any], path: str, param: str | None) -> None:
    types = schema.get("type", ())
    named = {types} if isinstance(types, str) else set(types)
    numeric = "string" not in named and named & {"integer", "number"}
    known = NUMBER_FORMATS if numeric else FORMATS
    if schema["format"] not in known:
        message = f"{schema['format']!r} is not known (known: {', '.join(known)}); remove it or use a pattern"
        raise SchemaError(message, keyword="format", path=path, param=param)


def _subschemas(keyword: str, value: Any) -> list[tuple[tuple[str | int, ...], Any]]:
    """The schemas inside a keyword's value, with the steps that lead to them."""
    if keyword in ("items", "additionalProperties"):
        return [((), value)]
    if keyword == "properties":
        return [((name,), part) for name, part in value.items()]
    if keyword in ("allOf", "anyOf", "oneOf", "prefixItems"):
        return [((index,), part) for index, part in enumerate(value)]
    return []


def _complaint(keyword: str, value: Any) -> str | None:
    """What is wrong with a keyword, or None."""
    if keyword not in _VALUES:
        return "is not supported; remove it or say it with supported keywords"
    valid, expected = _VALUES[keyword]
    return None if valid(value) else f"must be {expected}"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == int(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_filled_list(value: Any) -> bool:
    return _is_list(value) and len(value) > 0


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_false(value: Any) -> bool:
    return value is False


def _is_anything(value: Any) -> bool:
    return value is not ...


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_list_of_names(value: Any) -> bool:
    return _is_list(value) and all(isinstance(name, str) for name in value)


def _is_type(value: Any) -> bool:
    return value in TYPES if isinstance(value, str) else _is_list(value) and all(name in TYPES for name in value)


_COUNT = (_is_count, "a whole number from 0")
_NUMBER = (_is_number, "a finite number")
_SCHEMA = (is_schema, "a schema (an object or a boolean)")
_SCHEMAS = (_is_filled_list, "a list of schemas")
_TEXT = (_is_text, "a text")
_VALUES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "type": (_is_type, f"one of {', '.join(TYPES)}, or a list of them"),
    "nullable": (_is_flag, "true or false"),
    "enum": (_is_filled_list, "a list with at least one value"),
    "const": (_is_anything, "any value"),
    "$ref": _TEXT,
    "allOf": _SCHEMAS,
    "anyOf": _SCHEMAS,
    "oneOf": _SCHEMAS,
    "minLength": _COUNT,
    "maxLength": _COUNT,
    "pattern": _TEXT,
    "format": _TEXT,
    "minimum": _NUMBER,
    "maximum": _NUMBER,
    "exclusiveMinimum": _NUMBER,
    "exclusiveMaximum": _NUMBER,
    "items": _SCHEMA,
    "prefixItems": _SCHEMAS,
    "minItems": _COUNT,
    "maxItems": _COUNT,
    "uniqueItems": (_is_false, "false: unique items are not supported"),
    "properties": (_is_mapping, "an object of schemas"),
    "required": (_is_list_of_names, "a list of names"),
    "additionalProperties": _SCHEMA,
}
