"""Golden cases of fixed-canvas samplers: one row each, run alone, and what is noted on the way."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tests.models.golden_checkpoints import GOLDENS, checkpoint
from unmask.core.canvas import BoolArray, Canvas, Delta, IntArray
from unmask.core.plan import Reads
from unmask.decoding.belief import Belief
from unmask.decoding.official import official_length
from unmask.decoding.randomness import Purpose, RandomStream
from unmask.decoding.rules import DecodingRule
from unmask.models.linear import PlainLinear
from unmask.models.loading import Loaded, load


@cache
def read_cases(folder: str) -> dict[str, Any]:
    return json.loads((GOLDENS / folder / "cases.json").read_text())


def find_case(folder: str, name: str) -> dict[str, Any]:
    return next(case for case in read_cases(folder)["cases"] if case["name"] == name)


def folders_of(*families: str) -> list[str]:
    return [
        str(file.parent.relative_to(GOLDENS))
        for family in families
        for file in sorted((GOLDENS / family).glob("*/cases.json"))
    ]


@cache
def loaded(folder: str) -> Loaded:
    with tempfile.TemporaryDirectory() as where:
        return load(checkpoint(folder, Path(where)), linear=PlainLinear)


@dataclass
class Recorded:
    """A rule that begins with a given canvas and notes every canvas it leaves behind."""

    rule: DecodingRule
    first: Canvas | None = None
    after: list[Canvas] = field(default_factory=list)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        canvas = self.first or self.rule.begin(prompt_ids, max_tokens)
        self.after = [canvas]
        return canvas

    def reads(self, canvas: Canvas) -> Reads:
        return self.rule.reads(canvas)

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        delta = self.rule.step(canvas, belief, random)
        self.after.append(canvas.apply(delta))
        return delta

    def forward_of_each(self) -> list[int]:
        """1-based forward that decided each position of the answer."""
        start = self.after[0].prompt_length
        closed = np.array([~canvas.open_L[start:] for canvas in self.after])
        return closed.argmax(0).tolist()


@dataclass(frozen=True, kw_only=True)
class Replayed(RandomStream):
    """The chance recorded in a case: 0 for positions kept after a forward, 1 for all others."""

    kept: tuple[frozenset[int], ...]

    def uniform(self, *, block: int, step: int, position: int, purpose: Purpose) -> float:
        assert purpose is Purpose.ORDER
        is_last = step >= len(self.kept)
        return 0.0 if is_last or position in self.kept[step] else 1.0 - 2**-53


@dataclass(frozen=True)
class Row:
    """One row of a case: given ids, which are holes, and what the official sampler made of it."""

    prompt: IntArray
    holes: BoolArray | None
    expected: list[int]
    trace: Callable[[Recorded], None]
    random: RandomStream


def row_of(case: dict[str, Any], index: int, mask_token_id: int) -> Row:
    given = (case.get("inputs") or case["input_ids"])[index]
    pads = case["attention_mask"][index].count(0) if case.get("attention_mask") else 0
    output = case["output_ids"][index]

    def no_trace(_run: Recorded) -> None:
        return

    if "src_mask" in case:
        kept = tuple(frozenset(step[index]) for step in case["revealed_positions_per_step"])
        holes = np.array(case["src_mask"][index]) == 0
        return Row(np.array(given), holes, [given[0], *output], no_trace, Replayed(seed=0, kept=kept))
    if case["function"].endswith("infill"):
        return Row(
            np.array(given), np.array(given) == mask_token_id, output, histories(case, index), RandomStream(seed=0)
        )
    prompt = given[pads:]
    expected = output[pads : len(given) + official_length(case["parameters"])]

    def decided_in(run: Recorded) -> None:
        assert run.forward_of_each() == case["commit_forward"][index]

    trace = decided_in if "commit_forward" in case else histories(case, index)
    return Row(np.array(prompt), None, expected, trace, RandomStream(seed=0))


def histories(case: dict[str, Any], index: int) -> Callable[[Recorded], None]:
    def same_canvases(run: Recorded) -> None:
        for ours, theirs in zip(run.after, case["histories"], strict=True):
            assert ours.ids_L.tolist() == theirs[index][: ours.length]

    return same_canvases
