"""Calls of the official functions, read as ours."""

from typing import Any

import numpy as np
import pytest

from unmask.core.canvas import Canvas
from unmask.core.errors import ConfigError
from unmask.decoding.bd3lm_schedule import ScheduledBlocks
from unmask.decoding.editing import Floor, Llada20, Llada21
from unmask.decoding.official_blocks import OfficialBlocks, official_block_rule, official_blocks
from unmask.decoding.sdar import Sdar, Strategy

MASK, EOS, PAD = 100, 101, 102


def read(family: str, function: str, prompt: int = 5, *, editable: bool = False, **parameters: Any) -> OfficialBlocks:
    return official_blocks(
        family,
        function,
        parameters,
        tuple(range(prompt)),
        mask_token_id=MASK,
        eos_ids=frozenset([EOS]),
        pad_token_id=PAD,
        editable=editable,
    )


def ended_at(num_final: int, prompt: int) -> Canvas:
    return Canvas(
        ids_L=np.zeros(num_final, np.int64),
        open_L=np.zeros(num_final, np.bool_),
        prompt_length=prompt,
        num_final=num_final,
        window_start=0,
        limit=num_final,
    )


def test_sdar_counts_prefill_and_stores() -> None:
    run = read("sdar", "block_diffusion_generate", prompt=9, gen_length=10, block_length=4)
    assert run.max_tokens == run.num_shown == 11  # to the end of the block of position 18
    assert run.official_forwards(6, ended_at(20, prompt=9)) == 6 + 1 + 3  # blocks 2, 3 and 4
    short = read("sdar", "block_diffusion_generate", prompt=3, gen_length=1, block_length=4)
    assert short.official_forwards(1, ended_at(4, prompt=3)) == 2  # nothing to prefill


def test_official_defaults() -> None:
    rule = official_block_rule("sdar", "block_diffusion_generate", {}, mask_token_id=MASK, eos_ids=frozenset([EOS]))
    assert isinstance(rule, Sdar)
    assert (rule.window.size, rule.schedule.num_steps, rule.schedule.strategy) == (8, 8, Strategy.DYNAMIC)
    assert rule.window.eos_ids == frozenset()  # it stops at nothing unless told to
    old, new = read("llada2", "generate"), read("llada2", "generate", editable=True)
    assert isinstance(old.rule, Llada20)
    assert old.rule.floor == Floor(threshold=0.95, num_steps=32)
    assert old.eos_ids == frozenset([EOS])
    assert isinstance(new.rule, Llada21)
    assert (new.rule.thresholds.unmask, new.rule.thresholds.edit) == (0.95, 0.9)
    assert new.eos_ids == frozenset()
    assert read("llada2", "generate", editable=True, eos_early_stop=True).eos_ids == frozenset([EOS])


def test_fast_dllm_v2_decides_one_token_more_than_its_blocks() -> None:
    run = read("fast_dllm_v2", "generate", prompt=13, max_new_tokens=20, block_size=8, threshold=0.9)
    assert run.max_tokens == (1 + 2) * 8 + 1 - 13
    assert run.official_forwards(7, ended_at(25, prompt=13)) == 8
    assert not read("fast_dllm_v2", "generate", prompt=16, max_new_tokens=8, block_size=8).prefills


def test_bd3lm_pads_and_splits_its_steps_over_the_blocks() -> None:
    run = read("a2d", "BD3LMSampler.sample", prompt=6, max_new_tokens=16, block_size=4, steps=10)
    assert run.prompt == (PAD, PAD, 0, 1, 2, 3, 4, 5)
    assert isinstance(run.rule, ScheduledBlocks)
    assert run.rule.num_steps == 3
    assert run.official_forwards(12, ended_at(24, prompt=8)) == 16
    assert read("a2d", "BD3LMSampler.sample", steps_per_block=7).rule == ScheduledBlocks(
        window=run.rule.window.__class__(size=32, mask_token_id=MASK, eos_ids=frozenset([EOS]), align=32),
        sampling=run.rule.sampling,
        num_steps=7,
        parity=True,
    )


def test_texts_are_compared_up_to_the_first_eos() -> None:
    run = read("llada2", "generate", gen_length=4)
    assert run.comparable(np.array([1, 2, EOS, 4])).tolist() == [1, 2]
    assert run.comparable(np.array([1, 2, 3, 4, EOS])).tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("family", "function", "parameters", "says"),
    [
        ("sdr", "block_diffusion_generate", {}, "did you mean 'sdar.block_diffusion_generate'"),
        ("sdar", "block_diffusion_generate", {"temperature": 0.5}, "temperature=0.5"),
        ("llada2", "generate", {"num_to_transfer": 2}, "num_to_transfer=2"),
        ("fast_dllm_v2", "generate", {"max_new_tokens": 8, "use_block_cache": True}, "use_block_cache=True"),
        ("fast_dllm_v2", "generate", {"max_new_tokens": 8, "block_size": 5}, "exactly one block"),
        ("a2d", "BD3LMSampler.sample", {"cfg_scale": 1.0}, "cfg_scale=1.0"),
    ],
)
def test_what_cannot_be_reproduced_is_refused(
    family: str, function: str, parameters: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        read(family, function, **parameters)


def test_padding_needs_a_pad() -> None:
    with pytest.raises(ConfigError, match="pad_token_id"):
        official_blocks("a2d", "BD3LMSampler.sample", {}, (1,), mask_token_id=MASK, eos_ids=frozenset())
