"""The rules of fully bidirectional models against the official samplers: ids, forwards, and what was decided when.

Each row of a batch runs alone, without its padding; the official code pads and masks. DiffuGPT's cases record by chance
which positions were kept and are greedy otherwise, so a stream that replays that chance stands in for the random one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tests.decoding.golden_cases import assert_official, call_of, folder_of, folders_of, loaded
from unmask.core.errors import ConfigError
from unmask.decoding.official import FIXED_CANVAS_FUNCTIONS, official_cache, official_length, official_rule
from unmask.verify.calls import num_rows
from unmask.verify.running import run_engine, run_reference

FAMILIES = ("llada", "llada_moe", "dream", "a2d", "diffugpt", "diffullama", "fast_dllm_v1_llada", "fast_dllm_v1_dream")


def cases_of(folder: str) -> Iterator[tuple[str, str, int]]:
    """(folder, case, rows) about a fixed canvas and an exact forward."""
    for case in folder_of(folder).cases:
        if case["kind"] != "generate" or f"{folder.split('/')[0]}.{case['function']}" not in FIXED_CANVAS_FUNCTIONS:
            continue
        if official_cache(case["function"], case["parameters"]) == "none":
            yield folder, case["name"], num_rows(case)


CASES = [case for folder in folders_of(*FAMILIES) for case in cases_of(folder)]
CACHED = [
    ("llada/base", "p13-s8"),
    ("llada_moe/small", "p5-s10"),
    ("dream/base", "p5-entropy-10"),
    ("diffugpt/small", "infill-T6"),
    ("a2d/qwen3", "infill"),
    ("fast_dllm_v1_llada/threshold", "p13-thr0.6-generate"),
]
"""Cases that also run through the engine's step and its exact cache here; `unmask verify`'s tests run all."""


@pytest.mark.parametrize(("folder", "name", "rows"), CASES)
def test_official_ids_and_forwards(folder: str, name: str, rows: int) -> None:
    for row in range(rows):
        assert_official(folder, f"{name}#{row}", run_reference(call_of(folder, f"{name}#{row}"), loaded(folder)))


@pytest.mark.parametrize(("folder", "name"), CACHED)
def test_the_engines_step_gives_the_same(folder: str, name: str) -> None:
    assert_official(folder, name, run_engine(call_of(folder, name), loaded(folder), max_rows=3))


def test_every_family_has_cases() -> None:
    assert {folder.split("/")[0] for folder, _, _ in CASES} == set(FAMILIES)
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
