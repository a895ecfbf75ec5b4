"""SDAR: block diffusion whose steps follow a quota, a confidence, the reading order or an entropy budget."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch

from unmask.core.canvas import BoolArray, Canvas, Delta, IntArray
from unmask.core.errors import ConfigError
from unmask.core.plan import Reads
from unmask.decoding.belief import Belief
from unmask.decoding.block_steps import (
    FloatArray,
    by_floor,
    check_block,
    even_quotas,
    generated_reads,
    open_reads,
    propose,
    settle,
)
from unmask.decoding.randomness import RandomStream
from unmask.decoding.rules import Window
from unmask.decoding.sampling import Sampling

# Shape legend: R rows read, B positions of a block.


class Strategy(StrEnum):
    """Which masked positions a step decides; the names are those of the official code.

    STATIC: as many as the step's quota, the most confident first.
    DYNAMIC: all above the threshold if they fill the quota, else as STATIC.
    SEQUENTIAL: as many as the step's quota, from left to right.
    ENTROPY_BOUNDED: the most certain ones while their joint entropy stays bounded; the quota plays no part.
    """

    STATIC = "low_confidence_static"
    DYNAMIC = "low_confidence_dynamic"
    SEQUENTIAL = "sequential"
    ENTROPY_BOUNDED = "entropy_bounded"


@dataclass(frozen=True, kw_only=True)
class SdarSchedule:
    """How fast a block is decided.

    Attributes:
        strategy: see `Strategy`.
        num_steps: steps a block of B is spread over: its quotas are B / num_steps, the larger ones first.
        threshold: confidence that DYNAMIC asks for (strictly above).
        entropy_bound: nats that ENTROPY_BOUNDED allows.
    """

    strategy: Strategy = Strategy.DYNAMIC
    num_steps: int = 4
    threshold: float = 0.85
    entropy_bound: float = 0.35

    def __post_init__(self) -> None:
        if self.num_steps < 1:
            raise ConfigError(f"num_steps must be at least 1, got {self.num_steps}")


SDAR_B4_SPEED = SdarSchedule()
"""SDAR-Chat with blocks of 4, as its command line runs it: dynamic, 0.85."""
SDAR_B4_QUALITY = SdarSchedule(strategy=Strategy.STATIC)
"""SDAR-Chat with blocks of 4, one token per forward."""
SDAR_B8_SPEED = SdarSchedule(num_steps=8)
"""The defaults of the official function: blocks of 8, dynamic, 0.85."""
SDAR_SERVED = SdarSchedule(threshold=0.9)
"""The threshold that LMDeploy and JetEngine serve SDAR with."""


@dataclass(frozen=True, kw_only=True)
class Sdar:
    """Decodes SDAR and TraDo checkpoints.

    Source: SDAR, arXiv 2510.06303, and `block_diffusion_generate` of its code; ENTROPY_BOUNDED is the rule of the
    EB-Sampler, arXiv 2505.24857 section 4 (the branch of that name in SDAR's code does not run).
    Departs from the source: storing a block's keys is not a forward of its own but part of the next block's first;
    a confidence is the probability of the likeliest token at temperature 1, so that what is decided does not depend
    on the draw; ties go to the lowest position; an answer ends at an EOS as soon as nothing before it is open, and what
    stands behind a decided EOS is not decided any more; the mask id is never predicted.

    With `parity` a block is decided whole, positions past the limit and behind an EOS included, an EOS counts only once
    its block is done, the mask id may be predicted (its position then stays masked), and a quota larger than the
    masks left also overwrites decided positions, as `torch.topk` picks them among equals. Only two things stay
    different: a prompt token is never overwritten, and where the official code fails (masks left after the last
    step) the rest is decided at once with the mask id banned.

    Attributes:
        window: one block.
        sampling: how tokens are drawn.
        schedule: which positions a step decides.
        parity: reproduce the official code, quirks included.
    """

    window: Window
    sampling: Sampling
    schedule: SdarSchedule = SDAR_B4_SPEED
    parity: bool = False

    def __post_init__(self) -> None:
        check_block(self.window)
        if self.parity and self.schedule.strategy is Strategy.ENTROPY_BOUNDED:
            raise ConfigError("entropy_bounded has no official behaviour to reproduce; leave parity off")

    def reads(self, canvas: Canvas) -> Reads:
        """The masked positions; with `parity` all generated ones where a quota may reach decided positions."""
        if self.parity and self._quota(canvas) > canvas.open_L[canvas.window_start :].sum():
            return generated_reads(canvas, past_limit=True)
        return open_reads(canvas, self.window, all_of_block=self.parity)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and the rest of its last block (or a block of masks)."""
        return self.window.lay_out(prompt_ids, max_tokens)

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Decides positions by the schedule."""
        late = self.parity and canvas.step >= self.schedule.num_steps
        banned_id = None if self.parity and not late else self.window.mask_token_id
        ids_R, confidence_R = propose(canvas, belief, random, self.sampling, banned_id=banned_id)
        open_R = canvas.open_L[belief.predicts_R]
        quota = self._quota(canvas)
        if late:
            chosen_R = open_R
        elif self.schedule.strategy is Strategy.SEQUENTIAL:
            chosen_R = open_R & (np.cumsum(open_R) <= quota)
        elif self.schedule.strategy is Strategy.ENTROPY_BOUNDED:
            chosen_R = self._within_entropy(belief, open_R)
        else:
            chosen_R = self._confident(canvas, belief.predicts_R, np.where(open_R, confidence_R, -np.inf), quota)
        return settle(canvas, self.window, belief.predicts_R[chosen_R], ids_R[chosen_R], whole_blocks=self.parity)

    def _quota(self, canvas: Canvas) -> int:
        quotas = even_quotas(self.window.size, self.schedule.num_steps)
        return max(quotas[canvas.step], 1) if canvas.step < len(quotas) else 1

    def _confident(self, canvas: Canvas, predicts_R: IntArray, confidence_R: FloatArray, quota: int) -> BoolArray:
        threshold = self.schedule.threshold if self.schedule.strategy is Strategy.DYNAMIC else np.inf
        if not self.parity or (confidence_R > threshold).sum() >= quota:
            return by_floor(confidence_R, threshold, quota) & np.isfinite(confidence_R)
        confidence_B = torch.full((self.window.size,), -torch.inf)
        confidence_B[predicts_R - canvas.window_start] = torch.from_numpy(confidence_R.astype(np.float32))
        top_B = confidence_B.topk(min(quota, self.window.size)).indices.numpy()
        return np.isin(predicts_R - canvas.window_start, top_B)

    def _within_entropy(self, belief: Belief, open_R: BoolArray) -> BoolArray:
        """The longest run of most certain rows whose summed entropy without the largest one stays in the bound."""
        entropy_R = torch.special.entr(belief.logits_RV.double().softmax(-1)).sum(-1).numpy()
        order_R = np.argsort(np.where(open_R, entropy_R, np.inf), kind="stable")[: int(open_R.sum())]
        sorted_R = entropy_R[order_R]
        within_R = np.cumsum(sorted_R) - sorted_R <= self.schedule.entropy_bound
        chosen_R = np.zeros(open_R.shape, np.bool_)
        chosen_R[order_R[within_R]] = True
        return chosen_R
