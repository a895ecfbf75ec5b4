"""What the rules of block-causal models share: rows to read, tokens the rows propose, and how a step closes a block."""

from collections.abc import Hashable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from unmask.core.canvas import BoolArray, Canvas, Delta, IntArray
from unmask.core.errors import ConfigError
from unmask.core.plan import Reads, masked_reads
from unmask.decoding.belief import Belief
from unmask.decoding.randomness import Purpose, RandomStream
from unmask.decoding.rules import Window, final_prefix
from unmask.decoding.sampling import Sampling

# Shape legend: R rows read, W writes, L canvas length.
FloatArray = NDArray[np.float32]


def check_block(window: Window) -> None:
    """Refuses a window that is not exactly one block.

    Raises:
        ConfigError: size and alignment differ, or are below 1.
    """
    if window.size < 1 or window.size != window.align:
        raise ConfigError(
            f"a block-causal rule denoises one block at a time: give size = align, not {window.size} and {window.align}"
        )


def open_reads(canvas: Canvas, window: Window, *, all_of_block: bool) -> Reads:
    """The open positions of the block, or only those that an answer can still show.

    Args:
        canvas: the canvas to be read.
        window: its `eos_ids` end an answer.
        all_of_block: also positions past the limit and behind an EOS that is decided; else there is at least one
            position as long as the answer goes on.
    """
    reads = masked_reads(canvas)
    if all_of_block:
        return reads
    end = min(canvas.limit, canvas.length)
    is_end_L = np.isin(canvas.ids_L, list(window.eos_ids)) & ~canvas.open_L
    is_end_L[: canvas.prompt_length] = False
    if is_end_L.any():
        end = min(end, int(is_end_L.argmax()))
    kept = reads.predicts_R < end
    return Reads(predicts_R=reads.predicts_R[kept], causal_R=reads.causal_R[kept])


def generated_reads(canvas: Canvas, *, past_limit: bool) -> Reads:
    """All positions of the block after the prompt, open or decided: what a rule that edits must look at."""
    end = canvas.length if past_limit else min(canvas.length, canvas.limit)
    predicts = np.arange(max(canvas.window_start, canvas.prompt_length), end)
    return Reads(predicts_R=predicts, causal_R=np.zeros(predicts.shape, np.bool_))


def propose(
    canvas: Canvas, belief: Belief, random: RandomStream, sampling: Sampling, *, banned_id: int | None
) -> tuple[IntArray, FloatArray]:
    """One token per row and the probability of the row's most likely token at temperature 1 (float32).

    Args:
        canvas: the canvas that was read.
        belief: what the rows say; its logits are changed in place.
        random: one number per position is drawn from it at temperatures above 0.
        sampling: how tokens are drawn.
        banned_id: an id that must not come out, in addition to those of `sampling`; None bans nothing more.
    """
    if banned_id is not None:
        sampling = replace(sampling, banned_ids=(*sampling.banned_ids, banned_id))
    uniforms = [
        random.uniform(block=canvas.block, step=canvas.step, position=int(position), purpose=Purpose.TOKEN)
        for position in (belief.predicts_R if sampling.temperature > 0 else ())
    ]
    ids, confidence = sampling.choose(belief.logits_RV, uniforms)
    return ids.numpy(), confidence.numpy()


def best(confidence_R: FloatArray, count: int) -> BoolArray:
    """The `count` most confident rows; of equals the lowest position."""
    chosen = np.zeros(confidence_R.shape, np.bool_)
    chosen[np.argsort(-confidence_R, kind="stable")[:count]] = True
    return chosen


def by_floor(confidence_R: FloatArray, threshold: float, floor: int) -> BoolArray:
    """The rows strictly above `threshold` if they are at least `floor`, else the `floor` best ones."""
    above_R = confidence_R > threshold
    return above_R if above_R.sum() >= floor else best(confidence_R, floor)


def even_quotas(size: int, num_steps: int) -> tuple[int, ...]:
    """`size` positions over `num_steps` steps as evenly as can be, the larger shares first."""
    share, rest = divmod(size, num_steps)
    return tuple(share + (step < rest) for step in range(num_steps))


def settle(
    canvas: Canvas,
    window: Window,
    positions_W: IntArray,
    ids_W: IntArray,
    *,
    whole_blocks: bool,
    done: bool | None = None,
    next_size: int | None = None,
    memory: Hashable = None,
) -> Delta:
    """The delta of one step: what it wrote, what became final, and the next block if this one is done.

    Args:
        canvas: the canvas before the step.
        window: supplies the mask id, the ids that end an answer and the size of a block.
        positions_W: positions written; a written mask id leaves its position open.
        ids_W: what is written there.
        whole_blocks: nothing becomes final before its block is done, and an EOS inside it ends nothing earlier. Else
            the decided prefix becomes final at once, up to and including its first EOS.
        done: whether the block is done; None if it is as soon as nothing in it is open.
        next_size: positions to open after a finished block; None for a block, 0 for none yet.
        memory: goes on the canvas unless the block is done.
    """
    ids_L, open_L = canvas.ids_L.copy(), canvas.open_L.copy()
    ids_L[positions_W], open_L[positions_W] = ids_W, ids_W == window.mask_token_id
    open_W = open_L[positions_W]
    if done is None:
        done = not open_L[canvas.window_start :].any()
    if whole_blocks:
        num_final = canvas.length if done else canvas.num_final
    else:
        num_final = final_prefix(ids_L, open_L, canvas, window.eos_ids)
    opened = np.zeros(0, np.int64)
    window_start = canvas.window_start
    if done and num_final == canvas.length:
        window_start = canvas.length
        opened = np.arange(canvas.length, canvas.length + (window.size if next_size is None else next_size))
    return Delta(
        positions_W=np.concatenate((positions_W, opened)),
        ids_W=np.concatenate((ids_W, np.full(opened.shape, window.mask_token_id))),
        open_W=np.concatenate((open_W, np.ones(opened.shape, np.bool_))),
        num_final=num_final,
        window_start=window_start,
        length=canvas.length + opened.shape[0],
        memory=None if done else memory,
    )
