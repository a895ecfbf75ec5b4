"""The block-causal rules against the official code, by the code of `unmask verify`.

Each case runs twice: through `decoding/reference.py` (no cache) and through the engine's own step over the exact cache.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tests.decoding.golden_cases import assert_official, call_of, folder_of, folders_of, loaded
from unmask.core.errors import ConfigError
from unmask.decoding.official import NotReproducedError
from unmask.decoding.official_blocks import BLOCK_FUNCTIONS
from unmask.decoding.rules import visible_answer
from unmask.decoding.sampling import Sampling
from unmask.verify.calls import make_call, num_rows, official_run, prompts_of
from unmask.verify.running import run_engine, run_reference

FOLDERS = folders_of("sdar", "llada2", "fast_dllm_v2", "a2d")
NOT_REPRODUCED = {"sdar/block4:p3-static-d2"} | {
    f"fast_dllm_v2/bd8:{name}"
    for name in ("p8-seq", "p8-thr0.6", *(f"p{length}-thr0.6-bc" for length in (5, 8, 9, 16, 19)))
}
PADDED = {"a2d/llama:bd3-p6-b4", "a2d/qwen2-tied:bd3-p7-b4"} | {
    f"a2d/qwen3:{name}" for name in ("bd3-p5-b4", "bd3-batch#0", "bd3-batch#1", "bd3-shift")
}
"""Runs of the official sampler with pads in front, which the exact cache cannot shift blocks for."""
IN_PIECES = {
    "sdar/block4:p8-dynamic",
    "sdar/block8:p13-dynamic",
    "llada2/v2.0-threshold:p16-thr0.95",
    "llada2/v2.1-joint:p13-default",
    "fast_dllm_v2/bd8:p19-thr0.6",
}


def runs_of(folder: str) -> Iterator[str]:
    """`name` of every case of a block-causal function, `name#row` for each prompt of a batch."""
    cases = folder_of(folder)
    for case in cases.cases:
        if case["kind"] == "generate" and f"{cases.family}.{case['function']}" in BLOCK_FUNCTIONS:
            rows = num_rows(case)
            yield from (case["name"] if rows == 1 else f"{case['name']}#{row}" for row in range(rows))


RUNS = [pytest.param(folder, name, id=f"{folder}:{name}") for folder in FOLDERS for name in runs_of(folder)]
REPRODUCED = [run for run in RUNS if run.id not in NOT_REPRODUCED]
CACHED = [run for run in REPRODUCED if run.id not in PADDED]


@pytest.mark.parametrize(("folder", "name"), REPRODUCED)
def test_reference_equals_the_official_code(folder: str, name: str) -> None:
    assert_official(folder, name, run_reference(call_of(folder, name), loaded(folder)))


@pytest.mark.parametrize(("folder", "name"), CACHED)
def test_cached_engine_equals_the_official_code(folder: str, name: str) -> None:
    assert_official(folder, name, run_engine(call_of(folder, name), loaded(folder)))


@pytest.mark.parametrize(("folder", "name"), [run for run in CACHED if run.id in IN_PIECES])
def test_a_prompt_fed_in_pieces_changes_nothing(folder: str, name: str) -> None:
    call = call_of(folder, name)
    done = run_engine(call, loaded(folder), max_rows=call.block_size or 1)
    assert tuple(done.ids) == call.wanted


def test_every_case_is_accounted_for() -> None:
    names = {run.id for run in RUNS}
    assert names >= NOT_REPRODUCED | IN_PIECES
    padded = {run.id for run in REPRODUCED if call_of(*run.values).num_pads}
    assert padded == PADDED
    assert len(RUNS) - len(NOT_REPRODUCED) == len(REPRODUCED) >= 55


@pytest.mark.parametrize("run", sorted(NOT_REPRODUCED))
def test_what_is_not_reproduced_is_refused(run: str) -> None:
    reason = "exactly one block|use_block_cache|overwrote a prompt token"
    with pytest.raises(NotReproducedError, match=reason):
        call_of(*run.split(":"))


def test_unknown_functions_are_refused() -> None:
    folder = folder_of("sdar/block4")
    with pytest.raises(ConfigError, match="known: sdar"):
        make_call(folder, {**folder.case("p5-static"), "function": "x"}, 0, loaded("sdar/block4").traits)


def test_the_official_code_overwrites_a_prompt_token() -> None:
    """Why this one case is left out: our first step is the official one except for the prompt it keeps."""
    folder = folder_of("sdar/block4")
    case = folder.case("p3-static-d2")
    official = case["states_before_each_forward"][1]["tokens"]
    prompt = prompts_of(case)[0]
    blocks = official_run(folder, case, 0, loaded("sdar/block4").traits)
    call = replace(call_of("sdar/block4", "p3-static"), rule=blocks.rule, prompt=np.array(prompt))
    ours = run_reference(call, loaded("sdar/block4")).watched.after[0].ids_L[:4].tolist()
    assert ours[:3] == prompt
    assert official[:3] != prompt
    assert [mine == theirs for mine, theirs in zip(ours, official, strict=True)] == [True, True, False, True]


@pytest.mark.parametrize("folder", ["sdar/block8", "llada2/v2.1-joint", "fast_dllm_v2/bd8", "a2d/llama"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_default_rules_need_no_recomputation(folder: str, temperature: float) -> None:
    """Without parity, greedy and sampled: the cached engine writes what the reference loop does."""
    name = next(name for name in runs_of(folder) if f"{folder}:{name}" not in NOT_REPRODUCED)
    cases, case = folder_of(folder), folder_of(folder).case(name.partition("#")[0])
    official = official_run(cases, case, 0, loaded(folder).traits)
    call = replace(
        call_of(folder, name),
        rule=replace(official.rule, parity=False, sampling=Sampling(temperature=temperature)),
        prompt=np.array(prompts_of(case)[0]),
        num_pads=0,
        max_tokens=13,
        eos_ids=official.cut_ids,
    )
    slow, fast = run_reference(call, loaded(folder)), run_engine(call, loaded(folder))
    ids = visible_answer(slow.canvas, call.eos_ids).tolist()
    assert visible_answer(fast.canvas, call.eos_ids).tolist() == ids
    assert fast.num_forwards == slow.num_forwards
    assert call.mask_token_id not in ids
