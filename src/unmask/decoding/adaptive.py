"""Rules that look closer at what the model knows: run by run (hierarchical), over time (credit), in nats (entropy)."""

from dataclasses import dataclass

import numpy as np
import torch

from unmask.core.canvas import BoolArray, Canvas, Delta, IntArray
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
from unmask.decoding.parallel import above_threshold
from unmask.decoding.randomness import RandomStream
from unmask.decoding.sampling import Sampling

# Shape legend: R rows read, V vocabulary.


def best_of_runs(confidence_R: FloatArray, positions_R: IntArray, low_threshold: float) -> BoolArray:
    """The surest row of each run of neighbouring positions, if its confidence is above `low_threshold`.

    Args:
        confidence_R: of rows that predict increasing positions.
        positions_R: those positions, all of them open.
        low_threshold: see above; the first of equals is taken.
    """
    chosen_R = np.zeros(confidence_R.shape, np.bool_)
    breaks = np.flatnonzero(np.diff(positions_R) > 1) + 1
    for run in np.split(np.arange(positions_R.shape[0]), breaks):
        top = run[int(confidence_R[run].argmax())]
        chosen_R[top] = confidence_R[top] > low_threshold
    return chosen_R


def _block(canvas: Canvas, block_length: int) -> Turn:
    """The active block: the first one that holds an open position."""
    return current_turn(canvas, block_length, lambda num_open: (num_open,))


def _block_reads(canvas: Canvas, block_length: int, layout: FixedCanvas) -> Reads:
    return reads_of(canvas, wanted(canvas, layout.eos_ids, _block(canvas, block_length).end))


@dataclass(frozen=True, kw_only=True)
class Hierarchical:
    """Decides the surest position of every run of masks, besides all that are very sure, and always the surest.

    Positions far from one another depend on one another less, so one of each run may go at a lower threshold.

    Attributes:
        layout: the canvas.
        sampling: how tokens are drawn.
        block_length: positions of a block.
        threshold: decide all whose confidence (probability of the drawn token) reaches it.
        low_threshold: decide the surest of a run if its confidence is above it.

    Published settings: threshold 0.9, low_threshold 0.4 (the class default) or 0.6 (as served).

    Source: dInfer, arXiv 2510.08666 (hierarchical decoding), as released.
    Departs from the source: ties go to the lowest position; the mask is never drawn; positions after a decided EOS
    are left alone.

    Raises:
        ConfigError: block_length is below 1.
    """

    layout: FixedCanvas
    sampling: Sampling
    block_length: int = 32
    threshold: float = 0.9
    low_threshold: float = 0.4

    def __post_init__(self) -> None:
        check_at_least(1, "block_length", self.block_length)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and all masks of the answer."""
        return self.layout.lay_out(prompt_ids, max_tokens)

    def reads(self, canvas: Canvas) -> Reads:
        """The open positions up to the end of the active block."""
        return _block_reads(canvas, self.block_length, self.layout)

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Decides positions of the active block."""
        ids_R = draw(canvas, belief, random, self.sampling, self.layout.mask_token_id)
        confidence_R = probability(belief.logits_RV, ids_R, dtype=torch.float64)
        chosen = above_threshold(confidence_R, self.threshold)
        chosen |= best_of_runs(confidence_R, belief.predicts_R, self.low_threshold)
        return decide(canvas, belief.predicts_R[chosen], ids_R[chosen], self.layout)


@dataclass(frozen=True, kw_only=True)
class Credits:
    """What positions of the active block have been predicted so far.

    Attributes:
        end: where the block ends.
        entries: (position, token, credit), at most one per position and token.
    """

    end: int
    entries: tuple[tuple[int, int, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Credit:
    """Threshold decoding on logits that are raised for tokens predicted again and again at their position.

    Each step multiplies all credits by `decay`, adds probability ** `sharpness` to the most likely token of every open
    position, and adds `weight` * log(1 + credit) to the logits. Credits are forgotten when the block is done.

    Attributes:
        layout: the canvas.
        sampling: how tokens are drawn from the raised logits.
        block_length: positions of a block.
        threshold: decide all whose confidence under the raised logits reaches it, and always the surest.
        decay, sharpness, weight: see above.

    Published settings: decay 0.8, sharpness 0.2, weight 0.7.

    Source: CreditDecoding, arXiv 2510.06133, as released in dInfer.
    Departs from the source: ties go to the lowest position; the mask is never drawn and gets no credit; positions
    after a decided EOS are left alone.

    Raises:
        ConfigError: block_length is below 1.
    """

    layout: FixedCanvas
    sampling: Sampling
    block_length: int = 32
    threshold: float = 0.9
    decay: float = 0.8
    sharpness: float = 0.2
    weight: float = 0.7

    def __post_init__(self) -> None:
        check_at_least(1, "block_length", self.block_length)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and all masks of the answer."""
        return self.layout.lay_out(prompt_ids, max_tokens)

    def reads(self, canvas: Canvas) -> Reads:
        """The open positions up to the end of the active block."""
        return _block_reads(canvas, self.block_length, self.layout)

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Decides positions of the active block; `memory` holds the credits."""
        belief.logits_RV[:, [self.layout.mask_token_id, *self.sampling.banned_ids]] = -torch.inf
        credits_ = self._credits(canvas, belief)
        row_of = {int(position): row for row, position in enumerate(belief.predicts_R)}
        for position, token, credit in credits_.entries:
            if position in row_of:
                belief.logits_RV[row_of[position], token] += self.weight * float(np.log1p(credit))
        ids_R = draw(canvas, belief, random, self.sampling, self.layout.mask_token_id)
        chosen = above_threshold(probability(belief.logits_RV, ids_R, dtype=torch.float64), self.threshold)
        return decide(canvas, belief.predicts_R[chosen], ids_R[chosen], self.layout, memory=credits_)

    def _credits(self, canvas: Canvas, belief: Belief) -> Credits:
        """The credits after this step's forward, those of decided positions left out."""
        end = _block(canvas, self.block_length).end
        before = canvas.memory.entries if isinstance(canvas.memory, Credits) and canvas.memory.end == end else ()
        credit = {(position, token): self.decay * value for position, token, value in before if canvas.open_L[position]}
        top_R, ids_R = belief.logits_RV.double().softmax(-1).max(-1)
        for position, token, top in zip(belief.predicts_R.tolist(), ids_R.tolist(), top_R.tolist(), strict=True):
            credit[position, token] = credit.get((position, token), 0.0) + top**self.sharpness
        return Credits(end=end, entries=tuple((position, token, value) for (position, token), value in credit.items()))


def within_entropy(entropy_R: FloatArray, gamma: float) -> int:
    """Longest prefix of rows, given surest first, whose entropies but the largest add up to at most `gamma` nats."""
    excess_R = entropy_R.cumsum() - np.maximum.accumulate(entropy_R)
    beyond = np.flatnonzero(excess_R > gamma)
    return max(int(beyond[0]) if beyond.size else entropy_R.shape[0], 1)


@dataclass(frozen=True, kw_only=True)
class EntropyBounded:
    """Decides the positions of lowest entropy as long as what they could owe one another stays below a bound.

    The sum of entropies minus the largest bounds the mutual information that deciding the positions at once ignores.

    Attributes:
        layout: the canvas.
        sampling: how tokens are drawn; entropies are those of the distribution at temperature 1.
        block_length: positions of a block.
        gamma: the bound in nats; 0 decides one position per step (and those without any doubt).

    Published settings: gamma 0.1 (256-token canvases) to 0.6 (blocks of 4); 0.001 is nearly sequential.

    Source: EB-Sampler, arXiv 2505.24857 (entropy-bounded unmasking), with entropy as the proxy that orders positions.
    Departs from the source: ties go to the lowest position; the mask is never drawn; positions after a decided EOS
    are left alone.

    Raises:
        ConfigError: block_length is below 1.
    """

    layout: FixedCanvas
    sampling: Sampling
    block_length: int = 32
    gamma: float = 0.1

    def __post_init__(self) -> None:
        check_at_least(1, "block_length", self.block_length)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and all masks of the answer."""
        return self.layout.lay_out(prompt_ids, max_tokens)

    def reads(self, canvas: Canvas) -> Reads:
        """The open positions up to the end of the active block."""
        return _block_reads(canvas, self.block_length, self.layout)

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Decides positions of the active block."""
        ids_R = draw(canvas, belief, random, self.sampling, self.layout.mask_token_id)
        entropy_R = torch.special.entr(belief.logits_RV.double().softmax(-1)).sum(-1).numpy()
        surest = best(-entropy_R, entropy_R.shape[0])
        chosen = surest[: within_entropy(entropy_R[surest], self.gamma)]
        return decide(canvas, belief.predicts_R[chosen], ids_R[chosen], self.layout)
