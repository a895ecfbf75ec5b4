"""Bounded numbers against brute force over ranges, and against exact decimal comparison on random bounds."""

from decimal import Decimal

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from unmask.grammar.numbers import decimal, integers, numbers, written_number

BOUNDS = st.one_of(st.none(), st.integers(-120, 120))
DECIMALS = st.decimals(min_value=-200, max_value=200, places=3)


@given(BOUNDS, BOUNDS)
@settings(max_examples=60, deadline=None)
def test_integers_agree_with_counting(least: int | None, most: int | None) -> None:
    automaton = integers(None if least is None else Decimal(least), None if most is None else Decimal(most))
    for value in range(-1100, 1101):
        inside = (least is None or value >= least) and (most is None or value <= most)
        assert automaton.accepts(b"%d" % value) == inside


@given(st.integers(-(10**25), 10**25), st.integers(0, 10**25), st.integers(-(10**25), 10**26))
@settings(max_examples=60, deadline=None)
def test_large_integers(least: int, width: int, value: int) -> None:
    automaton = integers(Decimal(least), Decimal(least + width))
    assert automaton.accepts(b"%d" % value) == (least <= value <= least + width)
    assert automaton.accepts(b"%d" % least)
    assert automaton.accepts(b"%d" % (least + width))
    assert not automaton.accepts(b"%d" % (least - 1))


def test_integer_bounds_with_a_fraction_round_inwards() -> None:
    automaton = integers(Decimal("-1.5"), Decimal("2.5"))
    assert [value for value in range(-5, 6) if automaton.accepts(b"%d" % value)] == [-1, 0, 1, 2]


@given(
    st.one_of(st.none(), DECIMALS),
    st.one_of(st.none(), DECIMALS),
    st.booleans(),
    st.booleans(),
    st.lists(st.decimals(min_value=-250, max_value=250, places=4), min_size=1, max_size=20),
)
@settings(max_examples=80, deadline=None)
def test_decimals_agree_with_exact_comparison(
    low: Decimal | None, high: Decimal | None, low_strict: bool, high_strict: bool, values: list[Decimal]
) -> None:
    automaton = numbers(
        None if low_strict else low,
        None if high_strict else high,
        above=low if low_strict else None,
        below=high if high_strict else None,
    )
    assume(low is not None or high is not None)
    nearby = [bound + Decimal(step) for bound in (low, high) if bound is not None for step in ("0", "0.001", "-0.0001")]
    for value in [*values, *nearby, Decimal(0)]:
        inside = (low is None or value > low or (value == low and not low_strict)) and (
            high is None or value < high or (value == high and not high_strict)
        )
        for text in {format(value, "f"), format(value.normalize(), "f"), f"{value:.6f}"}:
            if text.startswith("-") and value == 0:
                assert not automaton.accepts(text.encode())
            else:
                assert automaton.accepts(text.encode()) == inside, (text, low, high)


def test_spelling() -> None:
    free = numbers()
    for good in ("0", "-1", "10.50", "1e5", "1.5E-07", "2e+10"):
        assert free.accepts(good.encode()), good
    for bad in ("-0", "-0.0", "01", "+1", ".5", "1.", "1e", "1e999", "", "-", "NaN", "0x1"):
        assert not free.accepts(bad.encode()), bad
    assert written_number(1.0) == b"1"
    assert written_number(1e-7) == b"0.0000001"
    assert written_number(-0.0) == b"0"
    assert decimal(0.1) == Decimal("0.1")
