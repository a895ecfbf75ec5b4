"""Operations on automata against sets of short texts; minimality against the Myhill-Nerode count."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.core.errors import RequestError
from unmask.grammar.automaton import Automaton
from unmask.grammar.build import (
    Budget,
    Limits,
    byte_class,
    concat,
    difference,
    intersect,
    literal,
    nothing,
    optional,
    repeat,
    union,
)

LONGEST = 6
TEXTS = [bytes(letters) for length in range(LONGEST + 1) for letters in product(b"ab", repeat=length)]
LANGUAGES = st.lists(st.sampled_from([text for text in TEXTS if len(text) <= 3]), max_size=6).map(frozenset)


def automaton_of(language: frozenset[bytes]) -> Automaton:
    return union(*(literal(text) for text in sorted(language)))


def language_of(automaton: Automaton) -> frozenset[bytes]:
    return frozenset(text for text in TEXTS if automaton.accepts(text))


def short(texts: set[bytes] | frozenset[bytes]) -> frozenset[bytes]:
    return frozenset(text for text in texts if len(text) <= LONGEST)


@given(LANGUAGES, LANGUAGES)
@settings(deadline=None)
def test_operations_are_those_on_sets(left: frozenset[bytes], right: frozenset[bytes]) -> None:
    a, b = automaton_of(left), automaton_of(right)
    assert language_of(a) == left
    assert language_of(union(a, b)) == left | right
    assert language_of(intersect(a, b)) == left & right
    assert language_of(difference(a, b)) == left - right
    assert language_of(optional(a)) == left | {b""}
    assert language_of(concat(a, b)) == short({x + y for x in left for y in right})
    assert intersect(a, b).is_empty == (not left & right)


@given(LANGUAGES, st.integers(0, 3), st.one_of(st.none(), st.integers(0, 3)))
@settings(deadline=None)
def test_repetition(language: frozenset[bytes], least: int, extra: int | None) -> None:
    most = None if extra is None else least + extra
    expected: set[bytes] = set()
    turns = {b""}
    for turn in range((LONGEST + least if most is None else most) + 1):
        if turn >= least:
            expected |= turns
        turns = set(short({x + y for x in turns for y in language}))
    assert language_of(repeat(automaton_of(language), least, most)) == short(expected)


@given(LANGUAGES, LANGUAGES)
@settings(deadline=None)
def test_is_minimal_and_canonical(left: frozenset[bytes], right: frozenset[bytes]) -> None:
    automaton = repeat(union(automaton_of(left), concat(automaton_of(right), byte_class(b"ab"))))
    rests = {frozenset(text for text in TEXTS if accepts_from(automaton, s, text)) for s in range(automaton.num_states)}
    assert len(rests) == automaton.num_states
    again = automaton.minimised()
    assert np.array_equal(again.next_SB, automaton.next_SB)
    assert np.array_equal(again.accepting_S, automaton.accepting_S)
    other_way = repeat(union(concat(automaton_of(right), union(literal(b"b"), literal(b"a"))), automaton_of(left)))
    assert np.array_equal(other_way.next_SB, automaton.next_SB)


def accepts_from(automaton: Automaton, state: int, text: bytes) -> bool:
    return Automaton(next_SB=automaton.next_SB, accepting_S=automaton.accepting_S, start=state).accepts(text)


@given(LANGUAGES.filter(bool))
@settings(deadline=None)
def test_shortest_counts_bytes_to_the_end(language: frozenset[bytes]) -> None:
    automaton = automaton_of(language)
    for state in range(automaton.num_states):
        lengths = [len(text) for text in TEXTS if accepts_from(automaton, state, text)]
        assert automaton.shortest_S[state] == min(lengths)


def test_a_dense_table_that_is_not_minimal_can_be_minimised() -> None:
    next_SB = np.full((4, 256), -1, dtype=np.int32)
    next_SB[3, ord("a")], next_SB[3, ord("b")] = 0, 1
    next_SB[0, ord("c")] = next_SB[1, ord("c")] = 2
    next_SB[1, 0xFF] = 1  # never reaches the end... but for c
    automaton = Automaton(next_SB=next_SB, accepting_S=np.array([False, False, True, False]), start=3)
    small = automaton.minimised()
    assert small.start == 0
    assert small.num_states == 4
    assert small.accepts(b"ac")
    assert small.accepts(b"b\xff\xffc")
    assert small.rejects_at(b"a\xffc") == 1
    assert small.rejects_at(b"a") == 1
    assert small.rejects_at(b"ac") is None
    assert small.next_SB.dtype == np.int32


def test_byte_classes_are_equal_columns() -> None:
    automaton = concat(literal(b"x"), byte_class(range(0x80, 0x100)), byte_class(b"yz"))
    assert len(set(automaton.byte_class_B.tolist())) == 4
    assert automaton.byte_class_B[ord("y")] == automaton.byte_class_B[ord("z")]


def test_the_empty_language() -> None:
    assert nothing().is_empty
    assert nothing().shortest_S.tolist() == [-1]
    assert concat(literal(b"a"), nothing()).num_states == 1
    assert repeat(literal(b"a"), 3, 2).is_empty


def test_bounds_name_themselves() -> None:
    small = Budget(limits=Limits(max_states=50), param="tools[0]")
    with pytest.raises(RequestError, match="more than 50 states") as refusal:
        repeat(literal(b"abc"), 100, 100, budget=small)
    assert refusal.value.param == "tools[0]"
    with pytest.raises(RequestError, match="max_seconds"):
        repeat(literal(b"abc"), 1000, 1000, budget=Budget(limits=Limits(max_seconds=0.0), started_s=0.0))
