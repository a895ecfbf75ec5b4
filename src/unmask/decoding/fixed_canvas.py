"""What the rules of fully bidirectional models share: the fixed canvas, what is wanted, drawing, ranking, writing.

A fixed canvas holds the prompt and the whole answer from the start; its single window begins at position 0 and never
moves, so nothing on it can be cached exactly, and `block_length` only orders which positions are decided first.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unmask.core.canvas import Canvas, Delta, IntArray
from unmask.core.errors import ConfigError, unknown_name
from unmask.core.plan import Reads
from unmask.decoding.belief import Belief
from unmask.decoding.randomness import Purpose, RandomStream
from unmask.decoding.sampling import Sampling

# Shape legend: L canvas length, R rows read, W writes, V vocabulary, P prompt length.
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class FixedCanvas:
    """How the canvas of a fully bidirectional model is laid out.

    Attributes:
        mask_token_id: id put into open positions.
        eos_ids: ids that end the answer; empty to decide the whole canvas whatever it holds, as the reference
            implementations of this kind of model do.
    """

    mask_token_id: int
    eos_ids: frozenset[int] = frozenset()

    def lay_out(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt, closed, and `max_tokens` open masks."""
        num_prompt = prompt_ids.shape[0]
        masks = np.full(max_tokens, self.mask_token_id, np.int64)
        return Canvas(
            ids_L=np.concatenate((prompt_ids, masks)),
            open_L=np.arange(num_prompt + max_tokens) >= num_prompt,
            prompt_length=num_prompt,
            num_final=num_prompt,
            window_start=0,
            limit=num_prompt + max_tokens,
        )

    def banned(self, *, parity: bool) -> int | None:
        """The mask token, which must never become text; reference implementations do not suppress it."""
        return None if parity else self.mask_token_id

    def stops(self, *, parity: bool) -> frozenset[int]:
        """The ids that end the answer early; reference implementations know none."""
        return frozenset() if parity else self.eos_ids

    def with_holes(self, ids_L: IntArray, open_L: NDArray[np.bool_]) -> Canvas:
        """A text to fill in: all of it is the answer, the ids outside the holes are given.

        Args:
            ids_L: token ids; what stands in a hole is ignored.
            open_L: the holes, bool; position 0 may be one only if the model's logits are not shifted.

        Raises:
            ConfigError: there is no hole.
        """
        holes = np.flatnonzero(open_L)
        if not holes.size:
            raise ConfigError("there is nothing to fill in; mark at least one position as open")
        return Canvas(
            ids_L=np.where(open_L, self.mask_token_id, ids_L),
            open_L=open_L.copy(),
            prompt_length=0,
            num_final=int(holes[0]),
            window_start=0,
            limit=ids_L.shape[0],
        )


def check_at_least(least: int, name: str, value: int) -> None:
    """Refuses a setting that is too small.

    Raises:
        ConfigError: `value` is below `least`; the message holds `name`.
    """
    if value < least:
        raise ConfigError(f"{name} must be at least {least}, got {value}")


def check_one_of(kind: str, name: str, known: Sequence[str]) -> None:
    """Refuses an unknown name.

    Raises:
        ConfigError: `name` is not known; the message lists the known ones and the closest.
    """
    if name not in known:
        raise unknown_name(kind, name, known)


def wanted(canvas: Canvas, eos_ids: frozenset[int], end: int | None = None) -> IntArray:
    """Open positions before `end` and before the first decided EOS: what stands after that one is never seen.

    At least one as long as an open position lies before `end` and no EOS is final.
    """
    end = canvas.length if end is None else min(end, canvas.length)
    if eos_ids:
        ends = np.isin(canvas.ids_L, list(eos_ids)) & ~canvas.open_L
        ends[: canvas.prompt_length] = False
        end = min(end, int(ends.argmax())) if ends.any() else end
    return np.flatnonzero(canvas.open_L[:end])


def reads_of(canvas: Canvas, positions: IntArray) -> Reads:
    """Reads of masked rows; the last position if there are none, because a forward must read something."""
    predicts = positions if positions.size else np.array([canvas.length - 1], np.int64)
    return Reads(predicts_R=predicts, causal_R=np.zeros(predicts.shape, np.bool_))


def numbers(
    canvas: Canvas, positions: IntArray, random: RandomStream, purpose: Purpose, step: int | None = None
) -> list[float]:
    """One uniform number per position; `step` replaces the canvas's own count of steps in the key."""
    return [
        random.uniform(
            block=canvas.block, step=canvas.step if step is None else step, position=int(position), purpose=purpose
        )
        for position in positions
    ]


def draw(canvas: Canvas, belief: Belief, random: RandomStream, sampling: Sampling, banned_id: int | None) -> IntArray:
    """One token per row, int64.

    Args:
        canvas: the canvas that was read.
        belief: its logits are changed in place: those of banned ids become -inf.
        random: one number per position is drawn from it at temperatures above 0.
        sampling: how tokens are drawn.
        banned_id: never drawn, besides those of `sampling`; None bans nothing more.
    """
    if banned_id is not None:
        belief.logits_RV[:, banned_id] = -torch.inf
    uniforms = numbers(canvas, belief.predicts_R, random, Purpose.TOKEN) if sampling.temperature > 0 else []
    return sampling.choose(belief.logits_RV, uniforms)[0].numpy()


def probability(logits_RV: Tensor, ids_R: IntArray, late_ids: Sequence[int] = (), *, dtype: torch.dtype) -> FloatArray:
    """Probability of each row's token at temperature 1.

    Args:
        logits_RV: float32.
        ids_R: one token per row.
        late_ids: tokens whose probability counts as 0, so that positions predicting them are decided last.
        dtype: of the softmax. Reference implementations differ, and what is 1 in one is below it in another.
    """
    if late_ids:
        logits_RV = logits_RV.index_fill(-1, torch.tensor(late_ids), -torch.inf)
    shares_RV = logits_RV.to(dtype).softmax(-1)
    return shares_RV.gather(-1, torch.from_numpy(ids_R)[:, None]).squeeze(-1).double().numpy()


def best(confidence_R: FloatArray, count: int, *, parity: bool = False) -> IntArray:
    """Indices of the `count` largest confidences, best first; ties to the lowest, or (parity) as torch.topk does."""
    count = min(count, confidence_R.shape[0])
    if parity:
        return torch.from_numpy(confidence_R).topk(count).indices.numpy()
    return np.argsort(-confidence_R, kind="stable")[:count]


def decide(
    canvas: Canvas,
    positions_W: IntArray,
    ids_W: IntArray,
    layout: FixedCanvas,
    *,
    parity: bool = False,
    memory: Hashable = None,
    more: bool = False,
    closing: int = 0,
) -> Delta:
    """Writes tokens into open positions. One whose predicted token is the mask stays open.

    Args:
        canvas: before the step.
        positions_W: positions; a closed one (a step with nothing to decide reads one) keeps its token.
        ids_W: their tokens.
        layout: what the mask is, and which ids end the final prefix.
        parity: none does.
        memory: for the next step.
        more: steps follow even if nothing is open, so not everything may be final yet.
        closing: open positions before it become final as they are: the model insists on the mask, and no step follows.
    """
    kept = (ids_W != layout.mask_token_id) & canvas.open_L[positions_W]
    positions_W, ids_W = positions_W[kept], ids_W[kept]
    ids_L, open_L = canvas.ids_L.copy(), canvas.open_L.copy()
    ids_L[positions_W], open_L[positions_W] = ids_W, False
    left = np.flatnonzero(open_L[:closing])
    positions_W, ids_W = np.concatenate((positions_W, left)), np.concatenate((ids_W, ids_L[left]))
    open_L[left] = False
    undecided = np.flatnonzero(open_L)
    num_final = int(undecided[0]) if undecided.size else canvas.length
    ends = np.flatnonzero(np.isin(ids_L[canvas.prompt_length : num_final], list(layout.stops(parity=parity))))
    if ends.size:
        num_final = max(canvas.prompt_length + int(ends[0]) + 1, canvas.num_final)
    elif more:
        num_final = max(min(num_final, canvas.length - 1), canvas.num_final)
    return Delta(
        positions_W=positions_W,
        ids_W=ids_W,
        open_W=np.zeros(positions_W.shape, np.bool_),
        num_final=num_final,
        window_start=0,
        length=canvas.length,
        memory=memory,
    )


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Whose turn it is on the canvas: one block, and how many positions its next steps decide.

    Attributes:
        end: where the block ends.
        counts: positions to decide in each of the block's remaining steps.
    """

    end: int
    counts: tuple[int, ...]


def current_turn(
    canvas: Canvas, block_length: int, counts: Callable[[int], tuple[int, ...]], *, idle: bool = False
) -> Turn:
    """The turn that `canvas.memory` holds or, once that one is over, that of the next block with an open position.

    Args:
        canvas: its memory is None or a `Turn`.
        block_length: blocks are counted from the start of the answer; the last may be shorter.
        counts: number of open positions in a block -> positions per step; not empty.
        idle: a turn lasts as long as its counts even if its block has no open position left.
    """
    turn = canvas.memory
    if isinstance(turn, Turn) and turn.counts and (idle or canvas.open_L[: turn.end].any()):
        return turn
    start = turn.end if isinstance(turn, Turn) else canvas.prompt_length
    while start < canvas.length:
        end = min(start + block_length, canvas.length)
        num_open = int(canvas.open_L[start:end].sum())
        if num_open:
            return Turn(end=end, counts=counts(num_open))
        start = end
    return Turn(end=canvas.length, counts=counts(max(int(canvas.open_L.sum()), 1)))


def is_last_turn(canvas: Canvas, turn: Turn) -> bool:
    """Whether no position is open after the turn's block."""
    return not canvas.open_L[turn.end :].any()


def guided(conditional_RV: Tensor, unconditional_RV: Tensor, guidance: float) -> Tensor:
    """Classifier-free guidance: unconditional + (guidance + 1) * (conditional - unconditional).

    Args:
        conditional_RV: logits of the canvas.
        unconditional_RV: logits of the same canvas with every token of the prompt replaced by the mask.
        guidance: 0 changes nothing (and should cost no second forward).

    Source: LLaDA, arXiv 2502.09992 (guidance without a prompt, after arXiv 2410.18514), and its released `generate`.
    """
    return unconditional_RV + (guidance + 1) * (conditional_RV - unconditional_RV)
