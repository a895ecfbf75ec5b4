"""DiffusionGemma's sampler: recorded runs of the official code are repeated token by token."""

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.decoding.hash_model import hash_model
from unmask.core.canvas import BoolArray, Canvas, IntArray
from unmask.core.errors import ConfigError, EngineError
from unmask.decoding import reference
from unmask.decoding.belief import Belief
from unmask.decoding.randomness import Purpose, RandomStream
from unmask.decoding.renoise import Progress, UniformRenoise, within_entropy_bound
from unmask.decoding.rules import is_finished, visible_answer

GOLDEN = Path(__file__).parents[1] / "goldens" / "diffusion_gemma" / "small"
RUNS = ("defaults-12-steps", "two-canvases", "early-stop")
Model = Callable[[list[int], list[int], Tensor | None], Tensor]


def test_entropy_bound_by_hand() -> None:
    """In order of entropy 0.1, 0.2, 0.2, 0.5: without the largest, 0, 0.1, 0.3 and 0.5 nats."""
    entropy = torch.tensor([0.2, 0.5, 0.1, 0.2])
    for bound, wanted in [(0.05, [2]), (0.11, [0, 2]), (0.29, [0, 2]), (0.35, [0, 2, 3]), (0.6, [0, 1, 2, 3])]:
        assert np.flatnonzero(within_entropy_bound(entropy, bound)).tolist() == wanted


# --- runs of the official code -----------------------------------------------------------------------------------


@cache
def official_model() -> Model:
    """(context, canvas, self-conditioning logits or None) -> logits [canvas, V], by transformers."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        hub: Any = transformers.DiffusionGemmaForBlockDiffusion.from_pretrained(GOLDEN, dtype=torch.float32).eval()

    def model(context: list[int], canvas: list[int], conditioning: Tensor | None) -> Tensor:
        with torch.inference_mode(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return hub(
                input_ids=torch.tensor([context]),
                decoder_input_ids=torch.tensor([canvas]),
                self_conditioning_logits=None if conditioning is None else conditioning[None],
            ).logits[0]

    return model


@dataclass(frozen=True, kw_only=True)
class Scripted(RandomStream):
    """Given numbers, by position."""

    token: Mapping[int, float] = field(default_factory=dict)
    noise: Mapping[int, float] = field(default_factory=dict)

    def uniform(self, *, block: int, step: int, position: int, purpose: Purpose) -> float:
        return {Purpose.TOKEN: self.token, Purpose.NOISE: self.noise}[purpose][position]


def script(step: Mapping[str, Any], processed_RV: Tensor, start: int, opening: list[int]) -> Scripted:
    """Numbers that give the recorded tokens where they were accepted or redrawn, and other ones everywhere else."""
    num_ids = processed_RV.shape[1]
    cumulative_RV = processed_RV.double().softmax(-1).cumsum(-1)
    token: dict[int, float] = {}
    noise = {start + len(step["canvas"]) + place: (wanted + 0.5) / num_ids for place, wanted in enumerate(opening)}
    for place, wanted in enumerate(step["next_canvas"]):
        is_kept = place in step["accepted"]
        low = float(cumulative_RV[place, wanted - 1]) if is_kept and wanted else 0.0
        token[start + place] = (low + float(cumulative_RV[place, wanted])) / 2 if is_kept else 0.5
        noise[start + place] = ((wanted + is_kept) % num_ids + 0.5) / num_ids
    return Scripted(seed=0, token=token, noise=noise)


def belief_of(logits_RV: Tensor, start: int) -> Belief:
    positions = np.arange(start, start + logits_RV.shape[0])
    return Belief(logits_RV=logits_RV, predicts_R=positions, causal_R=np.zeros(positions.shape, np.bool_))


@pytest.mark.parametrize("name", RUNS)
def test_recorded_runs(name: str) -> None:
    """Each step is fed the recorded canvas; acceptance, guess, noise, end of window and answer are all the rule's."""
    cases = json.loads((GOLDEN / "cases.json").read_text())["cases"]
    (case,) = (case for case in cases if case["name"] == name)
    settings, steps = case["parameters"], case["steps"]
    rule = UniformRenoise(
        size=16,
        vocab_size=512,
        eos_ids=frozenset([1]),
        num_steps=settings["max_denoising_steps"],
        t_min=settings["t_min"],
        t_max=settings["t_max"],
        entropy_bound=settings["sampler_config"]["entropy_bound"],
        stability=settings["stability_threshold"],
        confidence=settings["confidence_threshold"],
    )
    canvas = rule.begin(np.array(case["input_ids"][0]), settings["max_new_tokens"])
    first = Scripted(seed=0, noise={canvas.length + i: (t + 0.5) / 512 for i, t in enumerate(steps[0]["canvas"])})
    canvas = canvas.apply(rule.step(canvas, belief_of(torch.zeros(1, 512), canvas.length), first))
    for index, step in enumerate(steps):
        start = canvas.window_start
        assert canvas.ids_L[start:].tolist() == step["canvas"]
        assert canvas.open_L[start:].all()
        logits = official_model()(canvas.ids_L[:start].tolist(), step["canvas"], rule.conditioning(canvas))
        processed = rule.processed(canvas, logits)
        is_last = index + 1 == len(steps) or steps[index + 1]["remaining"] > step["remaining"]
        opening = steps[index + 1]["canvas"] if is_last and index + 1 < len(steps) else []
        random = script(step, processed, start, opening)
        canvas = canvas.apply(rule.step(canvas, belief_of(logits, start), random))
        if is_last:
            assert canvas.ids_L[start : start + 16].tolist() == step["argmax_canvas"]
            assert canvas.num_final == canvas.window_start == start + 16
            assert rule.conditioning(canvas) is None
        else:
            assert not step["finished"]
            assert canvas.num_final == start
            assert isinstance(canvas.memory, Progress)
            if rule.stability:
                assert canvas.memory.guesses[-1] == tuple(step["argmax_canvas"])
    assert is_finished(canvas, rule.eos_ids)
    assert canvas.ids_L[: canvas.num_final].tolist() == case["output_ids"][0]


# --- by itself ---------------------------------------------------------------------------------------------------

VOCAB, EOS = 10, 9


def rule(**changes: Any) -> UniformRenoise:
    facts: dict[str, Any] = {"size": 4, "vocab_size": VOCAB, "eos_ids": frozenset(), "num_steps": 6}
    return UniformRenoise(**(facts | changes))


def run(
    rule: UniformRenoise, model: reference.ReferenceModel, *, seed: int = 1, max_tokens: int = 8
) -> tuple[Any, int]:
    ids, num_forwards = reference.generate(
        model, rule, np.array([3, 4]), max_tokens=max_tokens, eos_ids=rule.eos_ids, random=RandomStream(seed=seed)
    )
    return ids.tolist(), num_forwards


def sure_of(answer: list[int]) -> reference.ReferenceModel:
    """A model that knows the answer, whatever the canvas holds."""

    def model(ids_L: IntArray, visible_LL: BoolArray, *_told: object) -> Tensor:
        logits = torch.zeros(ids_L.shape[0], VOCAB)
        for position in range(2, ids_L.shape[0]):
            logits[position, answer[position - 2]] = 40.0
        return logits

    return model


def test_a_sure_model_is_done_when_its_guess_has_come_twice() -> None:
    answer = [5, 6, 7, 8, 0, 1, 2, 3]
    assert run(rule(), sure_of(answer)) == (answer, 1 + 2 * 2)
    assert run(rule(stability=0), sure_of(answer)) == (answer, 1 + 2)
    assert run(rule(stability=3), sure_of(answer)) == (answer, 1 + 2 * 4)
    assert run(rule(stability=3, num_steps=2), sure_of(answer)) == (answer, 1 + 2 * 2), "no more than num_steps"


def test_the_answer_ends_at_its_first_eos() -> None:
    ending = rule(eos_ids=frozenset([EOS]))
    assert run(ending, sure_of([5, EOS, 7, 8, 0, 1, 2, 3])) == ([5], 1 + 2)


def test_an_answer_may_end_inside_a_window() -> None:
    answer = [5, 6, 7, 8, 0, 1, 2, 3]
    assert run(rule(), sure_of(answer), max_tokens=6) == (answer[:6], 1 + 2 * 2)


def test_an_unsure_model_uses_every_step_and_the_seed_decides() -> None:
    model = hash_model(3, VOCAB, 0.5)
    ids, num_forwards = run(rule(), model)
    assert (len(ids), num_forwards) == (8, 1 + 2 * 6)
    assert run(rule(), model) == (ids, num_forwards)
    assert len({tuple(run(rule(), model, seed=seed)[0]) for seed in range(4)}) > 1


def windows(seed: int) -> list[Canvas]:
    """Canvases of one window under a flat model: all noise."""
    random, canvases = RandomStream(seed=seed), []
    canvas = rule().begin(np.array([3]), 4)
    while not is_finished(canvas, frozenset()):
        logits = torch.zeros(max(int(canvas.open_L.sum()), 1), VOCAB)
        canvas = canvas.apply(rule().step(canvas, belief_of(logits, canvas.window_start), random))
        canvases.append(canvas)
    return canvases[:-1]


def test_noise_is_fresh_and_uniform() -> None:
    """Half a thousand redraws: every id turns up, none too often, and no two windows are alike."""
    drawn = [tuple(canvas.ids_L[1:].tolist()) for seed in range(25) for canvas in windows(seed)]
    assert len(set(drawn)) > 0.97 * len(drawn)
    counts = np.bincount(np.array(drawn).ravel(), minlength=VOCAB)
    assert counts.shape == (VOCAB,)
    expected = counts.sum() / VOCAB
    assert (np.abs(counts - expected) < 4 * expected**0.5).all()


def test_damaged_logits_are_refused() -> None:
    canvas = windows(0)[0]
    logits = torch.zeros(4, VOCAB)
    logits[2, 3] = torch.nan
    with pytest.raises(EngineError, match="not finite"):
        rule().step(canvas, belief_of(logits, 1), RandomStream(seed=0))


def test_impossible_tokens_have_no_entropy() -> None:
    """A constrained row of one possible token is kept though all other logits are -inf."""
    canvas = windows(0)[0]
    logits = torch.full((4, VOCAB), -torch.inf)
    logits[:, 5] = 0.0
    after = canvas.apply(rule().step(canvas, belief_of(logits, 1), RandomStream(seed=0)))
    assert after.ids_L[1:].tolist() == [5, 5, 5, 5]


def test_the_temperature_falls_to_its_last_step() -> None:
    canvases = windows(0)
    halves = [float(rule(num_steps=4).processed(canvas, torch.ones(1, 1))) for canvas in canvases[:4]]
    assert halves == pytest.approx([1 / 0.8, 1 / 0.7, 1 / 0.6, 1 / 0.5])
    assert visible_answer(canvases[0], frozenset()).size == 0


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"size": 0}, "size"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"num_steps": 0}, "num_steps"),
        ({"stability": -1}, "stability"),
        ({"t_min": 0.0}, "t_min"),
        ({"t_min": 0.9}, "t_min"),
        ({"entropy_bound": 0.0}, "entropy_bound"),
        ({"confidence": -0.1}, "confidence"),
    ],
)
def test_settings_that_make_no_sense(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        rule(**changes)
