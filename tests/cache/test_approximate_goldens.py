"""Fast-dLLM's cached samplers against the official code: rule, approximate cache and the engine's own step together."""

from dataclasses import replace

import numpy as np
import pytest

from tests.decoding.golden_cases import assert_official, call_of, folder_of, folders_of, loaded
from unmask.decoding.official import official_cache
from unmask.verify.running import Run, run_engine
from unmask.verify.traces import forward_of_each

CASES = [
    (folder, case["name"])
    for folder in folders_of("fast_dllm_v1_llada", "fast_dllm_v1_dream")
    for case in folder_of(folder).cases
    if case["kind"] == "generate" and official_cache(case["function"], case["parameters"]) != "none"
]


def run(folder: str, name: str, refresh_every: int) -> Run:
    call = call_of(folder, name)
    assert call.reuse is not None
    return run_engine(replace(call, reuse=replace(call.reuse, refresh_every=refresh_every)), loaded(folder))


@pytest.mark.parametrize(("folder", "name"), CASES)
def test_official_ids_and_forwards(folder: str, name: str) -> None:
    assert "commit_forward" in folder_of(folder).case(name)
    assert_official(folder, name, run(folder, name, 0))


def test_refreshing_always_equals_no_cache() -> None:
    """With a refresh in every forward, the cached call gives what the uncached one gives."""
    folder = "fast_dllm_v1_llada/threshold"
    plain = folder_of(folder).case("p13-thr0.9-generate")
    fresh = run(folder, "p13-thr0.9-generate_with_dual_cache", 1)
    assert fresh.ids == plain["output_ids"][0]
    assert fresh.num_forwards == plain["nfe"]
    assert forward_of_each(fresh.watched) == plain["commit_forward"][0]
    stale = run(folder, "p13-thr0.9-generate_with_dual_cache", 0)
    assert stale.ids != fresh.ids, "the case shows what the cache changes"


def test_cases_are_there() -> None:
    assert len(CASES) == 28
    assert np.unique([folder for folder, _ in CASES]).size == 3
