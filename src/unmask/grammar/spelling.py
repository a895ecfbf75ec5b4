"""The one spelling of a JSON value without a schema."""

from collections.abc import Mapping
from typing import Any, cast

from unmask.core.errors import RequestError
from unmask.grammar.characters import escaped
from unmask.grammar.json_values import Separators
from unmask.grammar.numbers import written_number


def spelled(value: Any, separators: Separators) -> bytes:
    """Writes a JSON value; members stand in the order they have.

    Raises:
        RequestError: it is not a JSON value (NaN, a lone surrogate, a foreign type).
    """
    if value is None or isinstance(value, bool):
        return {None: b"null", True: b"true", False: b"false"}[value]
    if isinstance(value, str):
        return b'"' + spelled_text(value) + b'"'
    if isinstance(value, int | float) and abs(value) < float("inf"):
        return written_number(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return spelled_object([(key, spelled(member, separators)) for key, member in members.items()], separators)
    if isinstance(value, list | tuple):
        return spelled_array([spelled(item, separators) for item in cast("list[Any]", value)], separators)
    raise RequestError(f"{value!r} is not a JSON value", param=None)


def spelled_text(text: str) -> bytes:
    """The content of a JSON string.

    Raises:
        RequestError: the text holds a lone surrogate, which UTF-8 cannot write.
    """
    try:
        return escaped(text)
    except UnicodeEncodeError as error:
        raise RequestError(f"{text!r} holds a lone surrogate", param=None) from error


def spelled_array(items: list[bytes], separators: Separators) -> bytes:
    """An array of items that are written already."""
    return b"[" + separators.item.encode().join(items) + b"]"


def spelled_object(members: list[tuple[str, bytes]], separators: Separators) -> bytes:
    """An object of members whose values are written already."""
    key = b'"' + separators.key.encode()
    written = [b'"' + spelled_text(name) + key + value for name, value in members]
    return b"{" + separators.item.encode().join(written) + b"}"
