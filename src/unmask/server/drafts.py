"""What is not final yet, as the wire shows it: opt-in, replaceable, beside the append-only content."""

from dataclasses import dataclass

from pydantic import BaseModel

from unmask.text.detokenizer import TokenBytes

MASK = "░"


class DraftToken(BaseModel):
    """One position behind the final answer; `text` is null where it is still masked."""

    position: int
    text: str | None


class Draft(BaseModel):
    """Everything behind the final answer as it looks now; replaces the choice's last draft."""

    text: str
    tokens: list[DraftToken]
    num_forwards: int


class Extension(BaseModel):
    """unmask's own field of a chunk."""

    draft: Draft


@dataclass(frozen=True, kw_only=True)
class DraftShown:
    """A piece of a streamed choice that holds a draft."""

    draft: Draft


def read_draft(draft_ids: tuple[int, ...], start: int, num_forwards: int, tokenizer: TokenBytes) -> DraftShown:
    """Spells a draft; -1 is a mask, `start` the number of final tokens before it."""
    parts = [None if i < 0 else tokenizer.token_bytes(i) for i in draft_ids]
    text = b"".join(MASK.encode() if part is None else part for part in parts).decode("utf-8", errors="replace")
    tokens = [
        DraftToken(position=start + i, text=None if part is None else part.decode("utf-8", errors="replace"))
        for i, part in enumerate(parts)
    ]
    return DraftShown(draft=Draft(text=text, tokens=tokens, num_forwards=num_forwards))
