"""From a row of a recorded `generate` case to the call of ours that reproduces it."""

from dataclasses import dataclass, replace

import numpy as np

from unmask.cache.approximate import Reuse
from unmask.core.canvas import Canvas
from unmask.core.errors import CheckpointError, unknown_name
from unmask.decoding.fixed_canvas import FixedCanvas
from unmask.decoding.low_confidence import LowConfidence
from unmask.decoding.official import (
    FIXED_CANVAS_FUNCTIONS,
    NotReproducedError,
    official_cache,
    official_length,
    official_logit_shift,
    official_rule,
)
from unmask.decoding.official_blocks import BLOCK_FUNCTIONS, OfficialBlocks, official_blocks
from unmask.decoding.random_keep import RandomKeep
from unmask.decoding.randomness import Purpose, RandomStream
from unmask.decoding.rules import DecodingRule, visible_answer
from unmask.decoding.sampling import Sampling
from unmask.models.config import Traits
from unmask.verify.folders import Case, CaseFolder
from unmask.verify.renoise import RENOISE_FUNCTIONS, renoise_call
from unmask.verify.running import Call

_EDITING_REFERENCE = "LLaDA2.1"
_NOBODY: frozenset[int] = frozenset()


def num_rows(case: Case) -> int:
    """How many prompts a `generate` case has."""
    return len(case["output_ids"])


def make_call(folder: CaseFolder, case: Case, row: int, traits: Traits) -> Call:
    """One row of a case, alone and without its padding (the official code pads and masks).

    Args:
        folder: where the case stands.
        case: of kind "generate".
        row: index of the prompt.
        traits: of the loaded checkpoint.

    Raises:
        ConfigError: the function is unknown.
        NotReproducedError: a documented quirk of the official code that we do not reproduce.
    """
    key = f"{folder.family}.{case['function']}"
    if key in BLOCK_FUNCTIONS:
        return _block_call(folder, case, row, traits)
    if key in FIXED_CANVAS_FUNCTIONS:
        return _fixed_call(folder, case, row, traits)
    if key in RENOISE_FUNCTIONS:
        return renoise_call(case, traits)
    every = {*BLOCK_FUNCTIONS, *FIXED_CANVAS_FUNCTIONS, *RENOISE_FUNCTIONS}
    raise unknown_name("official function", key, [n for n in every if n.startswith(f"{folder.family}.")] or every)


def prompts_of(case: Case) -> list[list[int]]:
    """The prompts of a case, pads included."""
    return case.get("inputs") or case["input_ids"]


# --- fixed canvases ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Replayed(RandomStream):
    """The chance recorded in a case: 0 for positions kept after a forward, 1 for all others."""

    kept: tuple[frozenset[int], ...]

    def uniform(self, *, block: int, step: int, position: int, purpose: Purpose) -> float:
        """See `RandomStream`."""
        assert purpose is Purpose.ORDER, "tokens of such cases are greedy"
        is_last = step >= len(self.kept)
        return 0.0 if is_last or position in self.kept[step] else 1.0 - 2**-53


def _fixed_call(folder: CaseFolder, case: Case, row: int, traits: Traits) -> Call:
    given, output, parameters = prompts_of(case)[row], case["output_ids"][row], case["parameters"]
    mask_token_id, random = folder.special["mask_token_id"], RandomStream(seed=0)
    pads = case["attention_mask"][row].count(0) if case.get("attention_mask") else 0
    prompt, first, length = np.array(given[pads:]), None, 0
    if "src_mask" in case:
        first = FixedCanvas(mask_token_id=mask_token_id).with_holes(prompt, np.array(case["src_mask"][row]) == 0)
        kept = tuple(frozenset(step[row]) for step in case["revealed_positions_per_step"])
        random, wanted = Replayed(seed=0, kept=kept), [given[0], *output]
    elif case["function"].endswith("infill"):
        first, wanted = FixedCanvas(mask_token_id=mask_token_id).with_holes(prompt, prompt == mask_token_id), output
    else:
        length = official_length(parameters)
        wanted = output[pads : len(given) + length]
    rule = _fixed_rule(folder, case, len(prompt))
    return Call(
        rule=rule,
        prompt=prompt,
        first=first,
        max_tokens=length,
        eos_ids=_NOBODY,
        random=random,
        logit_shift=official_logit_shift(parameters, traits.logit_shift),
        block_size=None,
        guidance=rule.guidance if isinstance(rule, LowConfidence) else 0.0,
        mask_token_id=mask_token_id,
        reuse=_reuse(case),
        wanted=tuple(wanted),
        wanted_forwards=case["nfe"],
        ids_of=lambda canvas: canvas.ids_L.tolist(),
        forwards_of=lambda num_forwards, _canvas: num_forwards,
    )


def _fixed_rule(folder: CaseFolder, case: Case, length: int) -> DecodingRule:
    """The parity rule, greedy where a case was recorded with the draw replaced by the argmax at temperature 1."""
    rule = official_rule(
        folder.family,
        case["function"],
        case["parameters"],
        mask_token_id=folder.special["mask_token_id"],
        eos_token_id=folder.special.get("eos_token_id"),
        eot_token_id=folder.special.get("eot_token_id"),
        infill_length=length,
    )
    return replace(rule, sampling=Sampling()) if isinstance(rule, RandomKeep) else rule


def _reuse(case: Case) -> Reuse | None:
    kind = official_cache(case["function"], case["parameters"])
    return None if kind == "none" else Reuse(kind=kind, block_length=case["parameters"]["block_length"])


# --- block-causal ------------------------------------------------------------------------------------------------


def official_run(folder: CaseFolder, case: Case, row: int, traits: Traits) -> OfficialBlocks:
    """The official settings of a block-causal case.

    Config files do not tell LLaDA2.1, which edits, from 2.0: its reference does.
    """
    special = folder.special
    references = folder.raw.get("reference") or ()
    return official_blocks(
        folder.family,
        case["function"],
        case["parameters"],
        prompts_of(case)[row],
        mask_token_id=special["mask_token_id"],
        eos_ids=frozenset([special.get("eos_token_id", special.get("stop_token_id", -1))]),
        pad_token_id=special.get("pad_token_id"),
        editable=traits.editable or any(_EDITING_REFERENCE in entry.get("role", "") for entry in references),
    )


def _block_call(folder: CaseFolder, case: Case, row: int, traits: Traits) -> Call:
    blocks = official_run(folder, case, row, traits)
    generated = np.array(_generated(folder, case, row, blocks))

    def ids_of(canvas: Canvas) -> list[int]:
        return blocks.comparable(visible_answer(canvas, blocks.eos_ids)).tolist()

    return Call(
        rule=blocks.rule,
        prompt=np.array(blocks.prompt),
        max_tokens=blocks.max_tokens,
        eos_ids=blocks.eos_ids,
        random=RandomStream(seed=0),
        logit_shift=blocks.logit_shift,
        block_size=blocks.block_size,
        num_pads=blocks.num_pads,
        mask_token_id=folder.special["mask_token_id"],
        wanted=tuple(blocks.comparable(generated).tolist()),
        wanted_forwards=case["nfe"],
        ids_of=ids_of,
        forwards_of=blocks.official_forwards,
    )


def without_lead(folder: CaseFolder, case: Case, ids: list[int], blocks: OfficialBlocks) -> list[int]:
    """A canvas of the official code without the whole blocks of pads that only longer prompts of a batch need."""
    if not blocks.num_pads:
        return ids
    longest = max(len(prompt) for prompt in prompts_of(case))
    lead = -(-longest // blocks.block_size) * blocks.block_size - len(blocks.prompt)
    if ids[:lead] != [folder.special.get("pad_token_id")] * lead:
        raise CheckpointError(f"case {case['name']!r} does not begin with {lead} pads")
    return ids[lead:]


def _generated(folder: CaseFolder, case: Case, row: int, blocks: OfficialBlocks) -> list[int]:
    """What the official code generated, without prompt and pads."""
    output: list[int] = case["output_ids"][row]
    if "generated part only" in case.get("output_is", ""):
        return output
    output = without_lead(folder, case, output, blocks)
    if len(output) <= len(blocks.prompt):
        raise CheckpointError(f"case {case['name']!r} has an output no longer than its prompt")
    if output[: len(blocks.prompt)] != list(blocks.prompt):
        raise NotReproducedError("the official code overwrote a prompt token")
    return output[len(blocks.prompt) :]
