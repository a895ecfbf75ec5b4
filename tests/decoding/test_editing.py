"""LLaDA2.0's floor and LLaDA2.1's edits, worked by hand on blocks of 4."""

import numpy as np
import pytest

from tests.decoding.block_examples import EOS, MASK, Row, after, looks, window
from unmask.core.canvas import Canvas
from unmask.core.errors import ConfigError
from unmask.decoding.editing import LLADA21_QUALITY, LLADA21_SPEED, EditThresholds, Floor, Llada20, Llada21
from unmask.decoding.rules import is_finished
from unmask.decoding.sampling import Sampling

STOP = frozenset([EOS])


def floor(threshold: float = 0.8, num_steps: int = 4, **modes: bool) -> Llada20:
    return Llada20(window=window(), sampling=Sampling(), floor=Floor(threshold=threshold, num_steps=num_steps), **modes)


def edit(thresholds: EditThresholds = LLADA21_QUALITY, **modes: bool) -> Llada21:
    return Llada21(window=window(), sampling=Sampling(), thresholds=thresholds, **modes)


def start(rule: Llada20 | Llada21, max_tokens: int = 20) -> Canvas:
    """A prompt that fills half of the first block."""
    canvas = rule.begin(np.array([5, 6]), max_tokens)
    assert looks(canvas) == "5 6 | ?0 ?0"
    return canvas


def run(rule: Llada20 | Llada21, canvas: Canvas, *steps: tuple[Row, ...], tempting: bool = True) -> list[str]:
    seen: list[str] = []
    for rows in steps:
        canvas = after(rule, canvas, *rows, tempting=tempting)
        seen.append(looks(canvas))
    return seen


def test_floor_by_hand() -> None:
    rule = floor(num_steps=2)  # two positions per step, whatever their confidence
    assert run(rule, start(rule), ((2, 1, 0.3), (3, 2, 0.9))) == ["5 6 1 2 | ?0 ?0 ?0 ?0"]
    rule = floor(num_steps=4)  # one, unless more pass
    assert run(rule, start(rule), ((2, 1, 0.3), (3, 2, 0.9))) == ["5 6 | ?0 2"]
    assert run(rule, start(rule), ((2, 1, 0.85), (3, 2, 0.9))) == ["5 6 1 2 | ?0 ?0 ?0 ?0"]


def test_floor_stops_at_an_eos() -> None:
    rows = ((2, EOS, 0.9), (3, 2, 0.3))
    for rule, wanted in (
        (floor(), "5 6 9 | ?0"),
        (floor(parity=True), "5 6 | 9 ?0"),
        (floor(parity=True, eos_early_stop=True), "5 6 9 | ?0"),
    ):
        canvas = after(rule, start(rule), *rows, tempting=False)
        assert looks(canvas) == wanted
        assert is_finished(canvas, STOP) == wanted.startswith("5 6 9")


def test_fills_and_edits_are_written_together() -> None:
    rule = edit()
    assert run(
        rule,
        start(rule),
        ((2, 1, 0.8), (3, 2, 0.6)),  # only one passes 0.7
        ((2, 3, 0.6), (3, 2, 0.2)),  # edit above 0.5, and the best mask whatever its confidence
        ((2, 4, 0.4), (3, 2, 0.2)),  # no edit passes: done
    ) == ["5 6 | 1 ?0", "5 6 | 3 2", "5 6 3 2 | ?0 ?0 ?0 ?0"]


def test_speed_edits_whatever_changes() -> None:
    rule = edit(LLADA21_SPEED)
    assert run(
        rule, start(rule), ((2, 1, 0.8), (3, 2, 0.6)), ((2, 3, 0.2), (3, 2, 0.2)), ((2, 3, 0.2), (3, 2, 0.2))
    ) == ["5 6 | 1 2", "5 6 | 3 2", "5 6 3 2 | ?0 ?0 ?0 ?0"]


def test_an_eos_is_provisional_until_its_block_is_done() -> None:
    rule = edit()
    canvas = after(rule, start(rule), (2, EOS, 0.9), (3, 2, 0.9))
    assert looks(canvas) == "5 6 | 9 2"
    assert not is_finished(canvas, STOP)
    canvas = after(rule, canvas, (2, 1, 0.9), (3, EOS, 0.9))
    canvas = after(rule, canvas, (2, 1, 0.9), (3, EOS, 0.9))
    assert looks(canvas) == "5 6 1 9 | ?0 ?0 ?0 ?0"
    assert is_finished(canvas, STOP)


def test_text_after_an_eos_is_never_final() -> None:
    rule = edit()
    canvas = after(rule, start(rule), (2, EOS, 0.9), (3, 2, 0.9))
    canvas = after(rule, canvas, (2, EOS, 0.9), (3, 2, 0.9))
    assert looks(canvas) == "5 6 9 | 2"


def test_official_early_stop_does_not_wait_for_edits() -> None:
    rule = edit(parity=True, eos_early_stop=True)
    canvas = after(rule, start(rule), (2, EOS, 0.9), (3, 2, 0.2), tempting=False)
    assert looks(canvas) == "5 6 9 | ?0"


def test_circles_end() -> None:
    """1 2 -> 3 2 -> 1 2: the default stops where the circle closes, the official code goes round 16 times."""
    there: tuple[Row, ...] = ((2, 3, 0.9), (3, 2, 0.9))
    back: tuple[Row, ...] = ((2, 1, 0.9), (3, 2, 0.9))
    rule = edit()
    assert run(rule, start(rule), back, there, back)[-1] == "5 6 1 2 | ?0 ?0 ?0 ?0"
    official = edit(parity=True)
    texts = run(official, start(official), back, *[there, back] * 8, tempting=False)
    assert texts[:-1] == ["5 6 | 1 2", *["5 6 | 3 2", "5 6 | 1 2"] * 7, "5 6 | 3 2"]
    assert texts[-1] == "5 6 1 2 | ?0 ?0 ?0 ?0"


def test_no_edit_steps_at_all() -> None:
    rule = edit(EditThresholds(max_edit_steps=0))
    assert run(rule, start(rule), ((2, 1, 0.9), (3, 2, 0.9))) == ["5 6 1 2 | ?0 ?0 ?0 ?0"]


def test_the_official_code_masks_tokens_again() -> None:
    rows = ((2, MASK, 0.9), (3, 2, 0.9))
    official = edit(parity=True)
    canvas = after(official, start(official), (2, 1, 0.9), (3, 2, 0.9), tempting=False)
    assert looks(after(official, canvas, *rows, tempting=False)) == "5 6 | ?0 2"


def test_the_prompt_and_what_is_past_the_limit_stay_as_they_are() -> None:
    rule = edit(LLADA21_SPEED)
    canvas = after(rule, start(rule, max_tokens=1), (2, 1, 0.9))
    canvas = after(rule, canvas, (2, 1, 0.9))
    assert looks(canvas) == "5 6 1 | ?0"
    assert is_finished(canvas, STOP)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_steps"):
        Floor(num_steps=0)
    with pytest.raises(ConfigError, match="max_edit_steps"):
        EditThresholds(max_edit_steps=-1)
