"""From a call of an official block-causal `generate` to the rule, prompt and limits that reproduce it.

The official functions count forwards differently: they prefill and store finished blocks in forwards of their own,
while here both ride along with the next step. `OfficialBlocks.official_forwards` turns our count into theirs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unmask.core.canvas import Canvas, IntArray
from unmask.core.errors import ConfigError, unknown_name
from unmask.decoding.bd3lm_schedule import ScheduledBlocks
from unmask.decoding.editing import EditThresholds, Floor, Llada20, Llada21
from unmask.decoding.fast_dllm_v2 import FastDllmV2, SubBlocks
from unmask.decoding.official import NotReproducedError
from unmask.decoding.rules import Window
from unmask.decoding.sampling import Sampling
from unmask.decoding.sdar import Sdar, SdarSchedule, Strategy

BlockRule = Sdar | Llada20 | Llada21 | FastDllmV2 | ScheduledBlocks
"""The rules of block-causal models that have an official counterpart."""


@dataclass(frozen=True, kw_only=True)
class OfficialBlocks:
    """One call of an official function, in our terms.

    Attributes:
        rule: in parity mode.
        prompt: what the rule begins with; may hold pads in front.
        num_pads: how many; a model must neither see nor count them.
        max_tokens: as many as the official function decides, often more than it shows.
        eos_ids: ids at which the run ends.
        block_size: alignment of the blocks.
        logit_shift: 1 if a row predicts the position after it.
        num_shown: generated tokens that the official function shows at most.
        cut_ids: ids before which both answers are cut for comparison (the official ones keep the first of them).
        prefills: whether it prefills in a forward of its own.
        stores_blocks: whether a forward of its own stores each block (or recomputes the prefix before it).
    """

    rule: BlockRule
    prompt: tuple[int, ...]
    num_pads: int
    max_tokens: int
    eos_ids: frozenset[int]
    block_size: int
    logit_shift: int
    num_shown: int
    cut_ids: frozenset[int]
    prefills: bool
    stores_blocks: bool

    def official_forwards(self, num_forwards: int, canvas: Canvas) -> int:
        """What the official function counts for a run of `num_forwards` that ended with `canvas`.

        One more for a prefill of its own, and one more for each decided block where those are stored one by one.
        """
        blocks = -(-canvas.num_final // self.block_size) - canvas.prompt_length // self.block_size
        return num_forwards + self.prefills + (blocks if self.stores_blocks else 0)

    def comparable(self, generated_ids: IntArray) -> IntArray:
        """The part of a generated text (ours or theirs) that both show: before the first of `cut_ids`."""
        shown = generated_ids[: self.num_shown]
        ends = np.flatnonzero(np.isin(shown, list(self.cut_ids)))
        return shown[: ends[0]] if ends.size else shown


@dataclass(frozen=True, kw_only=True)
class _Call:
    prompt: tuple[int, ...]
    parameters: Mapping[str, Any]
    mask_token_id: int
    eos_ids: frozenset[int]
    pad_token_id: int | None
    editable: bool

    def window(self, size: int, eos_ids: frozenset[int]) -> Window:
        return Window(size=size, mask_token_id=self.mask_token_id, eos_ids=eos_ids, align=size)

    def refuse_other(self, **served: object) -> None:
        """Raises NotReproducedError if a parameter that we honour in one setting only has another."""
        for name, value in served.items():
            if self.parameters.get(name, value) != value:
                raise NotReproducedError(f"{name}={self.parameters[name]!r} is not reproduced; only {value!r} is")


def official_blocks(
    family: str,
    function: str,
    parameters: Mapping[str, Any],
    prompt: Sequence[int],
    *,
    mask_token_id: int,
    eos_ids: frozenset[int],
    pad_token_id: int | None = None,
    editable: bool = False,
) -> OfficialBlocks:
    """Everything needed to reproduce one greedy call of an official function.

    Args:
        family: "sdar", "llada2", "fast_dllm_v2" or "a2d".
        function: its name: "block_diffusion_generate", "generate" or "BD3LMSampler.sample".
        parameters: its arguments by their official names; absent ones have the official defaults.
        prompt: token ids.
        mask_token_id: of the checkpoint.
        eos_ids: of the checkpoint; used where the function takes none of its own.
        pad_token_id: of the checkpoint; needed by BD3LMSampler for prompts that are not whole blocks.
        editable: the checkpoint corrects its own tokens: `generate` is that of LLaDA2.1, else of LLaDA2.0.

    Raises:
        ConfigError: unknown family or function, or a setting that is not reproduced; one line, names it.
    """
    key = f"{family}.{function}"
    if key not in _FUNCTIONS:
        raise unknown_name("block-causal function", key, _FUNCTIONS)
    call = _Call(
        prompt=tuple(prompt),
        parameters=parameters,
        mask_token_id=parameters.get("mask_id", mask_token_id),
        eos_ids=eos_ids,
        pad_token_id=pad_token_id,
        editable=editable,
    )
    return _FUNCTIONS[key](call)


def official_block_rule(
    family: str,
    function: str,
    parameters: Mapping[str, Any],
    *,
    mask_token_id: int,
    eos_ids: frozenset[int],
    editable: bool = False,
) -> BlockRule:
    """The parity rule of an official call, whatever the prompt; see `official_blocks`."""
    return official_blocks(
        family, function, parameters, (), mask_token_id=mask_token_id, eos_ids=eos_ids, editable=editable
    ).rule


def _sdar(call: _Call) -> OfficialBlocks:
    given = call.parameters
    call.refuse_other(temperature=1.0, top_k=0, top_p=1.0)  # a greedy run keeps the confidences of temperature 1
    size, shown = given.get("block_length", 8), given.get("gen_length", 128)
    eos_ids = frozenset(given.get("stopping_criteria_idx") or ())
    schedule = SdarSchedule(
        strategy=Strategy(given.get("remasking_strategy", Strategy.DYNAMIC)),
        num_steps=given.get("denoising_steps", 8),
        threshold=given.get("confidence_threshold", 0.85),
    )
    return OfficialBlocks(
        rule=Sdar(window=call.window(size, eos_ids), sampling=Sampling(), schedule=schedule, parity=True),
        prompt=call.prompt,
        num_pads=0,
        max_tokens=_whole_blocks(len(call.prompt), shown, size),
        eos_ids=eos_ids,
        block_size=size,
        logit_shift=0,
        num_shown=_whole_blocks(len(call.prompt), shown, size),
        cut_ids=eos_ids,
        prefills=len(call.prompt) >= size,
        stores_blocks=True,
    )


def _llada2(call: _Call) -> OfficialBlocks:
    given = call.parameters
    call.refuse_other(temperature=0.0, minimal_topk=1, num_to_transfer=1)
    size, shown = given.get("block_length", 32), given.get("gen_length", 2048)
    eos_ids = frozenset([given["eos_id"]]) if "eos_id" in given else call.eos_ids
    early = given.get("eos_early_stop", False)
    window, sampling = call.window(size, eos_ids), Sampling()
    rule: BlockRule
    if call.editable:
        thresholds = EditThresholds(
            unmask=given.get("threshold", 0.95),
            edit=given.get("editing_threshold", 0.9),
            max_edit_steps=given.get("max_post_steps", 16),
        )
        rule = Llada21(window=window, sampling=sampling, thresholds=thresholds, eos_early_stop=early, parity=True)
    else:
        floor = Floor(threshold=given.get("threshold", 0.95), num_steps=given.get("steps", 32))
        rule = Llada20(window=window, sampling=sampling, floor=floor, eos_early_stop=early, parity=True)
    return OfficialBlocks(
        rule=rule,
        prompt=call.prompt,
        num_pads=0,
        max_tokens=_whole_blocks(len(call.prompt), shown, size),
        eos_ids=frozenset() if call.editable and not early else eos_ids,  # 2.1 does not stop unless told to
        block_size=size,
        logit_shift=0,
        num_shown=shown,
        cut_ids=eos_ids,
        prefills=False,
        stores_blocks=False,
    )


def _fast_dllm_v2(call: _Call) -> OfficialBlocks:
    given = call.parameters
    call.refuse_other(temperature=0, use_block_cache=False)  # the sub-block cache is approximate
    size, num_prompt = given.get("block_size", 32), len(call.prompt)
    if num_prompt == size:
        raise NotReproducedError("the official code does not read a prompt of exactly one block; give another prompt")
    eos_ids = frozenset([given["stop_token"]]) if "stop_token" in given else call.eos_ids
    sub_blocks = SubBlocks(threshold=given.get("threshold", 1), size=given.get("small_block_size", 8))
    end = (num_prompt // size + given["max_new_tokens"] // size) * size
    return OfficialBlocks(
        rule=FastDllmV2(window=call.window(size, eos_ids), sampling=Sampling(), sub_blocks=sub_blocks, parity=True),
        prompt=call.prompt,
        num_pads=0,
        max_tokens=end + 1 - num_prompt,  # the last block, too, is followed by the first token of the next
        eos_ids=eos_ids,
        block_size=size,
        logit_shift=1,
        num_shown=end + 1 - num_prompt,
        cut_ids=eos_ids,
        prefills=num_prompt > size and num_prompt % size > 0,
        stores_blocks=False,
    )


def _bd3lm(call: _Call) -> OfficialBlocks:
    given = call.parameters
    call.refuse_other(temperature=0.0, remasking="low_confidence", cfg_scale=0.0, stochastic_transfer=False)
    size, shown, num_prompt = given.get("block_size", 32), given.get("max_new_tokens", 128), len(call.prompt)
    num_pads = -num_prompt % size
    if num_pads and call.pad_token_id is None:
        raise ConfigError(f"a prompt of {num_prompt} tokens is padded to whole blocks of {size}: give pad_token_id")
    steps = given.get("steps_per_block") or -(-given.get("steps", 128) // -(-shown // size))
    return OfficialBlocks(
        rule=ScheduledBlocks(window=call.window(size, call.eos_ids), sampling=Sampling(), num_steps=steps, parity=True),
        prompt=(call.pad_token_id or 0,) * num_pads + call.prompt,
        num_pads=num_pads,
        max_tokens=shown,
        eos_ids=call.eos_ids,
        block_size=size,
        logit_shift=int(given.get("right_shift_logits", False)),
        num_shown=shown,
        cut_ids=call.eos_ids,
        prefills=False,
        stores_blocks=True,
    )


def _whole_blocks(num_prompt: int, num_new: int, size: int) -> int:
    """Tokens from the end of the prompt to the end of the block that holds the last one asked for."""
    return -(-(num_prompt + num_new) // size) * size - num_prompt


_FUNCTIONS: Mapping[str, Callable[[_Call], OfficialBlocks]] = {
    "sdar.block_diffusion_generate": _sdar,
    "llada2.generate": _llada2,
    "fast_dllm_v2.generate": _fast_dllm_v2,
    "a2d.BD3LMSampler.sample": _bd3lm,
}

BLOCK_FUNCTIONS = frozenset(_FUNCTIONS)
"""`family.function` of every call that `official_blocks` knows."""
