"""DiffusionGemma through the engine: recorded runs of transformers step by step, and what a server promises of it."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.engine.running import answers, ask, engine, run, wanted
from tests.fakes import CHAT_TEMPLATE
from tests.models.golden_checkpoints import GOLDENS
from tests.tiny import byte_tokenizer
from unmask import LLM
from unmask.core.request import Request, SamplingParams
from unmask.models.linear import TiledLinear
from unmask.models.loading import Loaded, load
from unmask.verify.folders import CaseFolder
from unmask.verify.renoise import Replay, renoise_call, renoise_traces
from unmask.verify.running import run_engine

GOLDEN = GOLDENS / "diffusion_gemma" / "small"
RUNS = ("defaults-12-steps", "two-canvases", "early-stop")


def folder_with_tokenizer(folder: Path) -> Path:
    for name in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / name, folder / name)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return load(folder_with_tokenizer(tmp_path_factory.mktemp("gemma")), linear=TiledLinear)


# --- recorded runs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RUNS)
def test_recorded_runs_with_the_prompt_in_pieces(name: str, loaded: Loaded) -> None:
    """Guess, kept tokens, end of window and answer, from our model through runner and cache."""
    case = CaseFolder.read(GOLDEN).case(name)
    call = renoise_call(case, loaded.traits)
    done = run_engine(call, loaded, max_rows=5)
    assert tuple(done.ids) == call.wanted
    assert isinstance(call.rule, Replay)
    ours, theirs = renoise_traces(case, call.rule)
    assert ours == theirs


# --- a server's promises -----------------------------------------------------------------------------------------


def mixed(count: int) -> list[Request]:
    rng = np.random.default_rng(3)
    return [
        ask(
            f"r{i}",
            rng.integers(3, 512, int(rng.integers(1, 150 if i == 2 else 40))).tolist(),
            max_tokens=int(rng.integers(1, 40)),
            seed=i % 3,
            **({"num_steps": 5} if i % 2 else {}),
            **({"block_size": 9} if i % 4 == 2 else {}),
        )
        for i in range(count)
    ]


def test_an_answer_does_not_depend_on_its_batch(loaded: Loaded) -> None:
    requests = mixed(8)
    with engine(loaded, max_running=8, max_prefill_rows=24, max_prefix_tokens=0) as loop:
        together = answers(run(loop, requests))
    with engine(loaded, max_running=1) as loop:
        alone = {request.id: answers(run(loop, [request]))[request.id] for request in requests}
    assert together == alone
    for request in requests[:3]:
        assert together[request.id][0] == wanted(loaded, request)[0]


def test_the_seed_decides(loaded: Loaded) -> None:
    with engine(loaded) as loop:
        heard = run(loop, [ask("a", seed=1), ask("b", seed=1), ask("c", seed=2)])
    assert heard["a"].ids == heard["b"].ids != heard["c"].ids


def test_a_shared_beginning_changes_nothing(loaded: Loaded) -> None:
    prompt = list(range(50, 90))
    with engine(loaded) as loop:
        first = run(loop, [ask("a", prompt, max_tokens=20)])["a"]
        again = run(loop, [ask("b", prompt, max_tokens=20)])["b"]
    assert again.ids == first.ids
    assert again.chunks[-1].num_prefix_cached >= 39


def test_the_offline_api_opens_and_answers(tmp_path: Path) -> None:
    params = SamplingParams(max_tokens=20, num_steps=4, seed=5)
    with LLM(str(folder_with_tokenizer(tmp_path)), precision="fp32") as llm:
        one, two = llm.generate(["Hello", "What is noise?"], params)
        assert [completion.token_ids for completion in llm.generate("Hello", params)] == [one.token_ids]
    assert one.num_forwards == 1 + 2 * 4 or len(one.token_ids) < 20
    assert one.token_ids != two.token_ids
