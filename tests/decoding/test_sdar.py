"""SDAR's strategies, worked by hand on blocks of 4."""

import numpy as np
import pytest
import torch

from tests.decoding.block_examples import EOS, MASK, RANDOM, VOCAB, after, looks, window
from unmask.core.canvas import Canvas
from unmask.core.errors import ConfigError
from unmask.decoding.belief import Belief
from unmask.decoding.rules import is_finished
from unmask.decoding.sampling import Sampling
from unmask.decoding.sdar import SDAR_B4_QUALITY, Sdar, SdarSchedule, Strategy


def rule(strategy: Strategy = Strategy.DYNAMIC, *, num_steps: int = 4, parity: bool = False) -> Sdar:
    schedule = SdarSchedule(strategy=strategy, num_steps=num_steps)
    return Sdar(window=window(), sampling=Sampling(), schedule=schedule, parity=parity)


def start(decoder: Sdar) -> Canvas:
    """Five prompt tokens: the last one shares the second block with three masks."""
    canvas = decoder.begin(np.array([5, 6, 7, 8, 1]), 20)
    assert looks(canvas) == "5 6 7 8 1 | ?0 ?0 ?0"
    assert canvas.window_start == 4
    return canvas


def test_dynamic_takes_all_above_the_threshold() -> None:
    decoder = rule()
    canvas = after(decoder, start(decoder), (5, 2, 0.9), (6, 3, 0.5), (7, 4, 0.86))
    assert looks(canvas) == "5 6 7 8 1 2 | ?0 4"
    canvas = after(decoder, canvas, (6, 3, 0.2))  # below it, but the quota of one has to be filled
    assert looks(canvas) == "5 6 7 8 1 2 3 4 | ?0 ?0 ?0 ?0"


def test_dynamic_falls_back_to_the_quota_if_too_few_are_above() -> None:
    decoder = rule(num_steps=2)  # two per step
    canvas = after(decoder, start(decoder), (5, 2, 0.3), (6, 3, 0.99), (7, 4, 0.4))
    assert looks(canvas) == "5 6 7 8 1 | ?0 3 4"


def test_static_takes_its_quota_and_no_more() -> None:
    decoder = rule(Strategy.STATIC, num_steps=3)  # quotas 2, 1, 1
    canvas = after(decoder, start(decoder), (5, 2, 0.99), (6, 3, 0.98), (7, 4, 0.97))
    assert looks(canvas) == "5 6 7 8 1 2 3 | ?0"


def test_equals_are_taken_from_the_left() -> None:
    decoder = Sdar(window=window(), sampling=Sampling(), schedule=SDAR_B4_QUALITY)
    assert looks(after(decoder, start(decoder), *[(p, 2, 0.5) for p in (5, 6, 7)])) == "5 6 7 8 1 2 | ?0 ?0"


def test_sequential_goes_from_left_to_right() -> None:
    decoder = rule(Strategy.SEQUENTIAL, num_steps=2)
    canvas = after(decoder, start(decoder), (5, 2, 0.2), (6, 3, 0.3), (7, 4, 0.99))
    assert looks(canvas) == "5 6 7 8 1 2 3 | ?0"


def test_entropy_bounded_stops_before_the_bound() -> None:
    """Entropies 0, ln 2, ln 3: the first two cost 0 besides their largest, all three would cost ln 2 > 0.35."""
    decoder = rule(Strategy.ENTROPY_BOUNDED)
    canvas = start(decoder)
    logits_RV = torch.full((3, VOCAB), -torch.inf)
    logits_RV[0, 2:5] = 0.0
    logits_RV[1, 6] = 0.0
    logits_RV[2, 7:9] = 0.0
    reads = decoder.reads(canvas)
    says = Belief(logits_RV=logits_RV, predicts_R=reads.predicts_R, causal_R=reads.causal_R)
    assert looks(canvas.apply(decoder.step(canvas, says, RANDOM))) == "5 6 7 8 1 | ?0 6 7"


def test_an_eos_ends_the_default_at_once_and_parity_after_its_block() -> None:
    rows = ((5, EOS, 0.9), (6, 3, 0.5), (7, 4, 0.4))
    canvas = after(rule(), start(rule()), *rows)
    assert looks(canvas) == "5 6 7 8 1 9 | ?0 ?0"
    assert is_finished(canvas, frozenset([EOS]))
    official = rule(parity=True)
    canvas = after(official, start(official), *rows, tempting=False)
    assert looks(canvas) == "5 6 7 8 1 | 9 ?0 ?0"
    assert not is_finished(canvas, frozenset([EOS]))


def test_nothing_behind_a_decided_eos_is_decided() -> None:
    decoder = rule()
    canvas = after(decoder, start(decoder), (5, 2, 0.5), (6, EOS, 0.9), (7, 4, 0.4))
    assert looks(canvas) == "5 6 7 8 1 | ?0 9 ?0"
    assert looks(after(decoder, canvas, (5, 2, 0.5))) == "5 6 7 8 1 2 9 | ?0"
    official = rule(parity=True)
    assert official.reads(canvas).predicts_R.tolist() == [5, 7]


def test_an_eos_of_the_prompt_ends_nothing() -> None:
    decoder = rule()
    canvas = decoder.begin(np.array([5, 6, 7, 8, EOS]), 20)
    assert decoder.reads(canvas).predicts_R.tolist() == [5, 6, 7]


def test_a_quota_past_the_last_mask() -> None:
    """Two per step, one mask left: the default decides it, the official code overwrites a decided token as well."""
    for parity, wanted in ((False, "5 6 7 8 1 2 3 4 | ?0 ?0 ?0 ?0"), (True, "5 6 7 8 1 2 3 7 | ?0 ?0 ?0 ?0")):
        decoder = rule(Strategy.STATIC, num_steps=2, parity=parity)
        canvas = after(decoder, start(decoder), (5, 2, 0.2), (6, 3, 0.9), (7, 4, 0.8), tempting=False)
        rows = ((5, 2, 0.9), (6, 8, 0.9), (7, 7, 0.9)) if parity else ((5, 2, 0.9),)
        assert looks(after(decoder, canvas, *rows, tempting=False)) == wanted


def test_nothing_past_the_limit_is_decided() -> None:
    decoder = rule(Strategy.SEQUENTIAL, num_steps=1)
    canvas = decoder.begin(np.array([5, 6, 7, 8, 1]), 2)
    canvas = after(decoder, canvas, (5, 2, 0.9), (6, 3, 0.9))
    assert looks(canvas) == "5 6 7 8 1 2 3 | ?0"
    assert is_finished(canvas, frozenset([EOS]))


def test_parity_lets_the_mask_be_predicted_until_the_steps_are_over() -> None:
    decoder = rule(Strategy.STATIC, num_steps=1, parity=True)
    canvas = after(decoder, start(decoder), (5, 2, 0.9), (6, 3, 0.9), (7, MASK, 0.9), tempting=False)
    assert looks(canvas) == "5 6 7 8 1 | 2 3 ?0"
    assert looks(after(decoder, canvas, (7, 4, 0.9))) == "5 6 7 8 1 2 3 4 | ?0 ?0 ?0 ?0"


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_steps"):
        SdarSchedule(num_steps=0)
    with pytest.raises(ConfigError, match="entropy_bounded"):
        rule(Strategy.ENTROPY_BOUNDED, parity=True)
