"""The shared pieces of the rules of fully bidirectional models, by hand."""

from typing import Any

import numpy as np
import pytest
import torch

from tests.decoding.canvas_examples import EOS, LAYOUT, MASK, looks
from unmask.core.errors import ConfigError
from unmask.decoding.adaptive import Credit, EntropyBounded, Hierarchical
from unmask.decoding.dream import Dream, DreamBlocks, DreamThreshold
from unmask.decoding.fixed_canvas import FixedCanvas, Turn, best, current_turn, decide, guided, probability, wanted
from unmask.decoding.low_confidence import LowConfidence
from unmask.decoding.parallel import Parallel
from unmask.decoding.remask import Remask
from unmask.decoding.sampling import Sampling


def at(*positions: int) -> np.ndarray:
    return np.array(positions, np.int64)


def test_layout_holds_prompt_and_answer() -> None:
    canvas = LAYOUT.lay_out(at(5, MASK), 3)
    assert looks(canvas) == "5 0 | ? ? ?", "a mask in the prompt is a token like any other"
    assert (canvas.window_start, canvas.prompt_length, canvas.limit) == (0, 2, 5)


def test_a_text_with_holes_is_all_answer() -> None:
    canvas = LAYOUT.with_holes(at(5, 6, 7, 8), np.array([False, True, False, True]))
    assert looks(canvas) == "5 | ? 7 ?"
    assert (canvas.prompt_length, canvas.limit) == (0, 4)
    with pytest.raises(ConfigError, match="nothing to fill in"):
        LAYOUT.with_holes(at(5), np.array([False]))


def test_nothing_after_a_decided_eos_is_wanted() -> None:
    canvas = LAYOUT.lay_out(at(EOS), 5)
    assert wanted(canvas, LAYOUT.eos_ids).tolist() == [1, 2, 3, 4, 5], "an EOS of the prompt ends nothing"
    assert wanted(canvas, LAYOUT.eos_ids, 3).tolist() == [1, 2]
    canvas = canvas.apply(decide(canvas, at(4), at(EOS), LAYOUT))
    assert looks(canvas) == "9 | ? ? ? 9 ?"
    assert wanted(canvas, LAYOUT.eos_ids).tolist() == [1, 2, 3]
    assert wanted(canvas, frozenset()).tolist() == [1, 2, 3, 5]
    canvas = canvas.apply(decide(canvas, at(1, 2, 3), at(4, 4, 4), LAYOUT))
    assert looks(canvas) == "9 4 4 4 9 | ?", "final up to the EOS"


def test_deciding_keeps_predicted_masks_open_until_nothing_follows() -> None:
    canvas = LAYOUT.lay_out(at(5), 3)
    canvas = canvas.apply(decide(canvas, at(1, 2), at(MASK, 7), LAYOUT))
    assert looks(canvas) == "5 | ? 7 ?"
    same = canvas.apply(decide(canvas, at(2), at(8), LAYOUT))
    assert looks(same) == "5 | ? 7 ?", "a closed position keeps its token"
    assert looks(canvas.apply(decide(canvas, at(3), at(8), LAYOUT, closing=4))) == "5 0 7 8 |"
    held = canvas.apply(decide(canvas, at(1, 3), at(8, 8), LAYOUT, more=True))
    assert looks(held) == "5 8 7 | 8", "not everything is final while steps follow"


def test_turns_go_from_block_to_block() -> None:
    canvas = LAYOUT.lay_out(at(5, 5), 5)

    def halves(num_open: int) -> tuple[int, ...]:
        return (num_open, 0)

    assert current_turn(canvas, 2, halves) == Turn(end=4, counts=(2, 0))
    canvas = canvas.apply(decide(canvas, at(2, 3), at(1, 1), LAYOUT, memory=Turn(end=4, counts=(0,))))
    assert current_turn(canvas, 2, halves) == Turn(end=6, counts=(2, 0)), "a decided block's turn is over"
    assert current_turn(canvas, 2, halves, idle=True) == Turn(end=4, counts=(0,))
    canvas = canvas.apply(decide(canvas, at(4, 5), at(1, 1), LAYOUT, memory=Turn(end=6, counts=())))
    assert current_turn(canvas, 2, halves) == Turn(end=7, counts=(1, 0)), "the last block is shorter"


def test_best_takes_the_lowest_of_equals() -> None:
    assert best(np.array([0.5, 0.9, 0.9, 0.1]), 2).tolist() == [1, 2]
    assert best(np.array([0.5, 0.5, 0.5]), 2).tolist() == [0, 1]
    assert best(np.array([0.5, 0.7]), 5).tolist() == [1, 0]
    assert best(np.array([0.1, 0.9, 0.5]), 2, parity=True).tolist() == [1, 2]


def test_late_tokens_have_no_probability_and_the_others_share_theirs() -> None:
    logits_RV = torch.tensor([[0.25, 0.25, 0.5], [0.5, 0.25, 0.25]]).log()
    plain = probability(logits_RV, at(2, 1), dtype=torch.float64)
    assert plain == pytest.approx([0.5, 0.25])
    late = probability(logits_RV, at(2, 1), (2,), dtype=torch.float64)
    assert late == pytest.approx([0.0, 1 / 3])
    assert logits_RV.isfinite().all(), "the belief is left as it was"


def test_guidance() -> None:
    conditional, unconditional = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 4.0]])
    assert guided(conditional, unconditional, 1.0).tolist() == [[1.5, 0.0]], "twice the one minus the other"
    torch.testing.assert_close(guided(conditional, unconditional, 0.0), conditional)


def test_parity_bans_nothing_and_stops_nowhere() -> None:
    assert (LAYOUT.banned(parity=True), LAYOUT.banned(parity=False)) == (None, MASK)
    assert (LAYOUT.stops(parity=True), LAYOUT.stops(parity=False)) == (frozenset(), {EOS})
    assert FixedCanvas(mask_token_id=3).stops(parity=False) == frozenset()


@pytest.mark.parametrize(
    ("make", "fields", "shown"),
    [
        (LowConfidence, {"block_length": 0}, "block_length must be at least 1, got 0"),
        (LowConfidence, {"steps_per_block": -1}, "steps_per_block"),
        (LowConfidence, {"order": "low_confidense"}, "did you mean 'low_confidence'"),
        (LowConfidence, {"schedule": "cosine"}, "even, linear"),
        (Parallel, {"block_length": 0, "threshold": 0.9}, "block_length"),
        (Dream, {"algorithm": "entropie"}, "did you mean 'entropy'"),
        (Dream, {"eps": 0.0}, "eps must be in"),
        (Dream, {"steps": -1}, "steps"),
        (DreamThreshold, {"steps": 0}, "steps"),
        (DreamBlocks, {"block_length": 0}, "block_length"),
        (Hierarchical, {"block_length": 0}, "block_length"),
        (Credit, {"block_length": 0}, "block_length"),
        (EntropyBounded, {"block_length": 0}, "block_length"),
        (Remask, {"strategy": "loop"}, "cap, confidence, rescale"),
    ],
)
def test_impossible_settings_are_refused(make: type[Any], fields: dict[str, Any], shown: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make(layout=LAYOUT, sampling=Sampling(), **fields)
    assert shown in str(raised.value)
