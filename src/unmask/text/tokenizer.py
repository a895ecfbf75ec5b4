"""Text <-> token ids, on Hugging Face `tokenizers`."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import Tokenizer as HfTokenizer

from unmask.core.errors import CheckpointError


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
        self.vocab_size = backend.get_vocab_size(with_added_tokens=True)
        alphabet = _byte_alphabet()
        self._bytes: list[bytes] = [b""] * self.vocab_size
        for token, i in backend.get_vocab(with_added_tokens=True).items():
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
            CheckpointError: no such file, or not a tokenizer.
        """
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise CheckpointError(f"{file} does not exist; a checkpoint folder needs it")
        try:
            backend = HfTokenizer.from_file(str(file))
        except Exception as error:  # noqa: BLE001 - tokenizers raises plain Exception for every damaged file
            raise CheckpointError(f"cannot read {file}: {error}") from error
        return cls(backend, eos_ids)

    def encode(self, text: str) -> list[int]:
        """Token ids of a text; special tokens written in it are parsed as such."""
        return self._backend.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special tokens are left out, invalid UTF-8 becomes U+FFFD."""
        return b"".join(self.token_bytes(i) for i in ids).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Raw bytes of one token; empty for special tokens and ids outside the vocabulary."""
        return self._bytes[token_id] if 0 <= token_id < self.vocab_size else b""

    def id_of(self, token: str) -> int | None:
        """Id of a token by its exact spelling, None if absent."""
        return self._backend.token_to_id(token)
