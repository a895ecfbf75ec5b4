"""DiffusionGemma through the engine: recorded runs of transformers step by step, and what a server promises of it."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.engine.running import answers, ask, engine, run, wanted
from tests.fakes import CHAT_TEMPLATE
from tests.models.golden_checkpoints import GOLDENS
from tests.tiny import byte_tokenizer
from unmask import LLM
from unmask.cache.block_causal import BlockCausalCache
from unmask.core.canvas import Canvas, Delta
from unmask.core.plan import Reads
from unmask.core.request import Request, SamplingParams
from unmask.decoding.belief import Belief
from unmask.decoding.randomness import RandomStream
from unmask.decoding.renoise import UniformRenoise, within_entropy_bound
from unmask.decoding.rules import is_finished
from unmask.engine.runner import denoise
from unmask.engine.sequence import Decoding
from unmask.engine.settings import cache_shape
from unmask.models.linear import TiledLinear
from unmask.models.loading import Loaded, load

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


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The rule under test; after each of its steps the recorded canvas takes the place of the noise it drew."""

    rule: UniformRenoise
    steps: tuple[Mapping[str, Any], ...]
    seen: list[tuple[list[int], list[int]]] = field(default_factory=list, hash=False)

    def reads(self, canvas: Canvas) -> Reads:
        return self.rule.reads(canvas)

    def conditioning(self, canvas: Canvas) -> Tensor | None:
        return self.rule.conditioning(canvas)

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        delta = self.rule.step(canvas, belief, random)
        if canvas.open_L.any():
            step = self.steps[len(self.seen)]
            processed = self.rule.processed(canvas, belief.logits_RV)
            entropy_R = torch.special.entr(processed.softmax(-1)).sum(-1)
            kept_R = within_entropy_bound(entropy_R, self.rule.entropy_bound)
            self.seen.append((processed.argmax(-1).tolist(), np.flatnonzero(kept_R).tolist()))
            assert canvas.ids_L[canvas.window_start :].tolist() == step["canvas"]
        if len(self.seen) == len(self.steps):
            return delta
        ids_W = delta.ids_W.copy()
        ids_W[delta.open_W] = self.steps[len(self.seen)]["canvas"]
        return Delta(**{**vars(delta), "ids_W": ids_W})


@pytest.mark.parametrize("name", RUNS)
def test_recorded_runs(name: str, loaded: Loaded) -> None:
    """Guess, acceptance, end of window, number of forwards and answer, from our model through runner and cache."""
    (case,) = (c for c in json.loads((GOLDEN / "cases.json").read_text())["cases"] if c["name"] == name)
    settings, steps = case["parameters"], tuple(case["steps"])
    rule = UniformRenoise(
        size=loaded.traits.block_size,
        vocab_size=loaded.traits.vocab_size,
        eos_ids=loaded.traits.eos_ids,
        num_steps=settings["max_denoising_steps"],
        t_min=settings["t_min"],
        t_max=settings["t_max"],
        entropy_bound=settings["sampler_config"]["entropy_bound"],
        stability=settings["stability_threshold"],
        confidence=settings["confidence_threshold"],
    )
    recorded = Recorded(rule=rule, steps=steps)
    sequence = Decoding(
        rule=recorded,
        random=RandomStream(seed=0),
        canvas=rule.begin(np.array(case["input_ids"][0]), settings["max_new_tokens"]),
        cache=BlockCausalCache(cache_shape(loaded.config, loaded.traits)),
    )
    while not is_finished(sequence.canvas, loaded.traits.eos_ids):
        denoise(loaded.model, [(sequence, 5 if sequence.cache.stored < 5 else 64)])
    for (guess, kept), step in zip(recorded.seen, steps, strict=True):
        assert guess == step["argmax_canvas"]
        assert kept == step["accepted"]
    assert sequence.canvas.ids_L[: sequence.canvas.num_final].tolist() == case["output_ids"][0]
    assert len(recorded.seen) == case["decoder_forwards"]


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
