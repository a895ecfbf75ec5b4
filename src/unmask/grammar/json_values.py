"""Automata of JSON texts that need no schema: strings, constants, and free values of bounded depth."""

from dataclasses import dataclass
from functools import lru_cache

from unmask.grammar.automaton import Automaton
from unmask.grammar.build import Budget, Graph, intersect, literal, nothing, repeat, repeat_in, union
from unmask.grammar.characters import ANY, Form, written
from unmask.grammar.formats import FORMATS
from unmask.grammar.numbers import numbers
from unmask.grammar.regex import pattern_automaton


@dataclass(frozen=True, kw_only=True)
class Separators:
    """The white space of the texts: what stands between items or members, and between a key and its value."""

    item: str = ", "
    key: str = ": "


def string(
    *,
    min_length: int = 0,
    max_length: int | None = None,
    pattern: str | None = None,
    format_name: str | None = None,
    budget: Budget | None = None,
) -> Automaton:
    """JSON strings with their quotes.

    Args:
        min_length: fewest characters (not bytes, not escapes).
        max_length: most characters.
        pattern: a regular expression that matches somewhere in the string.
        format_name: one of `FORMATS`.
        budget: what may be spent.

    Raises:
        RequestError: the pattern is refused, or the language is too large.
    """
    if not min_length and max_length is None and pattern is None and format_name is None:
        return _any_string()
    budget = budget or Budget()
    parts: list[Automaton] = []
    if min_length or max_length is not None:
        parts.append(repeat(written(ANY, Form.JSON), min_length, max_length, budget=budget))
    if pattern is not None:
        parts.append(pattern_automaton(pattern, form=Form.JSON, whole=False, budget=budget))
    if format_name is not None:
        parts.append(format_automaton(format_name))
    content = parts[0]
    for part in parts[1:]:
        content = intersect(content, part, budget=budget)
    return quoted(content, budget=budget)


@lru_cache(maxsize=64)
def format_automaton(name: str) -> Automaton:
    """The contents of strings of a format."""
    return pattern_automaton(FORMATS[name], form=Form.JSON, whole=True, budget=Budget())


def quoted(content: Automaton, *, budget: Budget | None = None) -> Automaton:
    """A string's content between quotes."""
    graph = Graph(budget)
    start = graph.state()
    return graph.automaton(start, graph.text(graph.insert(graph.text(start, b'"'), content), b'"'))


@lru_cache(maxsize=1)
def _any_string() -> Automaton:
    return quoted(repeat(written(ANY, Form.JSON)))


@lru_cache(maxsize=1)
def boolean() -> Automaton:
    """`true` and `false`."""
    return union(literal(b"true"), literal(b"false"))


@lru_cache(maxsize=1)
def null() -> Automaton:
    """`null`."""
    return literal(b"null")


@lru_cache(maxsize=64)
def free_value(depth: int, separators: Separators) -> Automaton:
    """Any JSON value whose arrays and objects nest at most `depth` deep; at depth 0 there are none, not even empty."""
    kinds = [string(), numbers(), boolean(), null()]
    if depth > 0:
        kinds += [free_array(depth, separators), free_object(depth, separators)]
    return union(*kinds)


@lru_cache(maxsize=64)
def free_array(depth: int, separators: Separators) -> Automaton:
    """Arrays of free values; see `free_value`."""
    return array(free_value(depth - 1, separators), 0, None, separators)


@lru_cache(maxsize=64)
def free_object(depth: int, separators: Separators) -> Automaton:
    """Objects of free values under any keys; see `free_value`."""
    graph = Graph()
    start = graph.state()
    opened, end = graph.text(start, b"{"), graph.state()
    member = graph.state()
    graph.link(opened, member)
    value = graph.text(graph.insert(member, string()), separators.key.encode())
    after = graph.insert(value, free_value(depth - 1, separators))
    graph.link(graph.text(after, separators.item.encode()), member)
    for state in (opened, after):
        graph.link(graph.text(state, b"}"), end)
    return graph.automaton(start, end)


def array(
    item: Automaton,
    least: int,
    most: int | None,
    separators: Separators,
    *,
    prefix: tuple[Automaton, ...] = (),
    budget: Budget | None = None,
) -> Automaton:
    """Arrays of `least` to `most` items; those of `prefix` come first, each of its own language."""
    if most is not None and most < least:
        return nothing()
    graph = Graph(budget)
    start = graph.state()
    separator = separators.item.encode()
    opened, end = graph.text(start, b"["), graph.state()
    if least == 0:
        graph.link(opened, end)
    state, count = opened, 0
    most_prefix = len(prefix) if most is None else min(len(prefix), most)
    for own in prefix[:most_prefix]:
        state = graph.insert(graph.text(state, separator) if count else state, own)
        count += 1
        if count >= least:
            graph.link(state, end)
    if most is None or most > count:
        if count == 0:
            state = graph.insert(state, item)
            count = 1
            if least <= 1:
                graph.link(state, end)

        def turn(begin: int) -> int:
            return graph.insert(graph.text(begin, separator), item)

        repeat_in(graph, state, end, max(least - count, 0), None if most is None else most - count, turn)
    return graph.automaton(start, graph.text(end, b"]"))
