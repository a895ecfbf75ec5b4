"""What the generator is made of: tool specifications, and the conversations it yields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """One conversation whose last message is the assistant target.

    Attributes:
        id: Stable name, such as "train-17-3".
        kind: "call", "no_tool" or "after_result".
        tool: Catalogue name of the expected call, or of the reported result; None where no tool is involved.
        tools: OpenAI tool objects.
        messages: OpenAI messages; the last one is the target.
    """

    id: str
    kind: str
    tool: str | None
    tools: tuple[dict[str, Any], ...]
    messages: tuple[dict[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Conversations that share one tool list."""

    tools: tuple[dict[str, Any], ...]
    conversations: tuple[Conversation, ...]


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of a tool: which pool its values come from and what else it may be called."""

    name: str
    pool: str
    aliases: tuple[str, ...]
    required: bool
    note: str | None


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """One tool of the catalogue.

    Phrasings hold `{argument}` slots, `(a|b)` choices and `[...]` parts that may be left out. One that starts in
    lower case is a bare command, which a frame ("Could you ...?") may wrap; others are whole sentences.

    Attributes:
        descriptions: The first is canonical; the others are used in training only.
        fields: Result fields, as pairs of a name and a source (see `generate.draw_result`).
        reports: Sentences that report a result; slots are result fields and required arguments.
        clash: Tools that share a non-empty clash are never offered together.
    """

    name: str
    domain: str
    aliases: tuple[str, ...]
    descriptions: tuple[str, ...]
    arguments: tuple[Argument, ...]
    phrasings: tuple[str, ...]
    held_out: tuple[str, ...]
    fields: tuple[tuple[str, str], ...]
    reports: tuple[str, ...]
    clash: str


def tool(
    name: str,
    domain: str,
    aliases: str,
    description: str,
    arguments: str,
    asks: str,
    held: str = "",
    *,
    result: str,
    reports: str,
    clash: str = "",
) -> ToolSpec:
    """Read a catalogue entry.

    Args:
        name: Canonical name.
        domain: Topic; distractors are drawn from the same one more often.
        aliases: Other names, separated by blanks.
        description: One or more descriptions, separated by "|".
        arguments: Blank-separated `name:pool:alias,alias[:note]`; a leading "?" marks an optional one, "_" in a note
            stands for a blank.
        asks: Training phrasings, one a line.
        held: Held-out phrasings, one a line.
        result: Blank-separated `field=source`.
        reports: Report sentences, one a line.
        clash: See `ToolSpec`.
    """
    return ToolSpec(
        name=name,
        domain=domain,
        aliases=tuple(aliases.split()),
        descriptions=tuple(description.split("|")),
        arguments=tuple(_argument(text) for text in arguments.split()),
        phrasings=_lines(asks),
        held_out=_lines(held),
        fields=tuple(_pair(text) for text in result.split()),
        reports=_lines(reports),
        clash=clash,
    )


def _argument(text: str) -> Argument:
    name, pool, aliases, *note = text.removeprefix("?").split(":")
    return Argument(
        name=name,
        pool=pool,
        aliases=tuple(aliases.split(",")),
        required=not text.startswith("?"),
        note=note[0].replace("_", " ") if note else None,
    )


def _pair(text: str) -> tuple[str, str]:
    name, _, source = text.partition("=")
    return name, source


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())
