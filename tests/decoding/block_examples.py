"""Beliefs and canvases written by hand, for the rules of block-causal models."""

from collections.abc import Sequence

import numpy as np
import torch

from unmask.core.canvas import Canvas
from unmask.decoding.belief import Belief
from unmask.decoding.randomness import RandomStream
from unmask.decoding.rules import DecodingRule, Window

VOCAB, MASK, EOS = 10, 0, 9
RANDOM = RandomStream(seed=1)
Row = tuple[int, int, float]
"""(position, likeliest id, its probability)"""


def window(size: int = 4) -> Window:
    return Window(size=size, mask_token_id=MASK, eos_ids=frozenset([EOS]), align=size)


def belief(rows: Sequence[Row], *, tempting: bool = True, causal: bool = False) -> Belief:
    """The rest of a row's mass is spread over the other ids but the mask.

    Args:
        rows: what each row says.
        tempting: the mask would always win if it were let in; else it is impossible.
        causal: the rows are clean ones.
    """
    logits = torch.empty(len(rows), VOCAB)
    for row, (_, token, share) in enumerate(rows):
        logits[row] = float(np.log((1 - share) / (VOCAB - 2))) if share < 1 else -torch.inf
        logits[row, MASK] = 50.0 if tempting else -torch.inf
        logits[row, token] = float(np.log(share))
    return Belief(
        logits_RV=logits,
        predicts_R=np.array([position for position, _, _ in rows], np.int64),
        causal_R=np.full(len(rows), causal),
    )


def after(rule: DecodingRule, canvas: Canvas, *rows: Row, tempting: bool = True) -> Canvas:
    """The canvas after one step; the rows must be the ones that the rule asks for."""
    reads = rule.reads(canvas)
    assert reads.predicts_R.tolist() == [position for position, _, _ in rows]
    asked = belief(rows, tempting=tempting, causal=bool(reads.causal_R.all()))
    assert asked.causal_R.tolist() == reads.causal_R.tolist()
    return canvas.apply(rule.step(canvas, asked, RANDOM))


def looks(canvas: Canvas) -> str:
    """The canvas as text: `|` after the final prefix, `?` before an undecided id."""
    parts = [f"{'?' if canvas.open_L[p] else ''}{canvas.ids_L[p]}" for p in range(canvas.length)]
    return " ".join([*parts[: canvas.num_final], "|", *parts[canvas.num_final :]])
