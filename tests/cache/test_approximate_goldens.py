"""Fast-dLLM's cached samplers against the official code: rule, approximate cache and the engine's own step together."""

import numpy as np
import pytest

from tests.decoding.golden_canvases import Recorded, find_case, folders_of, loaded, read_cases, row_of
from unmask.cache.approximate import ApproximateCache, Reuse
from unmask.decoding.official import official_cache, official_length, official_rule
from unmask.decoding.rules import is_finished
from unmask.engine.runner import denoise
from unmask.engine.sequence import Decoding
from unmask.engine.settings import cache_shape

CASES = [
    (folder, case["name"])
    for folder in folders_of("fast_dllm_v1_llada", "fast_dllm_v1_dream")
    for case in read_cases(folder)["cases"]
    if case["kind"] == "generate" and official_cache(case["function"], case["parameters"]) != "none"
]


def run(folder: str, name: str, refresh_every: int) -> tuple[Recorded, Decoding]:
    case = find_case(folder, name)
    parameters, mask_token_id = case["parameters"], read_cases(folder)["special_tokens"]["mask_token_id"]
    model, row = loaded(folder), row_of(case, 0, mask_token_id)
    rule = official_rule(folder.split("/")[0], case["function"], parameters, mask_token_id=mask_token_id)
    kind = official_cache(case["function"], parameters)
    assert kind != "none"
    reuse = Reuse(kind=kind, block_length=parameters["block_length"], refresh_every=refresh_every)
    watched = Recorded(rule)
    decoding = Decoding(
        rule=watched,
        random=row.random,
        canvas=watched.begin(row.prompt, official_length(parameters)),
        cache=ApproximateCache(cache_shape(model.config, model.traits), reuse),
    )
    while not is_finished(decoding.canvas, frozenset()):
        denoise(model.model, [(decoding, 1000)])
    return watched, decoding


@pytest.mark.parametrize(("folder", "name"), CASES)
def test_official_ids_and_forwards(folder: str, name: str) -> None:
    case = find_case(folder, name)
    watched, decoding = run(folder, name, 0)
    assert decoding.canvas.ids_L.tolist() == case["output_ids"][0]
    assert decoding.num_forwards == case["nfe"]
    assert watched.forward_of_each() == case["commit_forward"][0]


def test_refreshing_always_equals_no_cache() -> None:
    """With a refresh in every forward, the cached call gives what the uncached one gives."""
    folder = "fast_dllm_v1_llada/threshold"
    plain = find_case(folder, "p13-thr0.9-generate")
    watched, decoding = run(folder, "p13-thr0.9-generate_with_dual_cache", 1)
    assert decoding.canvas.ids_L.tolist() == plain["output_ids"][0]
    assert decoding.num_forwards == plain["nfe"]
    assert watched.forward_of_each() == plain["commit_forward"][0]
    _, stale = run(folder, "p13-thr0.9-generate_with_dual_cache", 0)
    assert (stale.canvas.ids_L != decoding.canvas.ids_L).any(), "the case shows what the cache changes"


def test_cases_are_there() -> None:
    assert len(CASES) == 28
    assert np.unique([folder for folder, _ in CASES]).size == 3
