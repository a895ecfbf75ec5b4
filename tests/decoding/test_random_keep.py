"""DiffuGPT's rule: the law of what is kept, and the forwards that are saved."""

import numpy as np
import pytest

from tests.decoding.canvas_examples import LAYOUT, belief, looks
from unmask.core.errors import ConfigError
from unmask.decoding.random_keep import RandomKeep
from unmask.decoding.randomness import RandomStream
from unmask.decoding.sampling import Sampling


def forwards_until_kept(rule: RandomKeep, seed: int, max_tokens: int) -> tuple[list[int], list[int]]:
    """Schedule step and forward (both from 1) after which each position was kept."""
    canvas, stream = rule.begin(np.array([5]), max_tokens), RandomStream(seed=seed)
    steps, forwards, number = [0] * max_tokens, [0] * max_tokens, 0
    while canvas.num_final < canvas.limit:
        rows = [(int(position), 4, 0.5) for position in rule.reads(canvas).predicts_R]
        delta, number = rule.step(canvas, belief(rows), stream), number + 1
        assert isinstance(delta.memory, int)
        for position in delta.positions_W.tolist():
            steps[position - 1], forwards[position - 1] = delta.memory, number
        canvas = canvas.apply(delta)
    return steps, [*forwards, number]


def test_every_step_is_equally_likely() -> None:
    rule = RandomKeep(layout=LAYOUT, sampling=Sampling(), steps=5)
    seen = np.bincount([step for seed in range(150) for step in forwards_until_kept(rule, seed, 6)[0]])
    assert seen[1:] / seen.sum() == pytest.approx([0.2] * 5, abs=0.05)


def test_skipping_forwards_changes_no_decision() -> None:
    for seed in range(10):
        quick = forwards_until_kept(RandomKeep(layout=LAYOUT, sampling=Sampling(), steps=20), seed, 4)
        whole = forwards_until_kept(RandomKeep(layout=LAYOUT, sampling=Sampling(), steps=20, parity=True), seed, 4)
        assert quick[0] == whole[0], "kept in the same step of the schedule"
        assert whole[1][-1] == 20
        assert quick[1][-1] == len(set(quick[0])) <= 4


def test_one_step_decides_all() -> None:
    rule = RandomKeep(layout=LAYOUT, sampling=Sampling(), steps=1)
    canvas = rule.begin(np.array([5]), 2)
    assert looks(canvas.apply(rule.step(canvas, belief([(1, 1, 0.5), (2, 2, 0.4)]), RandomStream(seed=1)))) == "5 1 2 |"
    with pytest.raises(ConfigError, match="steps"):
        RandomKeep(layout=LAYOUT, sampling=Sampling(), steps=0)
