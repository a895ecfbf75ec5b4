"""Fast-dLLM's rules for LLaDA by hand."""

from typing import Any

import numpy as np
import pytest

from tests.decoding.canvas_examples import LAYOUT, belief, looks
from unmask.core.errors import ConfigError
from unmask.decoding.parallel import Parallel, above_threshold, within_factor
from unmask.decoding.randomness import RandomStream
from unmask.decoding.sampling import Sampling

RANDOM = RandomStream(seed=1)


def test_threshold() -> None:
    assert above_threshold(np.array([0.9, 0.5, 0.95]), 0.9).tolist() == [True, False, True]
    assert above_threshold(np.array([0.2, 0.5, 0.5]), 0.9).tolist() == [False, True, False]


def test_factor() -> None:
    # bounds under factor 1: none, 2/3, 3/4, 4/5
    assert within_factor(np.array([0.1, 0.9, 0.95, 0.7]), 1.0) == 2
    assert within_factor(np.array([0.95, 0.9, 0.8, 0.1]), 1.0) == 3
    assert within_factor(np.array([0.95, 0.9, 0.8, 0.1]), 1.0, parity=True) == 4, "the released code takes the last"
    assert within_factor(np.array([0.95, 0.9, 0.8, 0.8]), 1.0) == 4
    assert within_factor(np.array([0.1, 0.1]), 1.0) == 1
    assert within_factor(np.array([0.1]), 1.0) == 1


def test_a_block_takes_as_many_steps_as_it_needs() -> None:
    rule = Parallel(layout=LAYOUT, sampling=Sampling(), block_length=3, threshold=0.8)
    canvas = rule.begin(np.array([5]), 5)
    canvas = canvas.apply(rule.step(canvas, belief([(1, 1, 0.85), (2, 2, 0.5), (3, 3, 0.9)]), RANDOM))
    assert looks(canvas) == "5 1 | ? 3 ? ?"
    assert rule.reads(canvas).predicts_R.tolist() == [2]
    canvas = canvas.apply(rule.step(canvas, belief([(2, 2, 0.3)]), RANDOM))
    assert looks(canvas) == "5 1 2 3 | ? ?"
    assert rule.reads(canvas).predicts_R.tolist() == [4, 5]


def test_quota_counts_within_a_block() -> None:
    rule = Parallel(layout=LAYOUT, sampling=Sampling(), block_length=3, steps_per_block=2)
    canvas = rule.begin(np.array([5]), 3)
    canvas = canvas.apply(rule.step(canvas, belief([(1, 1, 0.1), (2, 2, 0.5), (3, 3, 0.9)]), RANDOM))
    assert looks(canvas) == "5 | ? 2 3"


@pytest.mark.parametrize("fields", [{}, {"threshold": 0.9, "factor": 1.0}, {"factor": 1.0, "steps_per_block": 3}])
def test_one_way_of_deciding(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="exactly one"):
        Parallel(layout=LAYOUT, sampling=Sampling(), **fields)
