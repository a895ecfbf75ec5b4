"""What an engine asks of a constraint on an answer; `unmask.grammar` has the implementation."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unmask.core.canvas import BoolArray, IntArray

# Shape legend: L positions of the canvas, R rows read, V rows of the model's head.
FloatArray = NDArray[np.float64]
Logits = NDArray[np.float32] | NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Refined:
    """What the rows become under the constraint.

    Attributes:
        path_ids_R: int64; the tokens of one accepted filling. Any subset of them may be decided: the rest of the same
            filling proves that the text can still be completed. Tokens of two calls must not be mixed in one step.
        confidence_R: float64; exact probability of that token at its position, given constraint and evidence, under
            the model's own belief (temperature 1). 1 where the position is decided.
        forced_R: whether no other token can stand there, whatever the model believes.
        log_z: log-probability that independent draws at all open positions would have been accepted.
    """

    path_ids_R: IntArray
    confidence_R: FloatArray
    forced_R: BoolArray
    log_z: float


class AnswerConstraint(Protocol):
    """The language of an answer in tokens. Immutable: a request's state is its canvas. States are whole numbers."""

    def check_max_tokens(self, max_tokens: int, param: str = "max_tokens") -> None:
        """Raises RequestError if no accepted answer is that short."""
        ...

    def walk(self, ids: list[int], state: int | None = None) -> int:
        """The state behind some tokens, from the start or another state; -1 if they leave the language."""
        ...

    def shortest(self, state: int) -> int:
        """Fewest tokens from a state to where the answer may end, EOS not counted; -1 where there is no way."""
        ...

    def must_end(self, state: int) -> bool:
        """Whether nothing but EOS may follow."""
        ...

    def has_ended(self, state: int) -> bool:
        """Whether EOS has come."""
        ...

    def forced_text(self, *, room: int, state: int | None = None) -> list[int]:
        """Tokens that may be placed before any forward; leaves enough of `room` tokens to complete the answer."""
        ...

    def refine(
        self,
        *,
        ids_L: IntArray,
        open_L: BoolArray,
        answer_start: int,
        window_end: int,
        limit: int,
        logits_RV: Logits,
        predicts_R: IntArray,
        temperature: float = 0.0,
        uniforms_R2: FloatArray | None = None,
        state: int | None = None,
    ) -> Refined:
        """The model's belief under the constraint; see `unmask.grammar.constraint.Constraint.refine`."""
        ...
