"""Beliefs and canvases small enough to be checked by eye."""

from collections.abc import Sequence

import numpy as np
import torch

from unmask.core.canvas import Canvas
from unmask.decoding.belief import Belief
from unmask.decoding.fixed_canvas import FixedCanvas

VOCAB, MASK, EOS = 10, 0, 9
LAYOUT = FixedCanvas(mask_token_id=MASK, eos_ids=frozenset([EOS]))


def belief(rows: Sequence[tuple[int, int, float]], *, mask: float = -30.0) -> Belief:
    """Rows of (position, best id, its probability); the other ids but the mask share the rest equally."""
    logits = torch.empty(len(rows), VOCAB)
    for row, (_, token, share) in enumerate(rows):
        logits[row] = float(np.log((1 - share) / (VOCAB - 2)))
        logits[row, token] = float(np.log(share))
        logits[row, MASK] = mask
    return Belief(
        logits_RV=logits,
        predicts_R=np.array([position for position, _, _ in rows], np.int64),
        causal_R=np.zeros(len(rows), np.bool_),
    )


def looks(canvas: Canvas) -> str:
    """The canvas as text: `|` after the final prefix, `?` for a mask that is still open."""
    parts = ["?" if canvas.open_L[p] else str(canvas.ids_L[p]) for p in range(canvas.length)]
    return " ".join([*parts[: canvas.num_final], "|", *parts[canvas.num_final :]])
