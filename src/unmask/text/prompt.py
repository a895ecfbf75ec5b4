"""Conversation -> prompt ids, with text that callers wrote kept apart from the template's own control tokens.

A user who writes "<|im_end|>" must not end their turn: special tokens spelled in messages or tools are encoded as the
plain text they are; only the template's own are special.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from unmask.text.chat import ChatTemplate

_GUARD = "\ue000"  # a private-use character; stands for the first character of a spelling while the template runs


class PromptTokenizer(Protocol):
    """The part of a tokenizer that prompts need."""

    @property
    def special_spellings(self) -> Sequence[str]:
        """Spellings that `encode` parses as special tokens."""
        ...

    def encode(self, text: str, /) -> list[int]:
        """Token ids; special tokens written in the text are parsed."""
        ...

    def encode_text(self, text: str, /) -> list[int]:
        """Token ids of plain text: what looks like a special token is text too."""
        ...


def encode_chat(
    tokenizer: PromptTokenizer,
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> list[int]:
    """Renders a conversation and encodes it.

    Raises:
        RequestError: the template refuses these messages.
    """
    spellings = sorted((s for s in tokenizer.special_spellings if s), key=len, reverse=True)
    if not spellings:
        return tokenizer.encode(template.render(messages, tools))
    pattern = re.compile("|".join(map(re.escape, spellings)))
    guarded_messages = [_guard(message, pattern) for message in messages]
    text = template.render(guarded_messages, _guard(tools, pattern))
    if _GUARD not in text:
        return tokenizer.encode(text)
    tails = "|".join(re.escape(spelling[1:]) for spelling in spellings)
    ids: list[int] = []
    for index, piece in enumerate(re.split(f"{_GUARD}({tails})", text)):
        is_plain = index % 2 == 1  # re.split alternates text and captured tails
        ids += tokenizer.encode_text(_head(piece, spellings) + piece) if is_plain else tokenizer.encode(piece)
    return ids


def _head(tail: str, spellings: Sequence[str]) -> str:
    """First character of the spelling that ends in `tail`."""
    return next(spelling[0] for spelling in spellings if spelling[1:] == tail)


def _guard(value: Any, pattern: re.Pattern[str]) -> Any:
    """Copies JSON-like data with every special spelling disarmed."""
    if isinstance(value, str):
        return pattern.sub(lambda match: _GUARD + match.group()[1:], value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[str, Any]", value).items()
        return {
            _guard(key, pattern): _guard(_unescaped(item, pattern) if key == "arguments" else item, pattern)
            for key, item in pairs
        }
    if isinstance(value, list | tuple):
        return [_guard(item, pattern) for item in cast("Sequence[Any]", value)]
    return value


def _unescaped(arguments: Any, pattern: re.Pattern[str]) -> Any:
    """Call arguments are JSON text: a spelling hidden by escapes is written out, so that it can be disarmed."""
    if not isinstance(arguments, str) or "\\" not in arguments:
        return arguments
    try:
        plain = json.dumps(json.loads(arguments), ensure_ascii=False)
    except (ValueError, RecursionError):
        return arguments
    return plain if pattern.search(plain) else arguments
