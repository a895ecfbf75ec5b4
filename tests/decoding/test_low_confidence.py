"""LLaDA's and dllm's scheduled rule by hand."""

import numpy as np
import pytest

from tests.decoding.canvas_examples import EOS, LAYOUT, belief, looks
from unmask.decoding.low_confidence import LowConfidence, even_counts, linear_counts
from unmask.decoding.randomness import RandomStream
from unmask.decoding.sampling import Sampling

RANDOM = RandomStream(seed=1)
PROMPT = np.array([5])


@pytest.mark.parametrize(
    ("num_masks", "steps", "counts"),
    [(10, 4, (3, 3, 2, 2)), (8, 3, (3, 3, 2)), (2, 4, (1, 1, 0, 0)), (32, 32, (1,) * 32)],
)
def test_even_counts(num_masks: int, steps: int, counts: tuple[int, ...]) -> None:
    assert even_counts(num_masks, steps) == counts


def test_linear_counts() -> None:
    assert linear_counts(8, 4) == (2, 2, 2, 2)
    # 20/11, 18/10, 16/9, 14/8, 12/7, 10/6, 8/5, 6/4 = 1.5 to even, 4/3, 3/2 that float32 puts just below 1.5, the rest
    assert linear_counts(20, 11) == (2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 2)
    # 4/16 ... 4/9 round to 0, and so does 4/8 = 0.5 (to even); 4/7 is the first that does not
    assert linear_counts(4, 16)[:10] == (0,) * 9 + (1,)
    assert all(sum(linear_counts(masks, steps)) == masks for masks in range(1, 20) for steps in range(1, 25))


def test_block_by_block() -> None:
    rule = LowConfidence(layout=LAYOUT, sampling=Sampling(), block_length=3, steps_per_block=2)
    canvas = rule.begin(PROMPT, 5)
    assert rule.reads(canvas).predicts_R.tolist() == [1, 2, 3]
    canvas = canvas.apply(rule.step(canvas, belief([(1, 1, 0.5), (2, 2, 0.7), (3, 3, 0.7)], mask=9.0), RANDOM))
    assert looks(canvas) == "5 | ? 2 3 ? ?", "two of three, equals in order; the mask wins nothing"
    canvas = canvas.apply(rule.step(canvas, belief([(1, 1, 0.3)]), RANDOM))
    assert looks(canvas) == "5 1 2 3 | ? ?"
    assert rule.reads(canvas).predicts_R.tolist() == [4, 5]
    canvas = canvas.apply(rule.step(canvas, belief([(4, 4, 0.3), (5, 4, 0.4)]), RANDOM))
    assert looks(canvas) == "5 1 2 3 | ? 4", "the last block is shorter: one per step"


def test_late_ids_are_decided_last() -> None:
    rows = [(1, EOS, 0.9), (2, 2, 0.5)]
    for late_ids, then in (((), "5 | 9 ?"), ((EOS,), "5 | ? 2")):
        rule = LowConfidence(layout=LAYOUT, sampling=Sampling(), late_ids=late_ids)
        canvas = rule.begin(PROMPT, 2)
        decided = looks(canvas.apply(rule.step(canvas, belief(rows), RANDOM)))
        assert decided == then.replace("| 9", "9 |")


def test_random_order_ignores_confidence() -> None:
    rule = LowConfidence(layout=LAYOUT, sampling=Sampling(), order="random")
    firsts: set[int] = set()
    for seed in range(20):
        canvas = rule.begin(PROMPT, 3)
        step = rule.step(canvas, belief([(1, 1, 0.9), (2, 2, 0.5), (3, 3, 0.1)]), RandomStream(seed=seed))
        firsts.update(step.positions_W.tolist())
    assert firsts == {1, 2, 3}


def test_parity_runs_idle_steps() -> None:
    counted: dict[bool, int] = {}
    for parity in (False, True):
        rule = LowConfidence(layout=LAYOUT, sampling=Sampling(), block_length=2, steps_per_block=4, parity=parity)
        canvas, forwards = rule.begin(PROMPT, 2), 0
        while canvas.num_final < canvas.limit:
            rows = [(int(position), 4, 0.5) for position in rule.reads(canvas).predicts_R]
            canvas, forwards = canvas.apply(rule.step(canvas, belief(rows), RANDOM)), forwards + 1
        assert looks(canvas) == "5 4 4 |"
        counted[parity] = forwards
    assert counted == {False: 2, True: 4}
