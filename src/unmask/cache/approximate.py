"""Approximate key/value caches of fully bidirectional models: refreshed at each block, stale in between.

Every key and value of such a model depends on every token of the canvas, so none can be reused exactly. These caches
reuse them all the same: logits differ a little from those of a whole forward, and so may the text. They belong to one
sequence, are never shared, and hold nothing that another request could build on (`stored` stays 0).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from unmask.cache.block_causal import BlockCausalCache, CacheShape
from unmask.core.canvas import Canvas, Delta
from unmask.core.errors import ConfigError
from unmask.core.plan import Plan, Reads

# Shape legend: R rows read, T rows fed.
ApproximateKind = Literal["prefix", "dual"]


@dataclass(frozen=True, kw_only=True)
class Reuse:
    """How stale keys and values are reused.

    Attributes:
        kind: what is fed between two refreshes. "prefix": the active block and everything after it, so that only what
            stands before the block is stale. "dual": the active block alone, so that the masks after it are stale too.
        block_length: positions of a block, counted from the start of the answer as the decoding rule counts them.
        refresh_every: feed the whole canvas in every so-manieth forward of a block as well; 1 makes the cache exact
            (and useless), 0 refreshes at the start of a block only.

    Raises:
        ConfigError: block_length is below 1 or refresh_every is negative.

    Source: Fast-dLLM, arXiv 2505.22618 section 3.2 (prefix cache, dual cache), refresh rule of the released code.
    Departs from the source: keys are kept after the rotation (positions never move, so only rounding differs);
    `refresh_every`.
    """

    kind: ApproximateKind
    block_length: int = 32
    refresh_every: int = 0

    def __post_init__(self) -> None:
        if self.block_length < 1 or self.refresh_every < 0:
            raise ConfigError("a cache needs block_length >= 1 and refresh_every >= 0")


class ApproximateCache(BlockCausalCache):
    """Keys and values of one fixed canvas, fresh for the rows of the last forward and stale for all others.

    Works with any rule on a fixed canvas. A rule that reads outside the active block gets whole forwards; it is then
    exact and no faster. Prompts are not prefilled in pieces, because every row sees the whole canvas.

    Args:
        shape: sizes; `align` is not used.
        reuse: what is fed when.
        capacity: positions to reserve at once.
    """

    def __init__(self, shape: CacheShape, reuse: Reuse, capacity: int = 0) -> None:
        super().__init__(shape, capacity)
        self.reuse = reuse
        self._block = -1
        self._age = 0

    def plan(self, canvas: Canvas, reads: Reads, *, max_rows: int | None = None) -> Plan:
        """The whole canvas when a block begins, later the rows that `Reuse.kind` names.

        Args:
            canvas: a fixed canvas: its window starts at position 0.
            reads: the predictions the rule asks for; the first one tells the active block.
            max_rows: not used; see the class.

        Raises:
            ValueError: the canvas has clean rows before its window, so it is not a fixed one.
        """
        if canvas.window_start != 0:
            raise ValueError("an approximate cache serves fixed canvases, whose window starts at position 0")
        row_at_R = reads.predicts_R - np.where(reads.causal_R, 1, self.shape.logit_shift)
        start, end = self._fed(canvas, reads)
        if int(row_at_R.min()) < start or int(row_at_R.max()) >= end:
            start, end = 0, canvas.length
        positions_T = np.arange(start, end)
        return Plan(
            ids_T=canvas.ids_L[positions_T],
            positions_T=positions_T,
            visible_T=np.full(positions_T.shape, canvas.length),
            clean_end=0,
            read_R=row_at_R - start,
            predicts_R=reads.predicts_R,
            causal_R=reads.causal_R,
        )

    def observe(self, canvas: Canvas, plan: Plan, delta: Delta | None) -> None:
        """Notes which block the last whole forward was for, and how long ago that was."""
        if plan.ids_T.shape[0] == canvas.length:
            self._block, self._age = self._block_of(canvas, plan.predicts_R), 1
        else:
            self._age += 1

    def _block_of(self, canvas: Canvas, predicts_R: np.ndarray) -> int:
        return (int(predicts_R.min()) - canvas.prompt_length) // self.reuse.block_length

    def _fed(self, canvas: Canvas, reads: Reads) -> tuple[int, int]:
        """First and last position (exclusive) of the rows to feed."""
        block = self._block_of(canvas, reads.predicts_R)
        is_due = bool(self.reuse.refresh_every) and self._age >= self.reuse.refresh_every
        if block != self._block or is_due:
            return 0, canvas.length
        start = canvas.prompt_length + block * self.reuse.block_length
        end = min(start + self.reuse.block_length, canvas.length) if self.reuse.kind == "dual" else canvas.length
        return start, end
