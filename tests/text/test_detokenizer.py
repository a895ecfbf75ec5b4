from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import ByteTokenizer
from unmask.text.detokenizer import Detokenizer


def test_holds_back_an_incomplete_character() -> None:
    detokenizer = Detokenizer(ByteTokenizer())
    first, second, third = "€".encode()
    assert detokenizer.push([ord("a"), first]) == "a"
    assert detokenizer.push([second]) == ""
    assert detokenizer.push([third, ord("b")]) == "€b"
    assert detokenizer.flush() == ""


def test_specials_render_as_nothing() -> None:
    assert Detokenizer(ByteTokenizer()).push([256, ord("a"), 257]) == "a"


def test_flush_shows_a_cut_character_once() -> None:
    detokenizer = Detokenizer(ByteTokenizer())
    assert detokenizer.push("é".encode()[:1]) == ""
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.flush() == ""


@settings(deadline=None)  # a busy machine is no bug
@given(st.lists(st.lists(st.integers(0, 257))))
def test_pieces_add_up_to_the_whole(bursts: list[list[int]]) -> None:
    tokenizer = ByteTokenizer()
    detokenizer = Detokenizer(tokenizer)
    text = "".join(detokenizer.push(burst) for burst in bursts) + detokenizer.flush()
    assert text == tokenizer.decode([i for burst in bursts for i in burst])
