"""Remasking: a decided position may become a mask again, so that more steps buy better text."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch

from unmask.core.canvas import BoolArray, Canvas, Delta, IntArray
from unmask.core.errors import ConfigError
from unmask.core.plan import Reads
from unmask.decoding.belief import Belief
from unmask.decoding.fixed_canvas import FixedCanvas, FloatArray, check_one_of, draw, numbers, probability, reads_of
from unmask.decoding.randomness import Purpose, RandomStream
from unmask.decoding.rules import final_prefix
from unmask.decoding.sampling import Sampling

# Shape legend: R rows read, L canvas length.
Strategy = Literal["cap", "rescale", "confidence"]


def remask_chance(now: float, later: float, eta: float, strategy: Strategy) -> float:
    """Chance sigma that a decided position becomes a mask in the step from time `now` to `later` < `now`.

    Its largest allowed value is min(1, later / (1 - now)) under the linear schedule (a position is masked at time t
    with probability t). "cap" cuts that at eta; "rescale" and "confidence" multiply it by eta.

    Source: ReMDM, arXiv 2503.00307 section 4.1.
    """
    largest = 1.0 if now >= 1 else min(1.0, later / (1 - now))
    return min(eta, largest) if strategy == "cap" else eta * largest


def unmask_chance(now: float, later: float, sigma: float) -> float:
    """Chance that a masked position is decided in that step, such that the share of masks at any time is unchanged.

    (alpha(later) - (1 - sigma) * alpha(now)) / (1 - alpha(now)) with alpha(t) = 1 - t.

    Source: ReMDM, arXiv 2503.00307 section 3.1.
    """
    if later <= 0:
        return 1.0  # not a rounding error below it: the last step must leave nothing masked
    return min(1.0, max(0.0, ((1 - later) - (1 - sigma) * (1 - now)) / now))


@dataclass(frozen=True, kw_only=True)
class Revision:
    """Where the schedule stands.

    Attributes:
        time: steps taken.
        confidences: probability that each decided position's token had when it was drawn, as (position, probability).
    """

    time: int = 0
    confidences: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Remask:
    """Ancestral sampling in which decided positions return to the mask by chance (ReMDM).

    In the step from t to s, masked positions are decided with `unmask_chance` and decided ones are masked again with
    `remask_chance`. Nothing of the answer is final before the last step, which decides every mask and remasks none.

    Attributes:
        layout: the canvas; its `eos_ids` cut the answer at the end.
        sampling: how tokens are drawn; temperature 1 is the model's own distribution.
        steps: time steps, >= 1; more give better text.
        eta: strength; 0 is plain ancestral sampling.
        strategy: "cap", "rescale" (see `remask_chance`), or "confidence": the chance is shared out among the decided
            positions by softmax(-confidence), so that doubtful ones return more often.
        switch: remask only at times up to it, in (0, 1]; 1 always does.

    Settings: temperature 1 and top_p 0.9, with as many steps as positions or more.

    Source: ReMDM, arXiv 2503.00307 sections 3 and 4, linear schedule.
    Departs from the source: steps for which nothing is masked need no forward and are taken at once; the mask is never
    drawn. "confidence" leaves masked positions at the plain chance. ReMDM-loop is not offered.

    Raises:
        ConfigError: steps, eta or switch is out of range, or the strategy is unknown.
    """

    layout: FixedCanvas
    sampling: Sampling
    steps: int = 512
    eta: float = 0.02
    strategy: Strategy = "cap"
    switch: float = 1.0

    def __post_init__(self) -> None:
        check_one_of("strategy", self.strategy, get_args(Strategy))
        if self.steps < 1 or not 0 <= self.eta <= 1 or not 0 < self.switch <= 1:
            raise ConfigError("remasking needs steps >= 1, eta in [0, 1] and switch in (0, 1]")

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and all masks of the answer."""
        return self.layout.lay_out(prompt_ids, max_tokens)

    def reads(self, canvas: Canvas) -> Reads:
        """Every open position."""
        return reads_of(canvas, np.flatnonzero(canvas.open_L))

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Decides and remasks; then goes on without a forward as long as nothing is masked."""
        revision = canvas.memory if isinstance(canvas.memory, Revision) else Revision()
        ids_R = draw(canvas, belief, random, self.sampling, self.layout.mask_token_id)
        confidence_R = probability(belief.logits_RV, ids_R, dtype=torch.float64)
        known = dict(revision.confidences)
        ids_L, open_L, time = canvas.ids_L.copy(), canvas.open_L.copy(), revision.time
        remasked = self._remasked(canvas, open_L, known, time, random)
        chances = np.array(numbers(canvas, belief.predicts_R, random, Purpose.ORDER, time))
        decided = chances < self._unmask_chance(time)
        ids_L[belief.predicts_R[decided]], open_L[belief.predicts_R[decided]] = ids_R[decided], False
        known.update(zip(belief.predicts_R[decided].tolist(), confidence_R[decided].tolist(), strict=True))
        ids_L[remasked], open_L[remasked] = self.layout.mask_token_id, True
        time += 1
        while time < self.steps and not open_L.any():
            remasked = self._remasked(canvas, open_L, known, time, random)
            ids_L[remasked], open_L[remasked] = self.layout.mask_token_id, True
            time += 1
        return self._delta(canvas, ids_L, open_L, Revision(time=time, confidences=tuple(sorted(known.items()))))

    def _times(self, time: int) -> tuple[float, float]:
        return (self.steps - time) / self.steps, (self.steps - time - 1) / self.steps

    def _sigma(self, time: int) -> float:
        now, later = self._times(time)
        return remask_chance(now, later, self.eta, self.strategy) if now <= self.switch else 0.0

    def _unmask_chance(self, time: int) -> float:
        return unmask_chance(*self._times(time), 0.0 if self.strategy == "confidence" else self._sigma(time))

    def _remasked(
        self, canvas: Canvas, open_L: BoolArray, known: dict[int, float], time: int, random: RandomStream
    ) -> IntArray:
        """Positions that become masks in this step, of those that this rule decided (a given text stays)."""
        decided = np.array([position for position in sorted(known) if not open_L[position]], np.int64)
        sigma: float | FloatArray = self._sigma(time)
        if self.strategy == "confidence" and decided.size:
            doubts = np.exp(-np.array([known[int(position)] for position in decided]))
            sigma = sigma * doubts / doubts.sum()
        return decided[np.array(numbers(canvas, decided, random, Purpose.REMASK, time)) < sigma]

    def _delta(self, canvas: Canvas, ids_L: IntArray, open_L: BoolArray, revision: Revision) -> Delta:
        changed = np.flatnonzero((ids_L != canvas.ids_L) | (open_L != canvas.open_L))
        num_final = canvas.num_final
        if revision.time >= self.steps:
            num_final = max(num_final, final_prefix(ids_L, open_L, canvas, self.layout.eos_ids))
        return Delta(
            positions_W=changed,
            ids_W=ids_L[changed],
            open_W=open_L[changed],
            num_final=num_final,
            window_start=0,
            length=canvas.length,
            memory=revision,
        )
