"""The reveal schedule and the rule that follows it, worked by hand."""

import numpy as np
import pytest

from tests.decoding.block_examples import EOS, MASK, after, looks, window
from unmask.core.errors import ConfigError
from unmask.decoding.bd3lm_schedule import ScheduledBlocks, reveal_counts
from unmask.decoding.rules import is_finished
from unmask.decoding.sampling import Sampling


@pytest.mark.parametrize(
    ("num_masks", "num_steps", "wanted"),
    [
        (4, 1, (4,)),
        (4, 2, (2, 2)),
        (4, 4, (1, 1, 1, 1)),  # 4/4, 3/3, 2/2, 1
        (8, 3, (3, 2, 3)),  # 8/3 is nearer 3; 5/2 is rounded to even; the rest
        (2, 4, (1, 1)),  # 2/4 is rounded to 0; 2/3 to 1; 1/2 to 0; the rest: two forwards are saved
        (1, 5, (1,)),
    ],
)
def test_counts_by_hand(num_masks: int, num_steps: int, wanted: tuple[int, ...]) -> None:
    assert reveal_counts(num_masks, num_steps) == wanted


def test_counts_always_add_up() -> None:
    for num_masks in range(1, 40):
        for num_steps in (1, 2, 3, 5, 8, 13, 32):
            counts = reveal_counts(num_masks, num_steps)
            assert sum(counts) == num_masks
            assert all(counts)
            assert len(counts) <= num_steps


def rule(*, parity: bool = False) -> ScheduledBlocks:
    return ScheduledBlocks(window=window(), sampling=Sampling(), num_steps=2, parity=parity)


def test_the_most_confident_are_decided() -> None:
    decoder = rule()
    canvas = decoder.begin(np.array([5, 6, 7, 8]), 20)
    canvas = after(decoder, canvas, (4, 1, 0.2), (5, 2, 0.9), (6, 3, 0.3), (7, 4, 0.3))
    assert looks(canvas) == "5 6 7 8 | ?0 2 3 ?0"
    canvas = after(decoder, canvas, (4, 1, 0.2), (7, 4, 0.3))
    assert looks(canvas) == "5 6 7 8 1 2 3 4 | ?0 ?0 ?0 ?0"


def test_counts_are_of_the_positions_that_will_be_decided() -> None:
    """Two steps for the two positions before the limit, not for the four of the block."""
    decoder = rule()
    canvas = decoder.begin(np.array([5, 6, 7, 8]), 2)
    canvas = after(decoder, canvas, (4, 1, 0.5), (5, 2, 0.9))
    assert looks(canvas) == "5 6 7 8 | ?0 2 ?0 ?0"
    assert looks(after(decoder, canvas, (4, 1, 0.5))) == "5 6 7 8 1 2 | ?0 ?0"


def test_parity_shortens_the_last_block_and_ends_after_an_eos() -> None:
    decoder = rule(parity=True)
    canvas = decoder.begin(np.array([5, 6, 7, 8]), 6)
    rows = ((4, EOS, 0.8), (5, 2, 0.9), (6, 3, 0.3), (7, 4, 0.3))
    canvas = after(decoder, canvas, *rows, tempting=False)
    assert looks(canvas) == "5 6 7 8 | 9 2 ?0 ?0"
    canvas = after(decoder, canvas, *rows[2:], tempting=False)
    assert looks(canvas) == "5 6 7 8 9 2 3 4 | ?0 ?0"
    assert is_finished(canvas, frozenset([EOS]))
    assert looks(decoder.begin(np.array([5, 6, 7, 8]), 2)) == "5 6 7 8 | ?0 ?0"


def test_parity_leaves_a_predicted_mask_until_the_schedule_is_over() -> None:
    decoder = rule(parity=True)
    canvas = decoder.begin(np.array([5, 6, 7, 8]), 2)
    canvas = after(decoder, canvas, (4, MASK, 0.9), (5, 2, 0.8), tempting=False)
    assert looks(canvas) == "5 6 7 8 | ?0 ?0"
    canvas = after(decoder, canvas, (4, MASK, 0.7), (5, 2, 0.8), tempting=False)
    assert looks(canvas) == "5 6 7 8 | ?0 2"
    assert looks(after(decoder, canvas, (4, 1, 0.7))) == "5 6 7 8 1 2 |"


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_steps"):
        ScheduledBlocks(window=window(), sampling=Sampling(), num_steps=0)
