"""The rules of fully bidirectional models against the official samplers: ids, forwards, and what was decided when.

Each row of a batch runs alone, without its padding; the official code pads and masks. DiffuGPT's cases record by chance
which positions were kept and are greedy otherwise, so a stream that replays that chance stands in for the random one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.decoding.golden_canvases import Recorded, Row, find_case, folders_of, loaded, read_cases, row_of
from unmask.cache.block_causal import BlockCausalCache
from unmask.core.canvas import BoolArray, IntArray
from unmask.core.errors import ConfigError
from unmask.decoding import reference
from unmask.decoding.fixed_canvas import FixedCanvas, guided
from unmask.decoding.low_confidence import LowConfidence
from unmask.decoding.official import official_cache, official_length, official_logit_shift, official_rule
from unmask.decoding.random_keep import RandomKeep
from unmask.decoding.reference import ReferenceModel
from unmask.decoding.rules import DecodingRule, is_finished
from unmask.decoding.sampling import Sampling
from unmask.engine.runner import denoise
from unmask.engine.sequence import Decoding
from unmask.engine.settings import cache_shape
from unmask.models.loading import Loaded
from unmask.models.transformer import masked_attention

FAMILIES = ("llada", "llada_moe", "dream", "a2d", "diffugpt", "diffullama", "fast_dllm_v1_llada", "fast_dllm_v1_dream")
NOBODY: frozenset[int] = frozenset()


def is_ours(case: dict[str, Any]) -> bool:
    """Whether the case is about a fixed canvas and an exact forward."""
    if case["kind"] != "generate" or case["function"].startswith("BD3LM"):
        return False
    return official_cache(case["function"], case["parameters"]) == "none"


CASES = [
    (folder, case["name"]) for folder in folders_of(*FAMILIES) for case in read_cases(folder)["cases"] if is_ours(case)
]
CACHED = [
    ("llada/base", "p13-s8"),
    ("llada_moe/small", "p5-s10"),
    ("dream/base", "p5-entropy-10"),
    ("diffugpt/small", "infill-T6"),
    ("a2d/qwen3", "infill"),
    ("fast_dllm_v1_llada/threshold", "p13-thr0.6-generate"),
]
"""Cases that also run through the engine's step and its exact cache, which finds nothing to store."""


def reference_model(checkpoint_: Loaded) -> ReferenceModel:
    def model(ids_L: IntArray, visible_LL: BoolArray) -> Tensor:
        with torch.inference_mode():
            transformer, visible = checkpoint_.model, torch.from_numpy(visible_LL)
            hidden = transformer(torch.from_numpy(ids_L), torch.arange(len(ids_L)), masked_attention(visible))
            return transformer.head(hidden).clone()

    return model


def guided_model(model: ReferenceModel, num_prompt: int, mask_token_id: int, guidance: float) -> ReferenceModel:
    """Two forwards in one: the second does not see what the prompt says."""

    def both(ids_L: IntArray, visible_LL: BoolArray) -> Tensor:
        blind_L = np.where(np.arange(len(ids_L)) < num_prompt, mask_token_id, ids_L)
        return guided(model(ids_L, visible_LL), model(blind_L, visible_LL), guidance)

    return both


def greedy(rule: DecodingRule) -> DecodingRule:
    """DiffuGPT's cases were recorded with the draw replaced by the argmax; the recorded temperature is 1."""
    return replace(rule, sampling=Sampling()) if isinstance(rule, RandomKeep) else rule


def rule_of(folder: str, case: dict[str, Any], row: Row) -> Recorded:
    special = read_cases(folder)["special_tokens"]
    rule = official_rule(
        folder.split("/")[0],
        case["function"],
        case["parameters"],
        mask_token_id=special["mask_token_id"],
        eos_token_id=special.get("eos_token_id"),
        eot_token_id=special.get("eot_token_id"),
        infill_length=len(row.prompt),
    )
    first = None
    if row.holes is not None:
        first = FixedCanvas(mask_token_id=special["mask_token_id"]).with_holes(row.prompt, row.holes)
    return Recorded(greedy(rule), first)


@pytest.mark.parametrize(("folder", "name"), CASES)
def test_official_ids_and_forwards(folder: str, name: str) -> None:
    case = find_case(folder, name)
    mask_token_id = read_cases(folder)["special_tokens"]["mask_token_id"]
    model = loaded(folder)
    for index in range(len(case["output_ids"])):
        row = row_of(case, index, mask_token_id)
        run = rule_of(folder, case, row)
        logits = reference_model(model)
        if isinstance(run.rule, LowConfidence) and run.rule.guidance:
            logits = guided_model(logits, len(row.prompt), mask_token_id, run.rule.guidance)
        ids, num_forwards = reference.generate(
            logits,
            run,
            row.prompt,
            max_tokens=0 if row.holes is not None else official_length(case["parameters"]),
            eos_ids=NOBODY,
            random=row.random,
            logit_shift=official_logit_shift(case["parameters"], model.traits.logit_shift),
        )
        whole = ids.tolist() if row.holes is not None else [*row.prompt.tolist(), *ids.tolist()]
        assert whole == row.expected
        assert num_forwards == case["nfe"]
        row.trace(run)


@pytest.mark.parametrize(("folder", "name"), CACHED)
def test_the_engines_step_gives_the_same(folder: str, name: str) -> None:
    case, model = find_case(folder, name), loaded(folder)
    row = row_of(case, 0, read_cases(folder)["special_tokens"]["mask_token_id"])
    run = rule_of(folder, case, row)
    length = 0 if row.holes is not None else official_length(case["parameters"])
    decoding = Decoding(
        rule=run,
        random=row.random,
        canvas=run.begin(row.prompt, length),
        cache=BlockCausalCache(cache_shape(model.config, model.traits)),
    )
    while not is_finished(decoding.canvas, NOBODY):
        denoise(model.model, [(decoding, 3)])
        assert decoding.cache.stored == 0
    assert decoding.canvas.ids_L.tolist() == row.expected
    assert decoding.num_forwards == case["nfe"]
    row.trace(run)


def test_every_family_has_cases() -> None:
    assert {folder.split("/")[0] for folder, _ in CASES} == set(FAMILIES)
    assert len(CASES) == 65


def test_what_is_not_reproduced_is_refused_by_name() -> None:
    def call(family: str, function: str, parameters: Mapping[str, Any], shown: Sequence[str]) -> None:
        with pytest.raises(ConfigError) as raised:
            official_rule(family, function, parameters, mask_token_id=0)
        assert all(part in str(raised.value) for part in shown)

    call("llada", "generat", {}, ["llada.generate", "did you mean"])
    call("llada", "generate", {"top_p": 0.9}, ["top_p"])
    call("llada", "generate", {"gen_length": 10, "block_length": 4}, ["10 tokens", "4"])
    call("llada", "generate", {"logits_eos_inf": True}, ["eos_token_id"])
    call("a2d", "MDLMSampler.sample", {"stochastic_transfer": True}, ["stochastic_transfer=True"])
    call("a2d", "MDLMSampler.infill", {}, ["infill_length"])
    call("fast_dllm_v1_llada", "generate", {"remasking": "random"}, ["remasking='random'"])
    call("diffugpt", "generate_samples", {"shift": False}, ["shift=False"])
    with pytest.raises(ConfigError, match="gen_length or max_new_tokens"):
        official_length({"steps": 3})
