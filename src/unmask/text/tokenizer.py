"""Text <-> token ids, on Hugging Face `tokenizers`."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import cast

from tokenizers import Tokenizer as HfTokenizer

from unmask.core.errors import CheckpointError, RequestError


def _byte_alphabet() -> dict[str, int]:
    """The printable stand-ins of byte-level BPE, mapped back to bytes (GPT-2's table)."""
    keep = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    moved = [byte for byte in range(256) if byte not in keep]
    return {chr(byte): byte for byte in keep} | {chr(256 + i): byte for i, byte in enumerate(moved)}


class Tokenizer:
    """A byte-level BPE tokenizer with its special ids.

    Args:
        backend: the `tokenizers` object.
        eos_ids: ids that end an answer.
    """

    def __init__(self, backend: HfTokenizer, eos_ids: Iterable[int] = ()) -> None:
        self._backend = backend
        self.eos_ids = frozenset(eos_ids)
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(int(i) for i, token in added.items() if token.special)
        self.special_spellings = tuple(token.content for token in added.values() if token.special)
        self._plain = HfTokenizer.from_str(backend.to_str())
        self._plain.encode_special_tokens = True
        vocabulary = backend.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values(), default=-1) + 1  # ids may have gaps
        alphabet = _byte_alphabet()
        self._bytes: list[bytes] = [b""] * self.vocab_size
        for token, i in vocabulary.items():
            if i in self.special_ids:
                continue
            if i in added or any(char not in alphabet for char in token):
                self._bytes[i] = token.encode()
            else:
                self._bytes[i] = bytes(alphabet[char] for char in token)

    @classmethod
    def load(cls, folder: Path, eos_ids: Iterable[int] = ()) -> "Tokenizer":
        """Reads `tokenizer.json` of a checkpoint folder.

        Raises:
            CheckpointError: no such file, damaged, or not byte-level.
        """
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise CheckpointError(f"{file} does not exist; a checkpoint folder needs it")
        try:
            text = file.read_text(encoding="utf-8")
            description = json.loads(text)
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"cannot read {file}: {error}") from error
        if not _is_byte_level(description):
            raise CheckpointError(
                f"{file} is not a byte-level tokenizer (as Llama 3, Qwen, SmolLM have); no other works"
            )
        with _DamagedTokenizer(file):
            return cls(HfTokenizer.from_str(text), eos_ids)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; special tokens written in it are parsed as such."""
        return self._backend.encode(_unicode(text), add_special_tokens=False).ids

    def encode_text(self, text: str) -> list[int]:
        """Token ids of plain text: what looks like a special token is text too."""
        return self._plain.encode(_unicode(text), add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special tokens are left out, invalid UTF-8 becomes U+FFFD."""
        return b"".join(self.token_bytes(i) for i in ids).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Raw bytes of one token; empty for special tokens and ids outside the vocabulary."""
        return self._bytes[token_id] if 0 <= token_id < self.vocab_size else b""

    def spelling(self, token_id: int) -> str:
        """Exact spelling of a token in the vocabulary ("" outside it)."""
        return self._backend.id_to_token(token_id) or ""


def _unicode(text: str) -> str:
    """Refuses lone surrogates: they come from bytes that were not UTF-8, and no token spells them."""
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise RequestError("the text is not valid Unicode (it holds lone surrogates)", param="messages")
    return text


def _is_byte_level(description: object) -> bool:
    """Whether the decoder of a tokenizer.json maps GPT-2's stand-in characters back to bytes."""
    fields = cast("dict[str, object]", description) if isinstance(description, dict) else {}
    decoder = fields.get("decoder")
    return '"type": "ByteLevel"' in json.dumps(decoder)


class _DamagedTokenizer:
    """Turns what `tokenizers` raises for a damaged file into CheckpointError.

    It raises bare `Exception`, so exactly that class is taken and none that derives from it: our own mistakes pass.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if kind is Exception:
            raise CheckpointError(f"cannot read {self._file}: {error}") from error
