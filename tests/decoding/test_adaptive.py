"""Hierarchical, credit and entropy-bounded decoding by hand."""

import numpy as np
import pytest

from tests.decoding.canvas_examples import LAYOUT, belief, looks
from unmask.decoding.adaptive import Credit, Credits, EntropyBounded, Hierarchical, best_of_runs, within_entropy
from unmask.decoding.randomness import RandomStream
from unmask.decoding.sampling import Sampling

RANDOM = RandomStream(seed=1)
PROMPT = np.array([5])


def test_the_surest_of_each_run() -> None:
    positions_R = np.array([3, 4, 7, 9, 10])
    confidence_R = np.array([0.5, 0.6, 0.3, 0.7, 0.7])
    assert np.flatnonzero(best_of_runs(confidence_R, positions_R, 0.4)).tolist() == [1, 3]
    assert np.flatnonzero(best_of_runs(confidence_R, positions_R, 0.2)).tolist() == [1, 2, 3]
    assert not best_of_runs(confidence_R, positions_R, 0.7).any()


def test_hierarchical() -> None:
    rule = Hierarchical(layout=LAYOUT, sampling=Sampling(), threshold=0.9, low_threshold=0.4)
    canvas = rule.begin(PROMPT, 5)
    canvas = canvas.apply(
        rule.step(canvas, belief([(p, p, s) for p, s in enumerate((0.5, 0.3, 0.92, 0.5, 0.2), 1)]), RANDOM)
    )
    assert looks(canvas) == "5 | ? ? 3 ? ?", "one run"
    canvas = canvas.apply(rule.step(canvas, belief([(1, 1, 0.5), (2, 2, 0.3), (4, 4, 0.45), (5, 5, 0.2)]), RANDOM))
    assert looks(canvas) == "5 1 | ? 3 4 ?", "two runs"
    canvas = canvas.apply(rule.step(canvas, belief([(2, 2, 0.3), (5, 5, 0.2)]), RANDOM))
    assert looks(canvas) == "5 1 2 3 4 | ?", "none is sure enough, so the surest of all"


def test_credit_grows_where_the_same_token_returns() -> None:
    rule = Credit(layout=LAYOUT, sampling=Sampling(), threshold=0.6)
    canvas = rule.begin(PROMPT, 3)
    rows = [(1, 1, 0.4), (2, 2, 0.5), (3, 3, 0.3)]
    canvas = canvas.apply(rule.step(canvas, belief(rows), RANDOM))
    # credit of position 2 is 0.5^0.2 = 0.8706: odds 1 become (1 + 0.8706)^0.7 = 1.55, p = 0.608
    assert looks(canvas) == "5 | ? 2 ?"
    assert isinstance(canvas.memory, Credits)
    assert {(position, token) for position, token, _ in canvas.memory.entries} == {(1, 1), (2, 2), (3, 3)}
    canvas = canvas.apply(rule.step(canvas, belief([(1, 1, 0.4), (3, 4, 0.3)]), RANDOM))
    assert isinstance(canvas.memory, Credits)
    credits_ = {(position, token): credit for position, token, credit in canvas.memory.entries}
    assert credits_[1, 1] == pytest.approx(1.8 * 0.4**0.2, abs=1e-5)
    assert credits_[3, 3] == pytest.approx(0.8 * 0.3**0.2, abs=1e-5), "another token was likelier: it only decays"
    assert credits_[3, 4] == pytest.approx(0.3**0.2, abs=1e-5)
    assert (2, 2) not in credits_, "decided"


def test_credits_are_forgotten_with_their_block() -> None:
    rule = Credit(layout=LAYOUT, sampling=Sampling(), block_length=1)
    canvas = rule.begin(PROMPT, 2)
    canvas = canvas.apply(rule.step(canvas, belief([(1, 1, 0.4)]), RANDOM))
    canvas = canvas.apply(rule.step(canvas, belief([(2, 2, 0.4)]), RANDOM))
    assert isinstance(canvas.memory, Credits)
    assert [entry[:2] for entry in canvas.memory.entries] == [(2, 2)]


def test_entropy_bound() -> None:
    # sums minus the largest: 0, 0.1, 0.3, 0.8
    entropy_R = np.array([0.1, 0.2, 0.5, 0.9])
    assert [within_entropy(entropy_R, gamma) for gamma in (0.0, 0.05, 0.11, 0.31, 0.79, 0.81)] == [1, 1, 2, 3, 3, 4]


def test_entropy_bounded() -> None:
    rule = EntropyBounded(layout=LAYOUT, sampling=Sampling(), gamma=0.2)
    canvas = rule.begin(PROMPT, 3)
    delta = rule.step(canvas, belief([(1, 1, 0.5), (2, 2, 0.99), (3, 3, 0.6)], mask=9.0), RANDOM)
    assert looks(canvas.apply(delta)) == "5 | ? 2 3", "the mask's share counts for nothing"
