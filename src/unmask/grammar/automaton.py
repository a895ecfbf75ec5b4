"""A language of byte strings as a minimal deterministic automaton (DFA).

Shape suffixes: S states, B the 256 byte values. `-1` is the dead state everywhere. In the sparse view a set of bytes
is one 256-bit integer: bit b stands for byte b.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Edges = Sequence[dict[int, int]]
"""For each state: target state -> set of bytes that lead there."""

DEAD = -1
ALL_BYTES = (1 << 256) - 1


@dataclass(frozen=True, kw_only=True, eq=False)
class Automaton:
    """A deterministic automaton over bytes; what `unmask.grammar` builds is always minimal and in a canonical order.

    Args:
        next_SB: int32 [S, 256], the state after a byte; -1 where no text of the language goes on.
        accepting_S: bool [S], whether the bytes read so far are a whole text of the language.
        start: the state before the first byte.
    """

    next_SB: NDArray[np.int32]
    accepting_S: NDArray[np.bool_]
    start: int = 0

    @property
    def num_states(self) -> int:
        """How many states there are, the dead one not counted."""
        return len(self.accepting_S)

    @cached_property
    def is_empty(self) -> bool:
        """Whether no text at all is accepted."""
        return int(self.shortest_S[self.start]) < 0

    @cached_property
    def edges(self) -> tuple[dict[int, int], ...]:
        """The sparse view, which is what the operations work on: few targets a state, each with its set of bytes."""
        change = np.ones((self.num_states, 256), dtype=bool)
        change[:, 1:] = self.next_SB[:, 1:] != self.next_SB[:, :-1]
        from_state, first = (axis.tolist() for axis in np.nonzero(change))
        targets: list[int] = self.next_SB[change].tolist()
        edges: list[dict[int, int]] = [{} for _ in range(self.num_states)]
        for run, (state, target) in enumerate(zip(from_state, targets, strict=True)):
            if target == DEAD:
                continue
            last_run_of_state = run + 1 == len(targets) or from_state[run + 1] != state
            end = 256 if last_run_of_state else first[run + 1]
            edges[state][target] = edges[state].get(target, 0) | ((1 << end) - (1 << first[run]))
        return tuple(edges)

    @cached_property
    def shortest_S(self) -> NDArray[np.int32]:
        """int32 [S]: how many more bytes a text needs at least from each state; -1 where none is ever accepted."""
        return np.array(_distances(self.edges, np.flatnonzero(self.accepting_S).tolist()), dtype=np.int32)

    @cached_property
    def byte_class_B(self) -> NDArray[np.int32]:
        """int32 [256]: the class of each byte; bytes of one class lead to the same state from everywhere."""
        numbers: dict[bytes, int] = {}
        columns = np.ascontiguousarray(self.next_SB.T)
        return np.array([numbers.setdefault(column.tobytes(), len(numbers)) for column in columns], dtype=np.int32)

    @property
    def num_classes(self) -> int:
        """How many kinds of bytes the language tells apart, the bytes that never occur counted as one."""
        return int(self.byte_class_B.max()) + 1

    def accepts(self, text: bytes) -> bool:
        """Whether the text is in the language."""
        return self.rejects_at(text) is None

    def rejects_at(self, text: bytes) -> int | None:
        """Finds where a text leaves the language.

        Returns:
            None if it is in the language; the offset of the first byte that cannot be there; or `len(text)` if the
            text is only the beginning of one of the language.
        """
        state = self.start
        for offset, byte in enumerate(text):
            state = int(self.next_SB[state, byte])
            if state == DEAD:
                return offset
        return None if self.accepting_S[state] else len(text)

    def minimised(self) -> "Automaton":
        """The one smallest automaton of the language: start 0, states in breadth-first order, no state without use."""
        return from_edges(self.edges, np.flatnonzero(self.accepting_S).tolist(), start=self.start)


def from_edges(edges: Edges, accepting: Collection[int], *, start: int = 0) -> Automaton:
    """Minimises a deterministic automaton given in the sparse view.

    Args:
        edges: the byte sets of one state must not overlap.
        accepting: states where a text may end.
        start: the state before the first byte.

    Source: Hopcroft's partition refinement ("An n log n algorithm for minimizing states in a finite automaton", 1971).
    Departs from the source: states are compared by all their edges at once instead of one splitter and letter at a
    time; a split renumbers all parts but the largest, which keeps the n log n.
    """
    alive = [distance >= 0 for distance in _distances(edges, accepting)]
    if not alive[start]:
        return _dense([{}], [False])
    trimmed = [{t: mask for t, mask in out.items() if alive[t]} if alive[s] else {} for s, out in enumerate(edges)]
    order = _breadth_first(trimmed, start)
    position = {state: index for index, state in enumerate(order)}
    packed = [{position[t]: mask for t, mask in trimmed[state].items()} for state in order]
    ends = set(accepting)
    return _merge(packed, _equivalent(packed, [state in ends for state in order]), [state in ends for state in order])


def _merge(edges: Edges, block_S: list[int], accepting_S: list[bool]) -> Automaton:
    """One state per block of equivalent states, in breadth-first order from state 0."""
    member = {block: state for state, block in reversed(list(enumerate(block_S)))}
    merged: list[dict[int, int]] = [{} for _ in range(max(block_S) + 1)]
    for block, state in member.items():
        for target, mask in edges[state].items():
            merged[block][block_S[target]] = merged[block].get(block_S[target], 0) | mask
    order = _breadth_first(merged, block_S[0])
    position = {block: index for index, block in enumerate(order)}
    return _dense(
        [{position[t]: mask for t, mask in merged[block].items()} for block in order],
        [accepting_S[member[block]] for block in order],
    )


def _dense(edges: Edges, accepting_S: list[bool]) -> Automaton:
    next_SB = np.full((len(edges), 256), DEAD, dtype=np.int32)
    triples = [(state, target, mask) for state, out in enumerate(edges) for target, mask in out.items()]
    if triples:
        packed = b"".join(mask.to_bytes(32, "little") for _, _, mask in triples)
        bits_EB = np.unpackbits(np.frombuffer(packed, dtype=np.uint8).reshape(-1, 32), axis=1, bitorder="little")
        edge, byte = np.nonzero(bits_EB)
        source_E = np.array([state for state, _, _ in triples])
        target_E = np.array([target for _, target, _ in triples], dtype=np.int32)
        next_SB[source_E[edge], byte] = target_E[edge]
    next_SB.setflags(write=False)
    accepting = np.array(accepting_S, dtype=np.bool_)
    accepting.setflags(write=False)
    return Automaton(next_SB=next_SB, accepting_S=accepting)


def _distances(edges: Edges, accepting: Collection[int]) -> list[int]:
    """Fewest bytes from each state to an accepting one; -1 where there is no way."""
    sources = _sources(edges)
    distance = [DEAD] * len(edges)
    frontier = list(accepting)
    for state in frontier:
        distance[state] = 0
    for state in frontier:
        for source in sources[state]:
            if distance[source] == DEAD:
                distance[source] = distance[state] + 1
                frontier.append(source)
    return distance


def _sources(edges: Edges) -> list[list[int]]:
    sources: list[list[int]] = [[] for _ in edges]
    for state, out in enumerate(edges):
        for target in out:
            sources[target].append(state)
    return sources


def _breadth_first(edges: Edges, start: int) -> list[int]:
    """Reachable states, nearest first, brothers by their lowest byte: an order that depends on the language only."""
    order, seen = [start], {start}
    for state in order:
        for target in sorted(edges[state], key=lambda t: edges[state][t] & -edges[state][t]):
            if target not in seen:
                seen.add(target)
                order.append(target)
    return order


def _equivalent(edges: Edges, accepting_S: list[bool]) -> list[int]:
    """The block of each state, in the coarsest partition into states that accept the same rest."""
    sources = _sources(edges)
    block_S = [int(accepting) for accepting in accepting_S]
    if all(accepting_S):
        block_S = [0] * len(edges)
    members: dict[int, set[int]] = {}
    for state, block in enumerate(block_S):
        members.setdefault(block, set()).add(state)
    dirty = set(range(len(edges)))
    while dirty:
        touched: dict[int, list[int]] = {}
        for state in dirty:
            touched.setdefault(block_S[state], []).append(state)
        # All groups before any move: signatures under two numberings must not meet.
        grouped = [(block, _groups(edges, block_S, members[block], states)) for block, states in touched.items()]
        moved: list[int] = []
        for block, (*smaller, largest) in grouped:
            members[block] = largest
            for group in smaller:
                fresh = len(members)
                members[fresh] = group
                for state in group:
                    block_S[state] = fresh
                moved += group
        dirty = {source for state in moved for source in sources[state]}
    return block_S


def _groups(edges: Edges, block_S: list[int], members: set[int], dirty: list[int]) -> list[set[int]]:
    """One block's members by the blocks they lead to now, smallest group first."""
    if len(members) == 1:
        return [members]
    groups: dict[frozenset[tuple[int, int]], set[int]] = {}
    for state in dirty:
        groups.setdefault(_signature(edges[state], block_S), set()).add(state)
    clean = members.difference(dirty)
    if clean:  # no target of these moved since they were last compared, so one speaks for all
        groups.setdefault(_signature(edges[next(iter(clean))], block_S), set()).update(clean)
    return sorted(groups.values(), key=len)


def _signature(out: dict[int, int], block_S: list[int]) -> frozenset[tuple[int, int]]:
    merged: dict[int, int] = {}
    for target, mask in out.items():
        block = block_S[target]
        merged[block] = merged.get(block, 0) | mask
    return frozenset(merged.items())
