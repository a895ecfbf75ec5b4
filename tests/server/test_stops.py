import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.server.stops import StopFinder


def run(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    finder = StopFinder(stops)
    shown = ""
    for piece in pieces:
        text, hit = finder.push(piece)
        shown += text
        if hit:
            return shown, True
    return shown + finder.flush(), False


@pytest.mark.parametrize(
    ("stops", "text", "expected"),
    [
        ([], "abc", ("abc", False)),
        (["b"], "abc", ("a", True)),
        (["bd"], "abc", ("abc", False)),
        (["aab"], "aaab", ("a", True)),
        (["abc", "b"], "abc", ("a", True)),  # "b" is complete first
        (["bc", "abc"], "abc", ("", True)),  # both end together: the longest
        (["c"], "ab", ("ab", False)),
    ],
)
def test_finds(stops: list[str], text: str, expected: tuple[str, bool]) -> None:
    assert run(stops, [text]) == expected
    assert run(stops, list(text)) == expected


def test_holds_back_no_more_than_it_must() -> None:
    finder = StopFinder(["xyz"])
    assert finder.push("abx") == ("ab", False)
    assert finder.push("y") == ("", False)
    assert finder.push("x") == ("xy", False)
    assert finder.push("yz") == ("", True)


@settings(deadline=None)  # a busy machine is no bug
@given(
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(st.text("ab", max_size=5), max_size=6),
)
def test_the_outcome_does_not_depend_on_the_cuts(stops: list[str], pieces: list[str]) -> None:
    text = "".join(pieces)
    shown, hit = run(stops, pieces)
    assert (shown, hit) == run(stops, list(text))
    assert text.startswith(shown)
    assert hit == any(stop in text for stop in stops)
    assert not any(stop in shown for stop in stops)
