"""Token ids -> text while the ids are still arriving."""

import codecs
from collections.abc import Iterable
from typing import Protocol


class TokenBytes(Protocol):
    """The part of a tokenizer that detokenisation needs."""

    def token_bytes(self, token_id: int, /) -> bytes:
        """Returns the raw bytes of one token; empty for special tokens."""
        ...


class Detokenizer:
    """Turns final ids into append-only text; works in time linear in the new ids.

    A token may end in the middle of a UTF-8 sequence: the incomplete bytes are held back until the sequence is whole,
    so the text never has to be taken back. Bytes that can no longer become valid UTF-8 turn into U+FFFD.

    Args:
        tokenizer: gives the bytes of an id.
    """

    def __init__(self, tokenizer: TokenBytes) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, ids: Iterable[int]) -> str:
        """Returns the text that `ids` add."""
        return self._decoder.decode(b"".join([self._tokenizer.token_bytes(i) for i in ids]))

    def flush(self) -> str:
        """Returns what the end of the ids adds: U+FFFD if they stop inside a UTF-8 sequence, else nothing."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
