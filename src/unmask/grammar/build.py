"""Operations on automata: pieces are joined in a non-deterministic `Graph`, which is made deterministic and minimal.

Sets of bytes are 256-bit integers as in `unmask.grammar.automaton`.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from unmask.core.errors import RequestError
from unmask.grammar.automaton import ALL_BYTES, Automaton, from_edges


class TooLargeError(RequestError):
    """A language needs more states or more time than its limits allow."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much one constraint may cost.

    Args:
        max_states: states of any automaton on the way, the finished one included.
        max_seconds: time for the whole compilation.
        ref_depth: how many times one `$ref` is followed inside itself, the first time included; no deeper texts.
        free_depth: how deep arrays and objects nest in values without a schema.
    """

    max_states: int = 20_000
    max_seconds: float = 10.0
    ref_depth: int = 4
    free_depth: int = 3


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The limits of one compilation with its clock running.

    Args:
        limits: what may be spent.
        param: the request field that errors name.
        started_s: `time.monotonic()` at the beginning.
    """

    limits: Limits = field(default_factory=Limits)
    param: str | None = None
    started_s: float = field(default_factory=time.monotonic)

    def check(self, num_states: int) -> None:
        """Refuses to go on.

        Raises:
            TooLargeError: there are more states than `max_states`, or `max_seconds` are over.
        """
        if num_states > self.limits.max_states:
            raise TooLargeError(
                f"needs more than {self.limits.max_states} states (limit max_states); use smaller bounds or less of it",
                param=self.param,
            )
        if time.monotonic() - self.started_s > self.limits.max_seconds:
            raise TooLargeError(
                f"takes longer than {self.limits.max_seconds:g} s to compile (limit max_seconds); use smaller bounds",
                param=self.param,
            )


class Graph:
    """A non-deterministic automaton under construction: states, byte edges, and free moves between states.

    A free move may ask for a place: `at_start` only before the first byte, `at_end` only after the last.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        self._budget = budget or Budget()
        self._edges: list[list[tuple[int, int]]] = []
        self._free: list[list[int]] = []
        self._at_start: dict[int, list[int]] = {}
        self._at_end: dict[int, list[int]] = {}

    def state(self) -> int:
        """Adds a state."""
        self._edges.append([])
        self._free.append([])
        if len(self._edges) % 256 == 0:
            self._budget.check(len(self._edges) // 4)  # pieces overlap, so a graph may be larger than what it denotes
        return len(self._edges) - 1

    def link(self, source: int, target: int) -> None:
        """Adds a free move."""
        self._free[source].append(target)

    def link_at_start(self, source: int, target: int) -> None:
        """Adds a move that is free before the first byte only."""
        self._at_start.setdefault(source, []).append(target)

    def link_at_end(self, source: int, target: int) -> None:
        """Adds a move that is free after the last byte only."""
        self._at_end.setdefault(source, []).append(target)

    def edge(self, source: int, mask: int, target: int) -> None:
        """Adds an edge for a set of bytes."""
        self._edges[source].append((mask, target))

    def text(self, source: int, text: bytes) -> int:
        """Adds a path that spells a text; returns its end."""
        for byte in text:
            target = self.state()
            self.edge(source, 1 << byte, target)
            source = target
        return source

    def insert(self, source: int, piece: Automaton) -> int:
        """Adds a copy of an automaton behind a state; returns the state behind the copy."""
        copies = [self.state() for _ in range(piece.num_states)]
        for copy, out in zip(copies, piece.edges, strict=True):
            self._edges[copy] = [(mask, copies[target]) for target, mask in out.items()]
        end = self.state()
        self.link(source, copies[piece.start])
        for state in np.flatnonzero(piece.accepting_S).tolist():
            self.link(copies[state], end)
        return end

    def automaton(self, start: int, end: int) -> Automaton:
        """The language of all paths from one state to another (subset construction, then minimisation).

        Raises:
            TooLargeError: it needs more than the budget.
        """
        first = self._closure([start], (self._free, self._at_start))
        closures: dict[int, frozenset[int]] = {}
        number: dict[tuple[bool, frozenset[int]], int] = {(True, first): 0}
        queue: list[tuple[bool, frozenset[int]]] = [(True, first)]
        edges: list[dict[int, int]] = []
        accepting: list[int] = []
        for at_start, subset in queue:
            self._budget.check(len(queue))
            if end in subset or (self._at_end and self._ends(subset, end, at_start)):
                accepting.append(len(edges))
            out: dict[int, int] = {}
            for mask, targets in _disjoint([edge for state in subset for edge in self._edges[state]]):
                key = (False, self._closure_of(targets, closures))
                index = number.get(key)
                if index is None:
                    index = number[key] = len(queue)
                    queue.append(key)
                out[index] = out.get(index, 0) | mask
            edges.append(out)
        return from_edges(edges, accepting)

    def _closure_of(self, targets: tuple[int, ...], closures: dict[int, frozenset[int]]) -> frozenset[int]:
        for target in targets:
            if target not in closures:
                closures[target] = self._closure([target], (self._free,))
        if len(targets) == 1:
            return closures[targets[0]]
        return frozenset[int]().union(*(closures[target] for target in targets))

    def _ends(self, subset: Iterable[int], end: int, at_start: bool) -> bool:
        moves = (self._free, self._at_end, self._at_start) if at_start else (self._free, self._at_end)
        return end in self._closure(subset, moves)

    def _closure(
        self, states: Iterable[int], moves: "Sequence[list[list[int]] | dict[int, list[int]]]"
    ) -> frozenset[int]:
        """All states that free moves lead to."""
        found = list(dict.fromkeys(states))
        seen = set(found)
        for state in found:
            for table in moves:
                targets = table[state] if isinstance(table, list) else table.get(state, ())
                for target in targets:
                    if target not in seen:
                        seen.add(target)
                        found.append(target)
        return frozenset(seen)


def _disjoint(edges: list[tuple[int, int]]) -> list[tuple[int, tuple[int, ...]]]:
    """Cuts overlapping byte sets into parts, each with all the targets of its bytes."""
    union, overlap = 0, 0
    for mask, _ in edges:
        overlap |= union & mask
        union |= mask
    parts = [(mask & ~overlap, (target,)) for mask, target in edges if mask & ~overlap]
    if not overlap:
        return parts
    shared: list[tuple[int, tuple[int, ...]]] = [(overlap, ())]
    for mask, target in edges:
        if mask & overlap:
            shared = [
                part
                for piece, targets in shared
                for part in ((piece & mask, (*targets, target)), (piece & ~mask, targets))
                if part[0]
            ]
    return parts + shared


# --- operations ----------------------------------------------------------------------------------------------------


def nothing() -> Automaton:
    """The empty language."""
    return from_edges([{}], [])


def literal(text: bytes) -> Automaton:
    """The language of one text."""
    return from_edges([{index + 1: 1 << byte} for index, byte in enumerate(text)] + [{}], [len(text)])


def byte_class(values: Iterable[int]) -> Automaton:
    """The language of single bytes."""
    mask = reduce(lambda bits, value: bits | 1 << value, values, 0)
    return from_edges([{1: mask} if mask else {}, {}], [1])


def concat(*pieces: Automaton, budget: Budget | None = None) -> Automaton:
    """Texts that are one of each piece, in order."""
    graph = Graph(budget)
    start = state = graph.state()
    for piece in pieces:
        state = graph.insert(state, piece)
    return graph.automaton(start, state)


def union(*choices: Automaton, budget: Budget | None = None) -> Automaton:
    """Texts of any of the choices."""
    graph = Graph(budget)
    start, end = graph.state(), graph.state()
    for choice in choices:
        graph.link(graph.insert(start, choice), end)
    return graph.automaton(start, end)


def optional(piece: Automaton, *, budget: Budget | None = None) -> Automaton:
    """The piece or nothing."""
    return repeat(piece, 0, 1, budget=budget)


def repeat(piece: Automaton, least: int = 0, most: int | None = None, *, budget: Budget | None = None) -> Automaton:
    """From `least` to `most` texts of the piece one after the other; `most` None is without end."""
    if most is not None and most < least:
        return nothing()
    graph = Graph(budget)
    start, end = graph.state(), graph.state()
    repeat_in(graph, start, end, least, most, lambda state: graph.insert(state, piece))
    return graph.automaton(start, end)


def repeat_in(graph: Graph, start: int, end: int, least: int, most: int | None, insert: Callable[[int], int]) -> None:
    """Adds a repetition between two states; `insert` adds one turn behind a state and returns its end.

    `most` must not be less than `least`.
    """
    state = start
    for _ in range(least):
        state = insert(state)
    if most is None:
        loop = graph.state()
        graph.link(state, loop)
        graph.link(insert(loop), loop)
        state = loop
    else:
        for _ in range(most - least):
            graph.link(state, end)
            state = insert(state)
    graph.link(state, end)


def intersect(left: Automaton, right: Automaton, *, budget: Budget | None = None) -> Automaton:
    """Texts of both."""
    right_accepts = right.accepting_S
    return _product(left, right, lambda state: state is not None and bool(right_accepts[state]), True, budget)


def difference(left: Automaton, right: Automaton, *, budget: Budget | None = None) -> Automaton:
    """Texts of the left that are not of the right."""
    right_accepts = right.accepting_S
    return _product(left, right, lambda state: state is None or not right_accepts[state], False, budget)


def _product(
    left: Automaton,
    right: Automaton,
    ends: Callable[[int | None], bool],
    both: bool,
    budget: Budget | None,
) -> Automaton:
    """Runs two automata side by side; the right one's dead state is None and is left out if `both` must go on."""
    budget = budget or Budget()
    queue: list[tuple[int, int | None]] = [(left.start, right.start)]
    number = {queue[0]: 0}
    edges: list[dict[int, int]] = []
    accepting: list[int] = []
    for left_state, right_state in queue:
        budget.check(len(queue))
        if left.accepting_S[left_state] and ends(right_state):
            accepting.append(len(edges))
        options: list[tuple[int | None, int]] = []
        if right_state is not None:
            options += [(target, mask) for target, mask in right.edges[right_state].items()]
        if not both:
            options.append((None, ALL_BYTES & ~reduce(int.__or__, (mask for _, mask in options), 0)))
        out: dict[int, int] = {}
        for left_target, left_mask in left.edges[left_state].items():
            for right_target, right_mask in options:
                if mask := left_mask & right_mask:
                    key = (left_target, right_target)
                    if key not in number:
                        number[key] = len(queue)
                        queue.append(key)
                    out[number[key]] = mask
        edges.append(out)
    return from_edges(edges, accepting)
