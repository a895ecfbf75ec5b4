"""The canvas (what a sequence looks like now) and the delta (what one denoising step changes)."""

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

# Shape legend: L canvas length, W number of writes.
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Delta:
    """The outcome of one denoising step: unmask, edit, remask and opening the next window are all writes.

    Attributes:
        positions_W: absolute positions written, int64, distinct, below `length`; a longer canvas must have every
            position after its old end written.
        ids_W: token ids written there, int64.
        open_W: whether the written position stays undecided (masked, or a draft still to be verified).
        num_final: length of the canvas prefix that is final for ever after this step; never decreases.
            Streams and caches read this and nothing else.
        window_start: first position of the active window after this step.
        length: length of the canvas after this step; a shorter canvas drops undecided positions at its end.
        memory: what the rule wants to find on the next canvas; nobody else looks at it.
    """

    positions_W: IntArray
    ids_W: IntArray
    open_W: BoolArray
    num_final: int
    window_start: int
    length: int
    memory: Hashable = None


@dataclass(frozen=True, kw_only=True)
class Canvas:
    """One sequence between two forwards. Immutable: `apply` returns the next one.

        | prompt | final answer | drafts to verify | window: masked and decided positions |
                 ^prompt_length ^num_final         ^window_start                         ^length

    In diffusion mode there are no drafts; the window then starts at or before `num_final` (it may begin with frozen
    prompt positions). In AR mode there is no window, and drafts only if something speculates. Undecided positions are
    those with `open_L` set, NEVER those whose id happens to be the mask token: a prompt may hold the mask token.

    Attributes:
        ids_L: token ids, int64. An open position holds the mask id or a draft.
        open_L: positions still undecided.
        prompt_length: number of frozen leading positions.
        num_final: leading positions that are final for ever; >= prompt_length.
        window_start: first position of the active window.
        limit: position at which the answer must end (prompt_length + max_tokens); the window may reach past it.
        block: 0-based number of the active window (part of the random stream's key).
        step: 0-based number of denoising steps taken in the active window.
        memory: the rule's own notes between two steps (a frozen value), None at first.
    """

    ids_L: IntArray
    open_L: BoolArray
    prompt_length: int
    num_final: int
    window_start: int
    limit: int
    block: int = 0
    step: int = 0
    memory: Hashable = None

    @property
    def length(self) -> int:
        """Number of positions on the canvas."""
        return int(self.ids_L.shape[0])

    @property
    def answer_L(self) -> IntArray:
        """The final answer ids so far."""
        return self.ids_L[self.prompt_length : self.num_final]

    def apply(self, delta: Delta) -> "Canvas":
        """Returns the canvas after `delta`.

        Raises:
            ValueError: a write hits a final position or leaves a gap, or the final prefix would shrink or be open.
        """
        positions, kept = delta.positions_W, min(self.length, delta.length)
        if positions.size and not self.num_final <= int(positions.min()) <= int(positions.max()) < delta.length:
            raise ValueError(f"writes must lie in [{self.num_final}, {delta.length})")
        if np.unique(positions).size != positions.size:
            raise ValueError("a position is written twice")
        if (positions >= self.length).sum() != delta.length - kept:
            raise ValueError("the writes leave a gap after the canvas's old end")
        ids_L, open_L = np.zeros(delta.length, np.int64), np.zeros(delta.length, np.bool_)
        ids_L[:kept], open_L[:kept] = self.ids_L[:kept], self.open_L[:kept]
        ids_L[positions], open_L[positions] = delta.ids_W, delta.open_W
        if not self.num_final <= delta.num_final <= delta.length:
            raise ValueError(f"final prefix {delta.num_final} outside [{self.num_final}, {delta.length}]")
        if open_L[: delta.num_final].any():
            raise ValueError("an open position lies inside the final prefix")
        moved = delta.window_start != self.window_start
        return replace(
            self,
            ids_L=ids_L,
            open_L=open_L,
            num_final=delta.num_final,
            window_start=delta.window_start,
            block=self.block + moved,
            step=0 if moved else self.step + 1,
            memory=delta.memory,
        )
