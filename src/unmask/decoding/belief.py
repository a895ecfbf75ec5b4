"""What a decoding rule is given: logits and the positions they speak about."""

from dataclasses import dataclass

from torch import Tensor

from unmask.core.canvas import BoolArray, IntArray

# Shape legend: R rows read, V vocabulary.


@dataclass(frozen=True, kw_only=True)
class Belief:
    """Logits of one sequence after one forward (or an exact posterior in their place, under a constraint).

    Attributes:
        logits_RV: float32.
        predicts_R: position that each row predicts; a position may be predicted by a causal and by a masked row.
        causal_R: whether the row is a clean row predicting the next position.
    """

    logits_RV: Tensor
    predicts_R: IntArray
    causal_R: BoolArray
