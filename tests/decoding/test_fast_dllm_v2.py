"""Fast-dLLM v2, worked by hand on blocks of 4 with sub-blocks of 2."""

import numpy as np
import pytest

from tests.decoding.block_examples import EOS, MASK, after, looks, window
from unmask.core.errors import ConfigError
from unmask.decoding.fast_dllm_v2 import FastDllmV2, SubBlocks
from unmask.decoding.rules import is_finished
from unmask.decoding.sampling import Sampling


def rule(threshold: float = 0.8, *, parity: bool = False) -> FastDllmV2:
    sub_blocks = SubBlocks(threshold=threshold, size=2)
    return FastDllmV2(window=window(), sampling=Sampling(), sub_blocks=sub_blocks, parity=parity)


def test_a_whole_prompt_first_says_the_first_token() -> None:
    decoder = rule()
    canvas = decoder.begin(np.array([5, 6, 7, 8]), 20)
    assert looks(canvas) == "5 6 7 8 |"
    assert decoder.reads(canvas).causal_R.tolist() == [True]
    canvas = after(decoder, canvas, (4, 1, 0.2))  # taken whatever its confidence
    assert looks(canvas) == "5 6 7 8 1 | ?0 ?0 ?0"
    canvas = after(decoder, canvas, (5, 2, 0.3))  # the rest of the first sub-block alone
    canvas = after(decoder, canvas, (6, 3, 0.9), (7, 4, 0.85))
    assert looks(canvas) == "5 6 7 8 1 2 3 4 |"
    assert (canvas.window_start, canvas.block) == (8, 1)
    assert looks(after(decoder, canvas, (8, 6, 0.2))) == "5 6 7 8 1 2 3 4 6 | ?0 ?0 ?0"


def test_a_prompts_tail_shares_its_block() -> None:
    decoder = rule()
    canvas = decoder.begin(np.array([5, 6, 7, 8, 1]), 20)
    assert looks(canvas) == "5 6 7 8 1 | ?0 ?0 ?0"
    assert looks(after(decoder, canvas, (5, 2, 0.3))) == "5 6 7 8 1 2 | ?0 ?0"


def test_the_threshold_is_strict() -> None:
    """With 1 not even certainty passes: one position per forward, the first of equals."""
    decoder = rule(threshold=1.0)
    canvas = decoder.begin(np.array([5, 6]), 20)
    canvas = after(decoder, canvas, (2, 3, 1.0), (3, 4, 1.0), tempting=False)
    assert looks(canvas) == "5 6 3 | ?0"


def test_an_eos_as_first_token_ends_the_answer() -> None:
    decoder = rule()
    canvas = after(decoder, decoder.begin(np.array([5, 6, 7, 8]), 20), (4, EOS, 0.2))
    assert looks(canvas) == "5 6 7 8 9 | ?0 ?0 ?0"
    assert is_finished(canvas, frozenset([EOS]))


def test_parity_never_spins_on_a_predicted_mask() -> None:
    decoder = rule(parity=True)
    canvas = decoder.begin(np.array([5, 6]), 20)
    mixed = after(decoder, canvas, (2, MASK, 0.9), (3, 4, 0.85), tempting=False)
    assert looks(mixed) == "5 6 | ?0 4"
    assert looks(after(decoder, mixed, (2, 3, 0.3))) == "5 6 3 4 |"  # nothing but the mask passes: banned


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="do not divide"):
        FastDllmV2(window=window(), sampling=Sampling(), sub_blocks=SubBlocks(size=3))
