"""The text in which a model writes tool calls, both ways: answer text -> calls, and calls -> history text."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast

from unmask.core.errors import ConfigError, RequestError


@dataclass(frozen=True, kw_only=True)
class ToolCallFormat:
    """A call is a JSON object `{"name": ..., "arguments": {...}}` between two tags, with white space wherever.

    Attributes:
        open: tag before the body.
        close: tag after the body.
        inside: white space that the model writes between tag and body.
        between: white space that it writes between two calls.
    """

    open: str = "<tool_call>"
    close: str = "</tool_call>"
    inside: str = "\n"
    between: str = "\n"

    def __post_init__(self) -> None:
        for field, tag in (("open", self.open), ("close", self.close)):
            if len(tag) < 2 or tag != tag.strip() or '"' in tag or "\\" in tag:
                raise ConfigError(
                    f"the {field} tag {tag!r} must be 2 or more characters without quotes or outer spaces"
                )

    def head(self, name: str) -> str:
        """What the model writes before the arguments of a call."""
        return f'{self.open}{self.inside}{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": '

    @property
    def tail(self) -> str:
        """What it writes behind them."""
        return f"}}{self.inside}{self.close}"

    def as_rendered(self, render: Callable[[Sequence[Mapping[str, Any]]], str]) -> "ToolCallFormat":
        """The white space that a chat template writes around the calls of the history: models learn it from there.

        Args:
            render: messages in OpenAI form -> text.

        Returns:
            Itself where the template does not write such calls, or refuses them.
        """
        function = {"name": "unmask_probe", "arguments": "{}"}
        calls = [{"id": f"call_{i}", "type": "function", "function": function} for i in range(2)]
        messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": calls}]
        try:
            text = render(messages)
        except RequestError:
            return self
        tags = re.escape(self.open), re.escape(self.close)
        found = re.search(rf"{tags[0]}(\s*)\{{.*?\}}\s*{tags[1]}(\s*){tags[0]}", text, re.DOTALL)
        return self if found is None else replace(self, inside=found[1], between=found[2])


@dataclass(frozen=True, kw_only=True)
class ContentDelta:
    """Plain text to append to the answer; never empty."""

    text: str


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """One whole call.

    Attributes:
        name: the tool's name; whether such a tool was offered is not checked here.
        arguments: text of a JSON object, exactly as the model wrote it.
    """

    name: str
    arguments: str


def overlap(text: str, mark: str) -> int:
    """Returns the length of the longest end of `text` that is a proper beginning of `mark` and may still become it."""
    for length in range(min(len(text), len(mark) - 1), 0, -1):
        if text.endswith(mark[:length]):
            return length
    return 0


class ToolCallParser:
    """Splits streamed answer text into content and whole tool calls.

    The result does not depend on how the text is cut into pushes. White space before a call, between two calls and at
    the end after a call is dropped; all other text comes out unchanged. A call that is malformed or never closed comes
    out as plain content, tags included: nothing is lost and nothing raises.

    Args:
        tool_format: the model's tags.
    """

    def __init__(self, tool_format: ToolCallFormat) -> None:
        self._format = tool_format
        # Inside a body only strings and the close tag matter: a close tag within a string is argument text.
        self._marks = re.compile(rf'\\.|"|{re.escape(tool_format.close)}', re.DOTALL)
        self._text = ""  # not yet emitted
        self._in_call = False  # whether _text starts with white space and the open tag
        self._scanned = 0  # how far _marks has looked into _text
        self._in_string = False
        self._after_call = False  # whether nothing but white space has come since the last call

    def push(self, text: str) -> list[ContentDelta | ToolCall]:
        """Returns what is certain after `text`, in order."""
        self._text += text
        found: list[ContentDelta | ToolCall] = []
        while self._step(found):
            pass
        return found

    def flush(self) -> list[ContentDelta | ToolCall]:
        """Returns the rest; the text has ended."""
        found: list[ContentDelta | ToolCall] = []
        while self._in_call:  # never closed
            self._give_up(found)
            while self._step(found):
                pass
        if not (self._after_call and not self._text.strip()):
            self._emit(self._text, found)
        self._text = ""
        return found

    def _step(self, found: list[ContentDelta | ToolCall]) -> bool:
        """Takes one more piece off the text; False when more text is needed."""
        return self._read_call(found) if self._in_call else self._read_content(found)

    def _read_content(self, found: list[ContentDelta | ToolCall]) -> bool:
        """Emits content up to the next open tag, or up to what may become white space and an open tag."""
        start = self._text.find(self._format.open)
        end = start if start >= 0 else len(self._text) - overlap(self._text, self._format.open)
        content_end = len(self._text[:end].rstrip())
        if content_end:
            self._emit(self._text[:content_end], found)
            self._text = self._text[content_end:]
        if start < 0:
            return False
        self._in_call, self._scanned, self._in_string = True, 0, False
        return True

    def _read_call(self, found: list[ContentDelta | ToolCall]) -> bool:
        """Looks for the call's close tag; emits the call, or gives its text up as content."""
        body_start = self._body_start()
        for mark in self._marks.finditer(self._text, max(self._scanned, body_start)):
            self._scanned = mark.end()
            if mark.group() == '"':
                self._in_string = not self._in_string
            elif mark.group() == self._format.close and not self._in_string:
                call = _parse_call(self._text[body_start : mark.start()])
                if call is None:
                    self._give_up(found)
                else:
                    found.append(call)
                    self._text = self._text[mark.end() :]
                    self._in_call, self._after_call = False, True
                return True
        # Marks that start further left are all whole, so they have been seen.
        self._scanned = max(self._scanned, len(self._text) - len(self._format.close) + 1)
        return False

    def _give_up(self, found: list[ContentDelta | ToolCall]) -> None:
        """Emits the call at the front as content up to its first close tag, or its open tag if there is none."""
        body_start = self._body_start()
        close = self._text.find(self._format.close, body_start)
        end = close + len(self._format.close) if close >= 0 else body_start
        self._emit(self._text[:end], found)
        self._text = self._text[end:]
        self._in_call = False

    def _body_start(self) -> int:
        """Where the body of the call at the front begins (white space may precede its open tag)."""
        return self._text.index(self._format.open) + len(self._format.open)

    def _emit(self, text: str, found: list[ContentDelta | ToolCall]) -> None:
        """Adds content, merged with content just before it."""
        if not text:
            return
        self._after_call = False
        last = found[-1] if found else None
        if isinstance(last, ContentDelta):
            found[-1] = ContentDelta(text=last.text + text)
        else:
            found.append(ContentDelta(text=text))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_SPACE = re.compile(r"[ \t\r\n]*")


def _parse_call(body: str) -> ToolCall | None:
    """Reads a call's body; None if it is not exactly an object with a name and an object of arguments.

    A missing "arguments" counts as {}: models leave it out for tools without parameters.
    """
    try:
        members = _read_members(body.strip())
    except (ValueError, RecursionError):  # RecursionError: thousands of brackets from a model gone astray
        return None
    name, _ = members.pop("name", (None, ""))
    arguments, arguments_text = members.pop("arguments", ({}, "{}"))
    if members or not isinstance(arguments, dict) or not isinstance(name, str):
        return None
    if not name or not name.isprintable():  # a lone surrogate, for one, could not be sent
        return None
    return ToolCall(name=name, arguments=arguments_text)


def _read_members(text: str) -> dict[str, tuple[Any, str]]:
    """Reads a JSON object into key -> (value, the value's own text).

    Raises:
        ValueError: not an object, trailing text, or a key given twice.
    """
    if not text.startswith("{"):
        raise ValueError("not an object")
    members: dict[str, tuple[Any, str]] = {}
    at = _skip_space(text, 1)
    while not (text.startswith("}", at) and not members):
        key, at = cast("tuple[object, int]", _DECODER.raw_decode(text, at))
        at = _skip_space(text, at)
        if not isinstance(key, str) or key in members or not text.startswith(":", at):
            raise ValueError("not a fresh key and a colon")
        start = _skip_space(text, at + 1)
        value, end = _DECODER.raw_decode(text, start)
        members[key] = (value, text[start:end])
        at = _skip_space(text, end)
        if text.startswith("}", at):
            break
        if not text.startswith(",", at):
            raise ValueError("neither a comma nor the end")
        at = _skip_space(text, at + 1)
    if at != len(text) - 1:
        raise ValueError("text after the object")
    return members


def _skip_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at
