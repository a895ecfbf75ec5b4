"""What may stand where: the layers of a window, before any logits.

Shape suffixes: W positions of the window, S states (END is the last), C token classes, P pairs (of the automaton or of
one layer), G groups: distinct sets of classes that join two states.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unmask.core.canvas import BoolArray, IntArray
from unmask.core.errors import EngineError
from unmask.grammar.tokens import TokenClasses

OPEN, ENDED = -1, -2
"""In place of the class of a decided token: nothing is known; only EOS and filler may stand here."""

_EVIDENCE = -1


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """One position.

    Attributes:
        source_P: state before it.
        target_P: state behind it.
        group_P: the tokens that lead from one to the other; -1 where the token is decided.
    """

    source_P: IntArray
    target_P: IntArray
    group_P: IntArray

    def only(self, kept: BoolArray | IntArray) -> "Layer":
        """Some of its pairs."""
        return Layer(source_P=self.source_P[kept], target_P=self.target_P[kept], group_P=self.group_P[kept])


@dataclass(frozen=True, kw_only=True, eq=False)
class Selection:
    """The tokens of some groups, laid out for segment sums.

    Attributes:
        groups: numbers of the groups, ascending.
        classes: numbers of their classes, ascending.
        tokens: ids of the tokens of these classes, class after class.
        token_from: where each class begins in `tokens`.
        token_counts: tokens of each class.
        member: indices into `classes`, group after group.
        member_from: where each group begins in `member`.
        member_counts: classes of each group.
    """

    groups: IntArray
    classes: IntArray
    tokens: IntArray
    token_from: IntArray
    token_counts: IntArray
    member: IntArray
    member_from: IntArray
    member_counts: IntArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """Token classes, prepared for lattices: edges between the same two states are one pair.

    Args:
        classes: of an automaton.
    """

    classes: TokenClasses

    @cached_property
    def tokens_by_class(self) -> tuple[IntArray, IntArray]:
        """Ids of all allowed tokens in the order of class, then id; and where each class begins (C + 1 values)."""
        order = np.argsort(self.classes.class_V, kind="stable")
        starts = np.searchsorted(self.classes.class_V[order], np.arange(self.classes.num_classes + 1))
        return order, starts

    def prepare(self) -> None:
        """Computes now what the first window would otherwise wait for."""
        _ = self.tokens_by_class, self._pairs_and_groups, self._last_pairs, self.classes.edges_from_C
        self.classes.step(self.classes.start, 0)

    @cached_property
    def _pairs_and_groups(self) -> tuple[Layer, tuple[IntArray, ...]]:
        classes = self.classes
        keys_E = classes.source_E.astype(np.int64) * classes.num_states + classes.target_E
        order = np.argsort(keys_E, kind="stable")
        pairs, first = np.unique(keys_E[order], return_index=True)
        class_E = classes.class_E[order]
        numbers: dict[bytes, int] = {}
        groups: list[IntArray] = []
        group_P = np.zeros(len(pairs), dtype=np.int64)
        for index, members in enumerate(np.split(class_E, first[1:])):
            group_P[index] = numbers.setdefault(members.tobytes(), len(groups))
            if group_P[index] == len(groups):
                groups.append(members.astype(np.int64))
        source_P, target_P = np.divmod(pairs, classes.num_states)
        return Layer(source_P=source_P, target_P=target_P, group_P=group_P), tuple(groups)

    @property
    def pairs(self) -> Layer:
        """Every pair, in the order of source, then target: what a position may do of which nothing is known."""
        return self._pairs_and_groups[0]

    @property
    def groups(self) -> tuple[IntArray, ...]:
        """The classes of each group, ascending."""
        return self._pairs_and_groups[1]

    @cached_property
    def _last_pairs(self) -> Layer:
        return self.pairs.only(self.pairs.target_P == self.classes.end)

    def edges_of(self, token_class: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Sources and targets of one class."""
        classes = self.classes
        first, last = classes.edges_from_C[token_class], classes.edges_from_C[token_class + 1]
        return classes.source_E[first:last], classes.target_E[first:last]

    def candidates(self, evidence: int) -> Layer:
        """The pairs of one position.

        Args:
            evidence: class of the decided token, `OPEN` or `ENDED`.
        """
        if evidence == OPEN:
            return self.pairs
        if evidence == ENDED:
            return self._last_pairs
        source_P, target_P = (side.astype(np.int64) for side in self.edges_of(evidence))
        return Layer(source_P=source_P, target_P=target_P, group_P=np.full(len(source_P), _EVIDENCE, dtype=np.int64))

    def select(self, groups: IntArray) -> Selection:
        """Lays out the tokens of some groups (ascending; none where the token is decided)."""
        numbers: list[int] = groups.tolist()
        members = [self.groups[group] for group in numbers]
        used_C = np.zeros(self.classes.num_classes, dtype=np.bool_)
        member = np.concatenate([*members, np.zeros(0, dtype=np.int64)])
        used_C[member] = True
        classes = np.flatnonzero(used_C)
        order, starts = self.tokens_by_class
        token_counts = starts[classes + 1] - starts[classes]
        member_counts = np.array([len(member) for member in members], dtype=np.int64)
        return Selection(
            groups=groups,
            classes=classes,
            tokens=order[np.repeat(used_C, np.diff(starts))],
            token_from=np.cumsum(token_counts) - token_counts,
            token_counts=token_counts,
            member=np.searchsorted(classes, member),
            member_from=np.cumsum(member_counts) - member_counts,
            member_counts=member_counts,
        )

    def layers(self, start: int, evidence_W: Sequence[int], final_S: BoolArray) -> list[Layer]:
        """The pairs that accepted fillings pass, position by position; every one of them is on such a way.

        Args:
            start: state before the window.
            evidence_W: per position the class of the decided token, `OPEN` or `ENDED`.
            final_S: states in which the window may end.

        Raises:
            EngineError: there is no accepted filling.
        """
        reached_S = np.zeros(self.classes.num_states, dtype=np.bool_)
        reached_S[start] = True
        layers: list[Layer] = []
        for evidence in evidence_W:
            candidates = self.candidates(evidence)
            layers.append(candidates.only(np.flatnonzero(reached_S[candidates.source_P])))
            reached_S = np.zeros_like(reached_S)
            reached_S[layers[-1].target_P] = True
        good_S = final_S
        for index in range(len(layers) - 1, -1, -1):
            layers[index] = layers[index].only(good_S[layers[index].target_P])
            good_S = np.zeros_like(good_S)
            good_S[layers[index].source_P] = True
        if not good_S[start]:
            raise EngineError("no text of the constraint fits the decided tokens and the tokens left")
        return layers
