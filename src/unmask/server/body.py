"""Request bodies: bounded reading and JSON that cannot hurt."""

import json
from typing import NoReturn, cast

from fastapi import Request

from unmask.core.errors import RequestError
from unmask.server.errors import ApiError, quoted

_MAX_DEPTH = 64
# A client that is still sending cannot read our 413, so a body that is too large is read on (and thrown away) this far.
_MAX_DISCARDED_BYTES = 64 * 1024 * 1024


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Reads a JSON request's body.

    Raises:
        ApiError: 415 for another content type, 413 for more than `max_bytes` (declared or not).
        ClientDisconnect: the client went away while sending.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise ApiError(
            415,
            f"content type {quoted(content_type or 'missing')}; send 'Content-Type: application/json'",
            code="unsupported_media_type",
        )
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size <= max_bytes:
            parts.append(part)
        elif size > max_bytes + _MAX_DISCARDED_BYTES:
            break
    if size > max_bytes:
        raise ApiError(413, f"the request body is larger than {max_bytes} bytes", code="request_too_large")
    return b"".join(parts)


def parse_object(raw: bytes) -> dict[str, object]:
    """Parses a body into a JSON object whose text can be sent on: no NaN, no lone surrogates, bounded nesting.

    Of a key given twice the last value counts, as RFC 8259 lets it.

    Raises:
        RequestError: it is not such an object.
    """
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # ValueError: bad UTF-8, bad JSON, an integer of thousands of digits
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise RequestError(f"the request body is not valid JSON: {reason}", code="invalid_json") from error
    if not isinstance(value, dict):
        raise RequestError("the request body must be a JSON object", code="invalid_json")
    body = cast("dict[str, object]", value)
    _check_values(body)
    return body


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _check_values(body: dict[str, object]) -> None:
    """Raises RequestError where nesting or a string would break a later stage."""
    waiting: list[tuple[object, int]] = [(body, 1)]
    while waiting:
        value, depth = waiting.pop()
        if depth > _MAX_DEPTH:
            raise RequestError(f"the request body is nested deeper than {_MAX_DEPTH} levels", code="invalid_json")
        if isinstance(value, str):
            _check_text(value)
        elif isinstance(value, dict):
            members = cast("dict[str, object]", value)
            for key in members:
                _check_text(key)
            waiting.extend((item, depth + 1) for item in members.values())
        elif isinstance(value, list):
            waiting.extend((item, depth + 1) for item in cast("list[object]", value))


def _check_text(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RequestError("the request body holds a lone surrogate, which is not text", code="invalid_json") from error
