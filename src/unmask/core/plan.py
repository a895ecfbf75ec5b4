"""What one forward is fed with for one sequence, and which of its logits are read. Pure index arithmetic."""

from dataclasses import dataclass

import numpy as np

from unmask.core.canvas import BoolArray, Canvas, IntArray

# Shape legend: T rows fed, R rows read.


@dataclass(frozen=True, kw_only=True)
class Reads:
    """What a decoding rule wants to know from the next forward.

    Attributes:
        predicts_R: positions whose prediction is wanted, int64.
        causal_R: whether by the clean row before the position (as an AR model does), else by the position's own row or
            the one before it, as the checkpoint's logit shift says.
    """

    predicts_R: IntArray
    causal_R: BoolArray


def masked_reads(canvas: Canvas) -> Reads:
    """Every open position of the window."""
    predicts = canvas.window_start + np.flatnonzero(canvas.open_L[canvas.window_start :])
    return Reads(predicts_R=predicts, causal_R=np.zeros(predicts.shape, np.bool_))


def verifying_reads(canvas: Canvas) -> Reads:
    """The positions from num_final to window_start causally, then the other open positions of the window."""
    checked = np.arange(canvas.num_final, canvas.window_start + 1)
    masked = masked_reads(canvas).predicts_R
    masked = masked[masked > canvas.window_start]  # the window's first position is decided causally
    causal_R: BoolArray = np.arange(checked.size + masked.size) < checked.size
    return Reads(predicts_R=np.concatenate((checked, masked)), causal_R=causal_R)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Rows of one sequence in one forward: clean rows first, then the rows of the open window.

    Attributes:
        ids_T: token ids fed, int64.
        positions_T: their absolute positions, int64, increasing.
        visible_T: how many leading positions of the sequence each row may attend to, int64. Every attention pattern
            we serve is such a prefix: causal p + 1, block-causal the end of p's block, window its own end.
        clean_end: positions before it have been fed as decided or drafted tokens once this forward is over.
        read_R: indices into the rows whose logits are wanted, int64; empty while a prompt is still being prefilled.
        predicts_R: the position each read row predicts, int64.
        causal_R: whether the read row is a clean row predicting the next position (else a masked row).
    """

    ids_T: IntArray
    positions_T: IntArray
    visible_T: IntArray
    clean_end: int
    read_R: IntArray
    predicts_R: IntArray
    causal_R: BoolArray
