import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken

from tests.tiny import byte_tokenizer
from unmask.core.errors import CheckpointError
from unmask.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer(byte_tokenizer(), [2])


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_comes_back(text: str) -> None:
    """Special tokens written in a text are parsed as such, so a text may hold none of them."""
    ids = TOKENIZER.encode(text)
    if not TOKENIZER.special_ids & set(ids):
        assert TOKENIZER.decode(ids) == text
        assert b"".join(map(TOKENIZER.token_bytes, ids)) == text.encode()


def test_special_tokens_are_ids_without_text() -> None:
    ids = TOKENIZER.encode("<|im_start|>a<|im_end|>")
    assert ids[0] == 1
    assert TOKENIZER.spelling(1) == "<|im_start|>"
    assert ids[-1] == 2
    assert TOKENIZER.decode(ids) == "a"
    assert TOKENIZER.token_bytes(1) == b""


def test_ids_outside_the_vocabulary_have_no_text() -> None:
    assert TOKENIZER.vocab_size == 261
    assert TOKENIZER.token_bytes(-1) == TOKENIZER.token_bytes(261) == b""


def test_added_tokens_that_are_not_special_have_text() -> None:
    backend = byte_tokenizer()
    backend.add_tokens([AddedToken("<tool_call>", special=False), AddedToken("naïve ☃", special=False)])
    tokenizer = Tokenizer(backend)
    assert tokenizer.decode(tokenizer.encode("<tool_call>naïve ☃")) == "<tool_call>naïve ☃"


def test_ids_may_have_gaps(tmp_path: Path) -> None:
    description = json.loads(byte_tokenizer().to_str())
    description["added_tokens"][3]["id"] = description["model"]["vocab"]["<unused>"] = 1000
    (tmp_path / "tokenizer.json").write_text(json.dumps(description))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.vocab_size == 1001
    assert tokenizer.encode("<unused>") == [1000]
    assert tokenizer.token_bytes(999) == b""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "cannot read"),
        (b"{", "cannot read"),
        (b"\xff", "cannot read"),
        (b"[]", "not a byte-level"),
        (b"7", "not a byte-level"),
        (b'{"decoder": {"type": "WordPiece"}}', "not a byte-level"),
        (b'{"decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}]}}', "not a byte-level"),
        (b'{"decoder": {"type": "ByteLevel"}}', "cannot read"),
        (b"[" * 100_000, "cannot read"),
    ],
)
def test_damaged_files_are_refused(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=says):
        Tokenizer.load(tmp_path)


def test_a_file_that_contradicts_itself_is_refused(tmp_path: Path) -> None:
    description = json.loads(byte_tokenizer().to_str())
    description["model"]["merges"] = [["never", "heard"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(description))
    with pytest.raises(CheckpointError, match="cannot read"):
        Tokenizer.load(tmp_path)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"tokenizer\.json does not exist"):
        Tokenizer.load(tmp_path)
