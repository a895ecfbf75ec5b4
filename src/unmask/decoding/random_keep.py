"""DiffuGPT's and DiffuLLaMA's rule: chance says which positions keep their token, then the model looks again."""

from dataclasses import dataclass

import numpy as np

from unmask.core.canvas import Canvas, Delta, IntArray
from unmask.core.errors import ConfigError
from unmask.core.plan import Reads
from unmask.decoding.belief import Belief
from unmask.decoding.fixed_canvas import FixedCanvas, decide, draw, numbers, reads_of, wanted
from unmask.decoding.randomness import Purpose, RandomStream
from unmask.decoding.sampling import Sampling


@dataclass(frozen=True, kw_only=True)
class RandomKeep:
    """Each of T forwards draws all open positions anew; after forward k (from 0) each is kept with chance 1 / (T - k).

    Attributes:
        layout: the canvas; its position 0 must be given, because the logits of these models are shifted.
        sampling: how tokens are drawn.
        steps: T, >= 1.
        parity: as the reference implementation: all T forwards are run, and no early stop at EOS.

    Published settings: 64 steps, top_p 0.9, temperature 0.95 (DiffuGPT) or 0.9 (DiffuLLaMA).

    Source: DiffuLLaMA, arXiv 2410.17891, and its released `generate_samples` (random keep).
    Departs from the source: unless `parity`, forwards after which nothing would be kept are skipped (the next one
    would see the same canvas: the same law), and positions after a decided EOS are left alone.

    Raises:
        ConfigError: steps is below 1.
    """

    layout: FixedCanvas
    sampling: Sampling
    steps: int = 64
    parity: bool = False

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ConfigError(f"steps must be at least 1, got {self.steps}")

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and all masks of the answer."""
        return self.layout.lay_out(prompt_ids, max_tokens)

    def reads(self, canvas: Canvas) -> Reads:
        """Every open position that is still wanted."""
        return reads_of(canvas, wanted(canvas, self.layout.stops(parity=self.parity)))

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Keeps some tokens; `memory` counts the steps of the schedule."""
        ids_R = draw(canvas, belief, random, self.sampling, self.layout.banned(parity=self.parity))
        step = canvas.memory if isinstance(canvas.memory, int) else 0
        kept = self._kept(canvas, belief, step, random)
        while not kept.size and not self.parity:
            step += 1
            kept = self._kept(canvas, belief, step, random)
        more = self.parity and step + 1 < self.steps
        return decide(
            canvas,
            belief.predicts_R[kept],
            ids_R[kept],
            self.layout,
            parity=self.parity,
            memory=step + 1,
            more=more,
            closing=0 if more or not self.parity else canvas.length,
        )

    def _kept(self, canvas: Canvas, belief: Belief, step: int, random: RandomStream) -> IntArray:
        chances = np.array(numbers(canvas, belief.predicts_R, random, Purpose.ORDER, step))
        return np.flatnonzero(chances < 1 / max(self.steps - step, 1))
