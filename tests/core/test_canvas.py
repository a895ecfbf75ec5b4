"""The contract between canvas and delta: every write is checked, nothing final ever changes."""

from typing import Any

import numpy as np
import pytest

from unmask.core.canvas import Canvas, Delta

MASK = 9


def canvas(**changes: Any) -> Canvas:
    """Prompt 1 2 3, one final answer token 4, then a decided 5 between two masks."""
    facts: dict[str, Any] = {
        "ids_L": np.array([1, 2, 3, 4, MASK, 5, MASK]),
        "open_L": np.array([0, 0, 0, 0, 1, 0, 1], np.bool_),
        "prompt_length": 3,
        "num_final": 4,
        "window_start": 3,
        "limit": 10,
        "block": 2,
        "step": 5,
    }
    return Canvas(**(facts | changes))


def delta(writes: dict[int, tuple[int, bool]], **changes: Any) -> Delta:
    facts: dict[str, Any] = {
        "positions_W": np.array(list(writes), np.int64),
        "ids_W": np.array([token for token, _ in writes.values()], np.int64),
        "open_W": np.array([undecided for _, undecided in writes.values()], np.bool_),
        "num_final": 4,
        "window_start": 3,
        "length": 7,
    }
    return Delta(**(facts | changes))


def test_a_step_inside_the_window() -> None:
    before = canvas()
    after = before.apply(delta({4: (7, False)}, num_final=6))
    assert after.ids_L.tolist() == [1, 2, 3, 4, 7, 5, MASK]
    assert after.open_L.tolist() == [False] * 6 + [True]
    assert after.answer_L.tolist() == [4, 7, 5]
    assert (after.block, after.step, after.length) == (2, 6, 7)
    assert (after.prompt_length, after.limit) == (3, 10)
    assert before.ids_L[4] == MASK, "a canvas never changes"


def test_a_step_that_opens_the_next_window() -> None:
    writes = {4: (7, False), 6: (8, False), 7: (MASK, True), 8: (MASK, True)}
    after = canvas().apply(delta(writes, num_final=7, window_start=7, length=9))
    assert after.ids_L.tolist() == [1, 2, 3, 4, 7, 5, 8, MASK, MASK]
    assert (after.block, after.step, after.num_final) == (3, 0, 7)


def test_a_shorter_canvas_drops_its_end() -> None:
    after = canvas().apply(delta({4: (7, False)}, num_final=5, length=5))
    assert after.ids_L.tolist() == [1, 2, 3, 4, 7]
    assert after.open_L.shape == (5,)


def test_an_empty_step_counts() -> None:
    assert canvas().apply(delta({})).step == 6


def test_edit_and_remask_are_writes() -> None:
    after = canvas().apply(delta({5: (MASK, True)}))
    assert after.open_L[5]
    assert canvas().apply(delta({5: (8, False)})).ids_L[5] == 8


def test_open_is_never_inferred_from_the_id() -> None:
    """A mask id may become final text and an ordinary id may stay undecided (a draft)."""
    after = canvas().apply(delta({4: (MASK, False), 5: (6, True)}, num_final=5))
    assert after.answer_L.tolist() == [4, MASK]
    assert after.open_L.tolist() == [False] * 5 + [True, True]


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (delta({3: (7, False)}), r"must lie in \[4, 7\)"),
        (delta({-1: (7, False)}), r"must lie in"),
        (delta({7: (7, False)}), r"must lie in"),
        (delta({6: (7, False)}, length=6), r"must lie in \[4, 6\)"),
        (delta({8: (7, False)}, length=9), "gap"),
        (delta({}, length=8), "gap"),
        (delta({}, num_final=3), r"final prefix 3 outside \[4, 7\]"),
        (delta({4: (7, False), 6: (7, False)}, num_final=8), r"final prefix 8 outside"),
        (delta({}, length=3), r"final prefix 4 outside \[4, 3\]"),
        (delta({}, num_final=5), "open position lies inside"),
        (delta({4: (7, True)}, num_final=5), "open position lies inside"),
    ],
)
def test_bad_deltas_are_refused(bad: Delta, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        canvas().apply(bad)


def test_writing_a_position_twice_is_refused() -> None:
    twice = delta({}, positions_W=np.array([4, 4]), ids_W=np.array([7, 8]), open_W=np.zeros(2, np.bool_))
    with pytest.raises(ValueError, match="written twice"):
        canvas().apply(twice)
    with pytest.raises(ValueError, match="written twice"):  # two writes of one new position are no two new positions
        canvas().apply(
            delta({}, positions_W=np.array([7, 7]), ids_W=np.array([7, 8]), open_W=np.ones(2, np.bool_), length=9)
        )
