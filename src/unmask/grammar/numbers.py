"""JSON numbers between bounds, exactly, as automata over their digits.

A number is written without a plus sign, without leading zeros and without a minus before zero. Bounded numbers are
written without exponent; a number without bounds may have one of up to two digits (so it stays a finite double).
Trailing zeros behind the point are allowed ("0.50"). Bounds are compared as decimals: no rounding happens anywhere.
"""

from decimal import Decimal
from functools import lru_cache

from unmask.grammar.automaton import Automaton
from unmask.grammar.build import (
    Budget,
    Graph,
    byte_class,
    concat,
    intersect,
    literal,
    nothing,
    optional,
    repeat,
    repeat_in,
    union,
)

_ANY_DIGIT = byte_class(b"0123456789")


def decimal(value: int | float) -> Decimal:
    """The number as JSON writes it: 0.1 is one tenth, not the nearest double."""
    return Decimal(repr(value)) if isinstance(value, float) else Decimal(value)


def written_number(value: int | float) -> bytes:
    """The one way we write a number: without exponent, and without a fraction where it is whole (1.0 is `1`)."""
    exact = decimal(value)
    if exact == exact.to_integral_value():
        return str(int(exact)).encode()
    return format(exact, "f").encode()


def integers(least: Decimal | None = None, most: Decimal | None = None, *, budget: Budget | None = None) -> Automaton:
    """Whole numbers from `least` to `most`, both included; None is without bound."""
    low = None if least is None else int(least.to_integral_value(rounding="ROUND_CEILING"))
    high = None if most is None else int(most.to_integral_value(rounding="ROUND_FLOOR"))
    positive = _whole(None if low is None else max(low, 0), high, budget)
    negative = _whole(1 if high is None else max(-high, 1), None if low is None else -low, budget)
    return union(positive, concat(literal(b"-"), negative), budget=budget)


def numbers(
    least: Decimal | None = None,
    most: Decimal | None = None,
    *,
    above: Decimal | None = None,
    below: Decimal | None = None,
    budget: Budget | None = None,
) -> Automaton:
    """Decimals that are >= `least`, <= `most`, > `above` and < `below`; None is without bound."""
    if least is None and most is None and above is None and below is None:
        return _free_number()
    lows = [(bound, strict) for bound, strict in ((least, False), (above, True)) if bound is not None]
    highs = [(bound, strict) for bound, strict in ((most, False), (below, True)) if bound is not None]
    positive = concat(_any_whole(), optional(_fraction()))
    for bound, strict in lows:
        positive = intersect(positive, _at_least(bound, strict), budget=budget)
    for bound, strict in highs:
        positive = intersect(positive, _at_most(bound, strict), budget=budget)
    negative = _at_least(Decimal(0), True)
    for bound, strict in lows:
        negative = intersect(negative, _at_most(bound.copy_negate(), strict), budget=budget)
    for bound, strict in highs:
        negative = intersect(negative, _at_least(bound.copy_negate(), strict), budget=budget)
    return union(positive, concat(literal(b"-"), negative), budget=budget)


@lru_cache(maxsize=1)
def _free_number() -> Automaton:
    plain = concat(_any_whole(), optional(_fraction()))
    exponent = concat(byte_class(b"eE"), optional(byte_class(b"+-")), repeat(_ANY_DIGIT, 1, 2))
    negative = concat(literal(b"-"), _at_least(Decimal(0), True))
    return concat(union(plain, negative), optional(exponent))


@lru_cache(maxsize=1)
def _fraction() -> Automaton:
    return concat(literal(b"."), repeat(_ANY_DIGIT, 1))


@lru_cache(maxsize=1)
def _any_whole() -> Automaton:
    return union(literal(b"0"), concat(byte_class(b"123456789"), repeat(_ANY_DIGIT)))


def _whole(least: int | None, most: int | None, budget: Budget | None) -> Automaton:
    """Non-negative integers in a range."""
    if most is not None and most < max(least or 0, 0):
        return nothing()
    result = _any_whole()
    if least:
        result = intersect(result, union(literal(b"%d" % least), _greater(str(least))), budget=budget)
    if most is not None:
        result = intersect(result, union(literal(b"%d" % most), _less(str(most))), budget=budget)
    return result


def _at_least(bound: Decimal, strict: bool) -> Automaton:
    """Non-negative decimals >= or > the bound."""
    if bound < 0:
        return concat(_any_whole(), optional(_fraction()))
    whole, fraction = _parts(bound)
    higher = concat(_greater(whole), optional(_fraction()))
    return union(higher, concat(literal(whole.encode()), _fraction_above(fraction, strict)))


def _at_most(bound: Decimal, strict: bool) -> Automaton:
    """Non-negative decimals <= or < the bound."""
    if bound < 0:
        return nothing()
    whole, fraction = _parts(bound)
    lower = concat(_less(whole), optional(_fraction()))
    return union(lower, concat(literal(whole.encode()), _fraction_below(fraction, strict)))


def _parts(bound: Decimal) -> tuple[str, str]:
    """Digits before the point and behind it, the latter without trailing zeros."""
    whole, _, fraction = format(bound, "f").partition(".")
    return whole.lstrip("+-") or "0", fraction.rstrip("0")


def _fraction_above(digits: str, strict: bool) -> Automaton:
    """What may follow a whole part equal to the bound's: nothing or a fraction >= (or >) the bound's."""
    graph = Graph()
    start, end, beyond = graph.state(), graph.state(), graph.state()
    graph.edge(beyond, _digits(0, 9), beyond)
    graph.link(beyond, end)
    state = graph.text(start, b".")
    for character in digits:
        graph.edge(state, _digits(int(character) + 1, 9), beyond)
        following = graph.state()
        graph.edge(state, _digits(int(character), int(character)), following)
        state = following
    graph.edge(state, _digits(1, 9), beyond)
    graph.edge(state, _digits(0, 0), state if strict else beyond)
    if not strict:
        graph.link(state if digits else start, end)
    return graph.automaton(start, end)


def _fraction_below(digits: str, strict: bool) -> Automaton:
    """What may follow a whole part equal to the bound's: nothing or a fraction <= (or <) the bound's."""
    graph = Graph()
    start, end, beyond = graph.state(), graph.state(), graph.state()
    graph.edge(beyond, _digits(0, 9), beyond)
    graph.link(beyond, end)
    if digits or not strict:
        graph.link(start, end)
    state = graph.text(start, b".")
    for place, character in enumerate(digits):
        graph.edge(state, _digits(0, int(character) - 1), beyond)
        following = graph.state()
        graph.edge(state, _digits(int(character), int(character)), following)
        state = following
        if place < len(digits) - 1:  # the bound's last digit is not zero, so what stops before it is smaller
            graph.link(state, end)
    if not strict:
        equal = graph.state()
        graph.edge(state, _digits(0, 0), equal)
        graph.edge(equal, _digits(0, 0), equal)
        graph.link(equal, end)
        if digits:
            graph.link(state, end)
    return graph.automaton(start, end)


def _digits(low: int, high: int) -> int:
    """The digits from one to another as a set of bytes."""
    return (1 << 0x30 + high + 1) - (1 << 0x30 + low) if low <= high else 0


def _less(digits: str) -> Automaton:
    """Non-negative integers below one given by its digits."""
    graph = Graph()
    start, end = graph.state(), graph.state()
    _differ(graph, start, end, digits, less=True)
    if len(digits) > 1:
        graph.edge(start, _digits(0, 0), end)
        rest = graph.state()
        graph.edge(start, _digits(1, 9), rest)
        repeat_in(graph, rest, end, 0, len(digits) - 2, lambda begin: _any_digit_after(graph, begin))
    return graph.automaton(start, end)


def _greater(digits: str) -> Automaton:
    """Integers above one given by its digits."""
    graph = Graph()
    start, end, rest = graph.state(), graph.state(), graph.state()
    _differ(graph, start, end, digits, less=False)
    graph.edge(start, _digits(1, 9), rest)
    repeat_in(graph, rest, end, len(digits), None, lambda begin: _any_digit_after(graph, begin))
    return graph.automaton(start, end)


def _differ(graph: Graph, start: int, end: int, digits: str, *, less: bool) -> None:
    """Adds the integers with as many digits that are less (or greater)."""
    rest = [end]  # rest[n]: n more digits of any value
    for _ in digits:
        rest.append(graph.state())
        graph.edge(rest[-1], _digits(0, 9), rest[-2])
    state = start
    for place, digit in enumerate(int(character) for character in digits):
        smallest = 1 if place == 0 and len(digits) > 1 else 0
        graph.edge(
            state, _digits(smallest, digit - 1) if less else _digits(digit + 1, 9), rest[len(digits) - place - 1]
        )
        following = graph.state()
        graph.edge(state, _digits(digit, digit), following)
        state = following


def _any_digit_after(graph: Graph, state: int) -> int:
    following = graph.state()
    graph.edge(state, _digits(0, 9), following)
    return following
