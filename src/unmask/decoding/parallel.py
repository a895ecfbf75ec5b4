"""Rules that decide as many positions per step as the model is sure of, block after block: Fast-dLLM."""

from dataclasses import dataclass

import numpy as np
import torch

from unmask.core.canvas import BoolArray, Canvas, Delta, IntArray
from unmask.core.errors import ConfigError
from unmask.core.plan import Reads
from unmask.decoding.belief import Belief
from unmask.decoding.fixed_canvas import (
    FixedCanvas,
    FloatArray,
    Turn,
    best,
    check_at_least,
    current_turn,
    decide,
    draw,
    probability,
    reads_of,
    wanted,
)
from unmask.decoding.low_confidence import even_counts
from unmask.decoding.randomness import RandomStream
from unmask.decoding.sampling import Sampling

# Shape legend: R rows read.


def above_threshold(confidence_R: FloatArray, threshold: float) -> BoolArray:
    """Every row whose confidence reaches the threshold, and always the best one (the first of equals)."""
    chosen_R = confidence_R >= threshold
    chosen_R[int(confidence_R.argmax())] = True
    return chosen_R


def within_factor(confidence_R: FloatArray, factor: float, *, parity: bool = False) -> int:
    """How many of the best rows may be decided at once: the n-th best needs 1 - factor / (n + 1), the first nothing.

    Args:
        confidence_R: in any order, at least one.
        factor: 1 is the bound under which deciding greedily in parallel equals deciding one by one.
        parity: the released code also takes the last row of all when it alone misses its bound.
    """
    sorted_R = np.sort(confidence_R)[::-1]
    bounds_R = 1 - factor / (np.arange(1, sorted_R.shape[0] + 1) + 1)
    bounds_R[0] = -1.0
    missed = np.flatnonzero(sorted_R < bounds_R)
    if not missed.size or (parity and int(missed[0]) == sorted_R.shape[0] - 1):
        return sorted_R.shape[0]
    return int(missed[0])


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Decides every position of the active block that the model is sure of, and always the surest.

    Attributes:
        layout: the canvas.
        sampling: how tokens are drawn.
        block_length: positions of a block; attention is full all the same.
        threshold: decide all whose confidence (probability of the drawn token, float64) reaches it.
        factor: decide the n best, as long as the n-th confidence reaches 1 - factor / (n + 1).
        steps_per_block: decide an equal share per step instead. Exactly one of the three must be set.
        parity: as the released code: its rule for the last row under `factor`, ties as torch.topk has them, no early
            stop at EOS.

    Published settings: block_length 32, threshold 0.9; factor 1.

    Source: Fast-dLLM, arXiv 2505.22618 section 3.3 (confidence-aware parallel decoding), theorem 1 (factor), and its
    released `generate` of October 2025.
    Departs from the source: as `LowConfidence` does; the released loop never ends if the model predicts the mask;
    here (under `parity`) a step that chooses nothing else ends its block, whose open positions stay masks for ever.

    Raises:
        ConfigError: none or several of threshold, factor and steps_per_block are set, or a number is too small.
    """

    layout: FixedCanvas
    sampling: Sampling
    block_length: int = 32
    threshold: float | None = None
    factor: float | None = None
    steps_per_block: int = 0
    parity: bool = False

    def __post_init__(self) -> None:
        if (self.threshold is not None) + (self.factor is not None) + bool(self.steps_per_block) != 1:
            raise ConfigError("set exactly one of threshold, factor and steps_per_block")
        check_at_least(1, "block_length", self.block_length)
        check_at_least(0, "steps_per_block", self.steps_per_block)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and all masks of the answer."""
        return self.layout.lay_out(prompt_ids, max_tokens)

    def reads(self, canvas: Canvas) -> Reads:
        """The open positions up to the end of the active block."""
        return reads_of(canvas, wanted(canvas, self.layout.stops(parity=self.parity), self._turn(canvas).end))

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Decides positions of the active block."""
        turn = self._turn(canvas)
        ids_R = draw(canvas, belief, random, self.sampling, self.layout.banned(parity=self.parity))
        chosen = self._chosen(probability(belief.logits_RV, ids_R, dtype=torch.float64), turn)
        positions, ids = belief.predicts_R[chosen], ids_R[chosen]
        stuck = bool((ids == self.layout.mask_token_id).all())
        later = turn.counts[1:] if self.steps_per_block else turn.counts
        over = self.parity and (stuck or not later)
        return decide(
            canvas,
            positions,
            ids,
            self.layout,
            parity=self.parity,
            memory=None if over else Turn(end=turn.end, counts=later),
            closing=turn.end if over else 0,
        )

    def _turn(self, canvas: Canvas) -> Turn:
        return current_turn(canvas, self.block_length, self._counts)

    def _counts(self, num_open: int) -> tuple[int, ...]:
        if not self.steps_per_block:
            return (num_open,)
        return tuple(count for count in even_counts(num_open, self.steps_per_block) if count)

    def _chosen(self, confidence_R: FloatArray, turn: Turn) -> IntArray:
        if self.threshold is not None:
            return np.flatnonzero(above_threshold(confidence_R, self.threshold))
        count = turn.counts[0]
        if self.factor is not None:
            count = within_factor(confidence_R, self.factor, parity=self.parity)
        return best(confidence_R, count, parity=self.parity)
