"""What one forward is fed with for one sequence, and which of its logits are read. Pure index arithmetic."""

from dataclasses import dataclass

from unmask.core.canvas import BoolArray, IntArray

# Shape legend: T rows fed, R rows read.


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
