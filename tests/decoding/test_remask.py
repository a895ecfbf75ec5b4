"""ReMDM: chances by hand, and the law of the number of masks."""

from typing import Any

import numpy as np
import pytest

from tests.decoding.canvas_examples import EOS, LAYOUT, MASK, belief, looks
from tests.decoding.hash_model import hash_model
from unmask.core.canvas import Canvas
from unmask.core.errors import ConfigError
from unmask.decoding.fixed_canvas import decide
from unmask.decoding.randomness import RandomStream
from unmask.decoding.remask import Remask, Revision, remask_chance, unmask_chance
from unmask.decoding.sampling import Sampling


def test_chances() -> None:
    assert remask_chance(0.8, 0.6, 0.1, "cap") == 0.1
    assert remask_chance(0.2, 0.1, 0.5, "cap") == pytest.approx(0.125), "no more than 0.1 / 0.8"
    assert remask_chance(0.2, 0.1, 0.5, "rescale") == pytest.approx(0.0625)
    assert remask_chance(0.5, 0.0, 1.0, "cap") == 0.0, "the last step remasks none"
    assert unmask_chance(0.5, 0.25, 0.0) == pytest.approx(0.5), "without remasking: (0.75 - 0.5) / 0.5"
    assert unmask_chance(0.5, 0.25, 0.5) == pytest.approx(1.0)
    assert unmask_chance(0.1, 0.0, 0.0) == 1.0


@pytest.mark.parametrize("strategy", ["cap", "rescale"])
def test_the_share_of_masks_does_not_depend_on_eta(strategy: str) -> None:
    """E[masks] at time s is s, whatever returns to the mask."""
    share = 1.0
    for time in range(20):
        now, later = (20 - time) / 20, (19 - time) / 20
        sigma = remask_chance(now, later, 0.3, "cap" if strategy == "cap" else "rescale")
        share = share * (1 - unmask_chance(now, later, sigma)) + (1 - share) * sigma
        assert share == pytest.approx(later, abs=1e-9)


def run(rule: Remask, seed: int) -> tuple[Canvas, int, list[int]]:
    """Last canvas, number of positions that returned to the mask, lengths of the final prefix on the way."""
    model, stream = hash_model(seed, 10), RandomStream(seed=seed)
    canvas, returned, finals = rule.begin(np.array([5]), 12), 0, list[int]()
    while canvas.num_final < canvas.limit and not (canvas.answer_L == EOS).any():
        reads = rule.reads(canvas)
        logits_LV = model(canvas.ids_L, np.ones((canvas.length, canvas.length), np.bool_))
        rows = belief([(int(position), 1, 0.5) for position in reads.predicts_R])
        rows.logits_RV.copy_(logits_LV[reads.predicts_R])
        delta = rule.step(canvas, rows, stream)
        returned += int((~canvas.open_L[delta.positions_W] & delta.open_W).sum())
        canvas = canvas.apply(delta)
        finals.append(canvas.num_final)
    return canvas, returned, finals


def test_decided_positions_return_and_nothing_is_final_before_the_end() -> None:
    runs = [
        run(Remask(layout=LAYOUT, sampling=Sampling(temperature=1.0), steps=16, eta=0.5), seed) for seed in range(6)
    ]
    assert sum(returned for _, returned, _ in runs) > 10
    for canvas, _, finals in runs:
        assert set(finals[:-1]) <= {1}
        assert finals[-1] == canvas.num_final > 1
        assert not canvas.open_L.any()
        assert (canvas.ids_L != MASK).all()


def test_without_eta_or_before_the_switch_nothing_returns() -> None:
    cases: list[dict[str, Any]] = [{"eta": 0.0}, {"eta": 1.0, "switch": 0.01}]
    for fields in cases:
        rule = Remask(layout=LAYOUT, sampling=Sampling(temperature=1.0), steps=16, **fields)
        assert all(run(rule, seed)[1] == 0 for seed in range(3))


def test_doubtful_positions_return_more_often() -> None:
    rule = Remask(layout=LAYOUT, sampling=Sampling(), steps=1000, eta=1.0, strategy="confidence")
    canvas = rule.begin(np.array([5]), 4)
    past = Revision(time=500, confidences=((2, 1.0), (3, 0.0), (4, 1.0)))
    canvas = canvas.apply(decide(canvas, np.array([2, 3, 4]), np.array([1, 2, 3]), LAYOUT, memory=past))
    returned = np.zeros(5)
    for seed in range(400):
        after = canvas.apply(rule.step(canvas, belief([(1, 4, 0.5)]), RandomStream(seed=seed)))
        returned += after.open_L & ~canvas.open_L
    # the chance of the step, 0.499 / 0.5, is shared out as 1 : e : 1
    assert returned[2:5] / 400 == pytest.approx(np.array([1, np.e, 1]) / (2 + np.e), abs=0.06)


def test_settings_out_of_range() -> None:
    cases: list[dict[str, Any]] = [{"steps": 0}, {"eta": 1.5}, {"switch": 0.0}]
    for fields in cases:
        with pytest.raises(ConfigError, match="remasking needs"):
            Remask(layout=LAYOUT, sampling=Sampling(), **fields)
    assert looks(Remask(layout=LAYOUT, sampling=Sampling()).begin(np.array([5]), 2)) == "5 | ? ?"
