"""Every error a user can cause, as one small tree.

    UnmaskError
    ├── ConfigError       a setting, name or path is wrong            (HTTP 400)
    ├── CheckpointError   a model file is missing, damaged, foreign   (HTTP 500)
    ├── RequestError      one request cannot be honoured; names param (HTTP 400)
    ├── CapacityError     the queue is full or the server is stopping (HTTP 429)
    └── EngineError       our own fault while a request ran           (HTTP 500)

The message is one line and says the way out.
"""

import difflib
from collections.abc import Iterable


class UnmaskError(Exception):
    """Root of the tree; catch it to catch everything unmask raises on purpose."""


class ConfigError(UnmaskError):
    """A setting, a name or a path given by the user is wrong."""


class CheckpointError(UnmaskError):
    """A checkpoint is missing, damaged or not of a known layout."""


class RequestError(UnmaskError):
    """A request asks for something that cannot be honoured.

    Args:
        message: one line, with the way out.
        param: name of the offending request field, in OpenAI spelling, or None.
        code: machine-readable reason in OpenAI spelling (for example "context_length_exceeded"), or None.
    """

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class CapacityError(UnmaskError):
    """The engine has no room now; the same request may succeed later."""


class EngineError(UnmaskError):
    """The engine failed while the request ran; not the caller's fault."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """Builds the error for a name that is in no table: it lists the known names and the closest one."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return ConfigError(f"unknown {kind} {name!r}{hint} (known: {', '.join(names)})")
