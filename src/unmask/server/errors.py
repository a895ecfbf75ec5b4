"""From our errors to OpenAI's error bodies: one table."""

import logging
from collections.abc import Mapping
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from unmask.core.errors import (
    CapacityError,
    CheckpointError,
    ConfigError,
    EngineError,
    RequestError,
    UnmaskError,
)

_LOG = logging.getLogger("unmask.server")

_MAX_QUOTED_CHARS = 100

# kind of error -> (status, OpenAI's type, code, extra headers). The first row that fits counts.
_TABLE: tuple[tuple[type[UnmaskError], int, str, str | None, Mapping[str, str]], ...] = (
    (RequestError, 400, "invalid_request_error", None, {}),
    (ConfigError, 400, "invalid_request_error", None, {}),
    (CapacityError, 429, "rate_limit_error", "server_busy", {"Retry-After": "1"}),
    (CheckpointError, 500, "server_error", "checkpoint_error", {}),
    (EngineError, 500, "server_error", "engine_error", {}),
)


class ApiError(UnmaskError):
    """An answer other than success, as HTTP will carry it.

    Args:
        status: HTTP status.
        message: one line, with the way out.
        kind: OpenAI's `type`.
        param: name of the offending request field.
        code: machine-readable reason.
        headers: extra response headers.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    @property
    def body(self) -> dict[str, dict[str, str | None]]:
        """OpenAI's error body."""
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}

    @property
    def response(self) -> JSONResponse:
        """The whole HTTP response."""
        return JSONResponse(self.body, status_code=self.status, headers=self.headers)


def unsupported(param: str, message: str) -> RequestError:
    """Builds the error for something OpenAI offers and this server does not."""
    return RequestError(message, param=param, code="unsupported_parameter")


def quoted(text: object) -> str:
    """A client's own words inside a message: on one line and not longer than they help."""
    words = str(text)
    return repr(words if len(words) <= _MAX_QUOTED_CHARS else f"{words[:_MAX_QUOTED_CHARS]}...")


def timed_out(timeout_s: float) -> ApiError:
    """Builds the error for a request that met its deadline; a retry would only meet it again."""
    return ApiError(
        504,
        f"the request was given up after {timeout_s:g} s; ask for fewer tokens or raise the server's timeout",
        kind="server_error",
        code="timeout",
        headers={"x-should-retry": "false"},
    )


def as_api_error(error: BaseException) -> ApiError:
    """Translates any error; what is not ours becomes a plain 500 and is logged with its traceback."""
    if isinstance(error, ApiError):
        return error
    param = error.param if isinstance(error, RequestError) else None
    for kind, status, type_name, code, headers in _TABLE:
        if isinstance(error, kind):
            if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                _LOG.error("request failed: %s", error)
            own_code = error.code if isinstance(error, RequestError) else code
            return ApiError(status, str(error), kind=type_name, param=param, code=own_code, headers=headers)
    _LOG.error("request failed by a bug", exc_info=error)
    return ApiError(500, "internal error; the server's log says more", kind="server_error", code="internal_error")


def install_handlers(app: FastAPI) -> None:
    """Makes every failing route answer with OpenAI's error body."""
    app.add_exception_handler(UnmaskError, _answer_error)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(ClientDisconnect, _answer_nobody)
    app.add_exception_handler(Exception, _answer_error)


async def _answer_error(_: Request, error: Exception) -> Response:
    return as_api_error(error).response


async def _answer_http(request: Request, error: Exception) -> Response:
    """The framework's own refusals: unknown route, wrong method."""
    assert isinstance(error, HTTPException)
    where = f"{request.method} {request.url.path}"
    messages = {404: f"unknown route: {where}", 405: f"method not allowed: {where}"}
    codes = {404: "unknown_url", 405: "method_not_allowed"}
    return ApiError(
        error.status_code,
        messages.get(error.status_code, error.detail),
        code=codes.get(error.status_code),
        headers=error.headers,
    ).response


async def _answer_nobody(_: Request, __: Exception) -> Response:
    """The client has gone; the response is never sent, the status is for logs (nginx's convention)."""
    return Response(status_code=499)
