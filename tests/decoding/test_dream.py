"""Dream's rule and Fast-dLLM's two versions of it by hand."""

import numpy as np
import pytest
import torch

from tests.decoding.canvas_examples import LAYOUT, belief, looks
from unmask.core.errors import ConfigError
from unmask.decoding.dream import (
    Dream,
    DreamBlocks,
    DreamThreshold,
    confidence_of,
    filtered,
    perturbed,
    reveal_shares,
)
from unmask.decoding.randomness import RandomStream
from unmask.decoding.sampling import Sampling

RANDOM = RandomStream(seed=1)
GREEDY = Sampling()


def counts(num_masks: int, steps: int) -> list[int]:
    """Decisions per step: int(masks left * share)."""
    made: list[int] = []
    for share in reveal_shares(steps, 1e-3):
        made.append(int(torch.tensor(num_masks - sum(made), dtype=torch.float32) * share))
    return made


def test_schedule() -> None:
    assert counts(8, 8) == [0, 1, 1, 1, 1, 1, 1, 2]
    assert counts(16, 8) == [1, 2, 2, 2, 2, 2, 2, 3]
    assert counts(64, 16) == [3, *[4] * 14, 5]
    assert counts(256, 128) == [1, *[2] * 126, 3]
    assert counts(512, 512) == [0, *[1] * 510, 2]


def test_filter_keeps_the_token_that_crosses() -> None:
    logits_RV = torch.tensor([[0.15, 0.5, 0.05, 0.3]]).log()

    def kept(sampling: Sampling) -> list[float]:
        return filtered(logits_RV.clone(), sampling).softmax(-1)[0].tolist()

    assert kept(Sampling(top_p=0.9)) == pytest.approx([0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95])
    assert kept(Sampling(top_k=2)) == pytest.approx([0, 0.625, 0, 0.375]), "at temperature 0 too"
    assert kept(Sampling(top_p=0.1)) == pytest.approx([0, 1, 0, 0])
    sharper = [share**2 for share in (0.15, 0.5, 0.05, 0.3)]
    assert kept(Sampling(temperature=0.5)) == pytest.approx([share / sum(sharper) for share in sharper])


def test_confidences() -> None:
    logits_RV = torch.tensor([[0.5, 0.3, 0.2]]).log()
    ids_R = np.array([1])
    assert confidence_of(logits_RV, ids_R, "maskgit_plus") == pytest.approx([0.3])
    assert confidence_of(logits_RV, ids_R, "topk_margin") == pytest.approx([0.2])
    nats = 0.5 * np.log(0.5) + 0.3 * np.log(0.3) + 0.2 * np.log(0.2)
    assert confidence_of(logits_RV, ids_R, "entropy") == pytest.approx([nats], abs=1e-6)


def test_positions_drawn_in_proportion() -> None:
    confidence_R = np.log(np.array([0.7, 0.2, 0.1]))
    rng = np.random.default_rng(0)
    firsts = [int(perturbed(confidence_R, 1.0, rng.random(3).tolist()).argmax()) for _ in range(4000)]
    shares = np.bincount(firsts) / len(firsts)
    assert shares == pytest.approx([0.7, 0.2, 0.1], abs=0.03)
    assert perturbed(confidence_R, 1.0, [0.0, 0.5, 0.999]).argmax() == 0, "a draw of 0 overflows nothing"


def test_steps_that_decide_nothing_are_skipped() -> None:
    rows = [(1, 1, 0.5), (2, 2, 0.9), (3, 3, 0.6), (4, 4, 0.7)]
    for parity, then in ((False, "5 | ? 2 ? ?"), (True, "5 | ? ? ? ?")):
        rule = Dream(layout=LAYOUT, sampling=GREEDY, parity=parity)
        canvas = rule.begin(np.array([5]), 4)
        assert rule.reads(canvas).predicts_R.tolist() == [1, 2, 3, 4]
        assert looks(canvas.apply(rule.step(canvas, belief(rows), RANDOM))) == then


def test_the_last_step_takes_all() -> None:
    rule = Dream(layout=LAYOUT, sampling=GREEDY, steps=1)
    canvas = rule.begin(np.array([5]), 2)
    assert looks(canvas.apply(rule.step(canvas, belief([(1, 1, 0.2), (2, 2, 0.2)]), RANDOM))) == "5 1 2 |"


def test_threshold_carries_what_it_leaves() -> None:
    rule = DreamThreshold(layout=LAYOUT, sampling=GREEDY, steps=2, threshold=0.8)
    canvas = rule.begin(np.array([5]), 6)
    rows = [(1, 1, 0.9), (2, 2, 0.95), (3, 3, 0.7), (4, 4, 0.3), (5, 5, 0.3), (6, 6, 0.3)]
    canvas = canvas.apply(rule.step(canvas, belief(rows), RANDOM))
    assert looks(canvas) == "5 1 2 | ? ? ? ?", "a share is 3, of which one is left"
    canvas = canvas.apply(rule.step(canvas, belief([(p, p, 0.85 + p / 100) for p in (3, 4, 5, 6)]), RANDOM))
    assert looks(canvas) == "5 1 2 3 4 5 6 |", "3 and the one left"


def test_a_block_begins_with_its_first_position() -> None:
    rule = DreamBlocks(layout=LAYOUT, sampling=GREEDY, block_length=3, threshold=0.8)
    canvas = rule.begin(np.array([5]), 5)
    assert rule.reads(canvas).predicts_R.tolist() == [1]
    canvas = canvas.apply(rule.step(canvas, belief([(1, 1, 0.2)]), RANDOM))
    assert looks(canvas) == "5 1 | ? ? ? ?"
    assert rule.reads(canvas).predicts_R.tolist() == [2, 3]
    canvas = canvas.apply(rule.step(canvas, belief([(2, 2, 0.3), (3, 3, 0.4)]), RANDOM))
    assert looks(canvas) == "5 1 | ? 3 ? ?"
    canvas = canvas.apply(rule.step(canvas, belief([(2, 2, 0.3)]), RANDOM))
    assert rule.reads(canvas).predicts_R.tolist() == [4]


def test_scheduled_blocks_start_at_their_second_step() -> None:
    rule = DreamBlocks(layout=LAYOUT, sampling=GREEDY, block_length=4, threshold=None, steps_per_block=2)
    canvas = rule.begin(np.array([5]), 4)
    canvas = canvas.apply(rule.step(canvas, belief([(1, 1, 0.2)]), RANDOM))
    canvas = canvas.apply(rule.step(canvas, belief([(2, 2, 0.3), (3, 3, 0.4), (4, 4, 0.3)]), RANDOM))
    assert looks(canvas) == "5 1 2 3 4 |"
    with pytest.raises(ConfigError, match="steps_per_block"):
        DreamBlocks(layout=LAYOUT, sampling=GREEDY, threshold=None)
