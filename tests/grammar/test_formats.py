"""Formats against the standard library and against hand-picked examples."""

from datetime import date

import pytest

from unmask.grammar.json_values import format_automaton


def test_dates_are_those_of_the_calendar() -> None:
    automaton = format_automaton("date")
    for year in (1, 4, 99, 100, 400, 1000, 1900, 1996, 2000, 2023, 2100, 9999):
        for month in range(14):
            for day in range(33):
                try:
                    date(year, month, day)
                    exists = True
                except ValueError:
                    exists = False
                assert automaton.accepts(b"%04d-%02d-%02d" % (year, month, day)) == exists
    assert not automaton.accepts(b"0000-01-01")


def test_addresses_count_to_255() -> None:
    automaton = format_automaton("ipv4")
    for octet in range(1000):
        assert automaton.accepts(b"1.%d.0.255" % octet) == (octet < 256)
    assert not automaton.accepts(b"01.1.1.1")


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("time", ["23:59:59Z", "00:00:00.123+02:00"], ["24:00:00Z", "23:59:60Z", "12:00:00", "12:00Z"]),
        ("date-time", ["2024-02-29T12:00:00Z"], ["2024-02-30T12:00:00Z", "2024-02-29 12:00:00Z", "2024-02-29"]),
        ("uuid", ["01234567-89ab-cdef-0123-456789ABCDEF"], ["0123456789abcdef0123456789abcdef", "g" * 36]),
        ("email", ["a.b+c@d-e.fr"], ["a@b", "@b.c", "a..b@c.de", "a@-b.c", 'a"b@c.de']),
        (
            "uri",
            ["http://a.b:80/c?d=e#f", "mailto:a@b.c", "urn:x:y", "file:///etc"],
            ["nope", "http://a b", "a:", "http://é"],
        ),
        ("hostname", ["localhost", "a-1.b.c"], ["-a", "a-", "a..b", ""]),
    ],
)
def test_examples(name: str, good: list[str], bad: list[str]) -> None:
    automaton = format_automaton(name)
    assert all(automaton.accepts(text.encode()) for text in good)
    assert not any(automaton.accepts(text.encode()) for text in bad)
