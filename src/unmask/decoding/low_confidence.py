"""Rules with a fixed number of decisions per step, block after block: LLaDA's and dllm's MDLM sampler."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch

from unmask.core.canvas import Canvas, Delta, IntArray
from unmask.core.plan import Reads
from unmask.decoding.belief import Belief
from unmask.decoding.fixed_canvas import (
    FixedCanvas,
    FloatArray,
    Turn,
    best,
    check_at_least,
    check_one_of,
    current_turn,
    decide,
    draw,
    is_last_turn,
    numbers,
    probability,
    reads_of,
    wanted,
)
from unmask.decoding.randomness import Purpose, RandomStream
from unmask.decoding.sampling import Sampling

# Shape legend: R rows read.
Order = Literal["low_confidence", "random"]
Schedule = Literal["even", "linear"]


def even_counts(num_masks: int, steps: int) -> tuple[int, ...]:
    """Decisions per step, as equal as can be, the larger ones first: 10 masks in 4 steps are 3, 3, 2, 2.

    Source: LLaDA, arXiv 2502.09992 appendix B, and the released `generate`.
    """
    share, rest = divmod(num_masks, steps)
    return tuple(share + (step < rest) for step in range(steps))


def linear_counts(num_masks: int, steps: int) -> tuple[int, ...]:
    """Decisions per step under the linear schedule: round(masks left * reveal probability), halves to even.

    Source: MDLM, arXiv 2406.07524, in expectation instead of by chance, as the dllm sampler does; its
    time arithmetic in float32 is kept because it decides which way a half is rounded.
    """
    counts: list[int] = []
    left = num_masks
    for step in range(steps):
        later, now = np.float32((steps - step - 1) / steps), np.float32((steps - step) / steps)
        one = np.float32(1)
        reveal = one - (one - (one - later)) / (one - (one - now))
        counts.append(min(round(left * float(reveal)), left))
        left -= counts[-1]
    return tuple(counts)


_COUNTS: dict[Schedule, Callable[[int, int], tuple[int, ...]]] = {"even": even_counts, "linear": linear_counts}


@dataclass(frozen=True, kw_only=True)
class LowConfidence:
    """Decides a scheduled number of positions per step, the most confident first, one block after the other.

    Attributes:
        layout: the canvas.
        sampling: how tokens are drawn. `banned_ids` are removed before the choice and before confidences are taken
            (LLaDA's `logits_eos_inf` bans EOS, dllm's `suppress_tokens` bans those).
        block_length: positions of a block; attention is full all the same.
        steps_per_block: steps a block takes, 0 for one position per step.
        order: confidences are the probabilities of the drawn tokens ("low_confidence") or random numbers ("random").
        schedule: "even" (LLaDA) or "linear" (dllm's MDLM sampler).
        late_ids: tokens whose confidence is 0 (LLaDA's `confidence_eos_eot_inf`: EOS and end of turn; dllm's
            `begin_suppress_tokens`), so that positions predicting them are decided last.
        guidance: scale of classifier-free guidance. The belief must hold guided logits already (`guided`).
        parity: as the reference implementation: float32 confidences, ties as torch.topk has them, steps that decide
            nothing are run, no early stop at EOS, and a predicted mask leaves its position open till the last step.

    Published settings. LLaDA-8B-Instruct: block_length 8, 256 tokens, one per step (GSM8K); 64 and 512 (MATH);
    one block with `late_ids` (GSM8K, MATH, GPQA, MBPP) or EOS banned (HumanEval). LLaDA-1.5: blocks of 16 to 128 with
    `late_ids`. LLaDA-Base: one block. dllm's A2D models: one block of 128 in 128 steps, schedule "linear".

    Source: LLaDA, arXiv 2502.09992 appendix B (low-confidence remasking, semi-autoregressive blocks) and its released
    `generate`; dllm's `MDLMSampler.sample` and `.infill`.
    Departs from the source: tokens are drawn from a counter stream by inverting the distribution in float64 (the same
    law as Gumbel-max in float64); unless `parity`, confidences are float64, ties go to the lowest position, steps that
    would decide nothing are skipped, and positions after a decided EOS are left alone. At temperature above 0 the
    released code gives confidence 0 to end of turn only; here all `late_ids` have it.

    Raises:
        ConfigError: block_length is below 1, steps_per_block below 0, or a name is unknown.
    """

    layout: FixedCanvas
    sampling: Sampling
    block_length: int = 32
    steps_per_block: int = 0
    order: Order = "low_confidence"
    schedule: Schedule = "even"
    late_ids: tuple[int, ...] = ()
    guidance: float = 0.0
    parity: bool = False

    def __post_init__(self) -> None:
        check_at_least(1, "block_length", self.block_length)
        check_at_least(0, "steps_per_block", self.steps_per_block)
        check_one_of("remasking order", self.order, get_args(Order))
        check_one_of("schedule", self.schedule, get_args(Schedule))

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and all masks of the answer."""
        return self.layout.lay_out(prompt_ids, max_tokens)

    def reads(self, canvas: Canvas) -> Reads:
        """The open positions up to the end of the active block."""
        return reads_of(canvas, self._wanted(canvas, self._turn(canvas)))

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Decides this step's share of the active block."""
        turn = self._turn(canvas)
        count, later = turn.counts[0], turn.counts[1:]
        ids_R = draw(canvas, belief, random, self.sampling, self.layout.banned(parity=self.parity))
        chosen = best(self._confidence(canvas, belief, ids_R, random), count, parity=self.parity)
        last = not later and is_last_turn(canvas, turn)
        return decide(
            canvas,
            belief.predicts_R[chosen],
            ids_R[chosen],
            self.layout,
            parity=self.parity,
            memory=Turn(end=turn.end, counts=later),
            more=self.parity and not last,
            closing=canvas.length if self.parity and last else 0,
        )

    def _turn(self, canvas: Canvas) -> Turn:
        return current_turn(canvas, self.block_length, self._counts, idle=self.parity)

    def _counts(self, num_open: int) -> tuple[int, ...]:
        counts = _COUNTS[self.schedule](num_open, self.steps_per_block or num_open)
        if self.parity and self.schedule == "even":
            return counts
        return tuple(count for count in counts if count)

    def _wanted(self, canvas: Canvas, turn: Turn) -> IntArray:
        return wanted(canvas, self.layout.stops(parity=self.parity), turn.end)

    def _confidence(self, canvas: Canvas, belief: Belief, ids_R: IntArray, random: RandomStream) -> FloatArray:
        if self.order == "random":
            return np.array(numbers(canvas, belief.predicts_R, random, Purpose.ORDER))
        dtype = torch.float32 if self.parity else torch.float64
        return probability(belief.logits_RV, ids_R, self.late_ids, dtype=dtype)
