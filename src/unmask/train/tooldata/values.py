"""Pools of argument values, how a request words them, and which half of each pool is held out.

A string is held out by a checksum of its text, so that it lies in the same half of every pool; a number, date or time
by a residue. Enum members and booleans are shared: a schema shows them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from unmask.train.tooldata.words import COMPOSED, ENUMS, FLAGS, PLAIN

Draw = Callable[[Random, bool], tuple[str, Any]]

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
NUMBER_WORDS = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)
DURATIONS: dict[int, tuple[str, ...]] = {
    30: ("half an hour", "30 minutes", "thirty minutes"),
    60: ("an hour", "one hour", "60 minutes"),
    90: ("an hour and a half", "90 minutes"),
    120: ("two hours", "2 hours"),
    180: ("three hours", "3 hours"),
    240: ("four hours", "4 hours"),
    10: ("ten minutes", "10 minutes"),
    5: ("five minutes", "5 minutes"),
}
INTEGERS: dict[str, tuple[int, int, int]] = {
    "count": (2, 12, 1),
    "people": (2, 10, 1),
    "percent": (5, 100, 5),
    "degrees": (16, 26, 1),
    "money": (5, 900, 5),
    "lines": (20, 500, 5),
    "grams": (40, 400, 5),
    "mark": (40, 100, 1),
    "stars": (2, 5, 1),
    "bedrooms": (2, 6, 1),
    "rent": (500, 2500, 5),
}


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Values of one sort.

    Attributes:
        schema: JSON schema of a value.
        draw: From a random source and "held out?" to the words of a request and the JSON value.
        verbatim: The value is a string that stands in the request letter by letter.
        open: Has held-out values.
    """

    schema: dict[str, Any]
    draw: Draw
    verbatim: bool = False
    open: bool = True


def is_held(value: str | int) -> bool:
    """Whether a string or a number belongs to the held-out half."""
    if isinstance(value, int):
        return value % 4 == 3
    return zlib.crc32(value.casefold().encode()) % 5 < 2


def _text(rng: Random, held: bool, name: str) -> str:
    if name in PLAIN:
        return rng.choice([item for item in PLAIN[name].split("|") if is_held(item) == held])
    out = rng.choice(COMPOSED[name].split("|"))
    while "<" in out:
        head, _, rest = out.partition("<")
        part, _, tail = rest.partition(">")
        out = f"{head}{_text(rng, held, part)}{tail}"
    return out


def _string(name: str) -> Pool:
    def draw(rng: Random, held: bool) -> tuple[str, str]:
        text = _text(rng, held, name)
        return text, text

    return Pool(schema={"type": "string"}, draw=draw, verbatim=True)


def _strings(name: str) -> Pool:
    def draw(rng: Random, held: bool) -> tuple[str, list[str]]:
        wanted = rng.choice((2, 2, 3))
        items: list[str] = []
        while len(items) < wanted:
            item = _text(rng, held, name)
            if item not in items:
                items.append(item)
        return f"{', '.join(items[:-1])} and {items[-1]}", items

    return Pool(schema={"type": "array", "items": {"type": "string"}}, draw=draw)


def _enum(rows: dict[str, str]) -> Pool:
    def draw(rng: Random, held: bool) -> tuple[str, str]:
        del held
        value = rng.choice(list(rows))
        return rng.choice(rows[value].split("|")), value

    return Pool(schema={"type": "string", "enum": list(rows)}, draw=draw, open=False)


def _flag(yes: str, no: str) -> Pool:
    def draw(rng: Random, held: bool) -> tuple[str, bool]:
        del held
        value = rng.random() < 0.5
        return rng.choice((yes if value else no).split("|")), value

    return Pool(schema={"type": "boolean"}, draw=draw, open=False)


def _integer(low: int, high: int, step: int) -> Pool:
    def draw(rng: Random, held: bool) -> tuple[str, int]:
        value = rng.choice([n for n in range(low, high + 1, step) if is_held(n) == held])
        if value < len(NUMBER_WORDS) and rng.random() < 0.6:
            return NUMBER_WORDS[value], value
        return str(value), value

    return Pool(schema={"type": "integer"}, draw=draw)


def _decimal(low: int, high: int) -> Pool:
    def draw(rng: Random, held: bool) -> tuple[str, float]:
        tenths = rng.choice([n for n in range(low, high) if n % 10 and is_held(n) == held])
        return f"{tenths / 10:.1f}", tenths / 10

    return Pool(schema={"type": "number"}, draw=draw)


def _draw_duration(rng: Random, held: bool) -> tuple[str, int]:
    if held:
        value = rng.choice((15, 35, 55, 75, 95))
        return f"{value} minutes", value
    value = rng.choice((*DURATIONS, 20, 25, 40, 45, 50))
    return rng.choice(DURATIONS.get(value, (f"{value} minutes",))), value


def _draw_date(rng: Random, held: bool) -> tuple[str, str]:
    year, month = rng.choice((2025, 2026, 2026, 2027)), rng.randint(1, 12)
    day = rng.choice([n for n in range(1, 29) if is_held(n) == held])
    name, suffix = MONTHS[month - 1], {1: "st", 2: "nd", 3: "rd"}.get(0 if 10 < day < 14 else day % 10, "th")
    value = f"{year}-{month:02d}-{day:02d}"
    words = (
        f"{name} {day} {year}",
        f"{name} {day}, {year}",
        f"{day} {name} {year}",
        f"{name} {day}{suffix}, {year}",
        f"{name[:3]} {day} {year}",
        value,
    )
    return rng.choice(words), value


def _draw_time(rng: Random, held: bool) -> tuple[str, str]:
    while True:
        hour, minute = rng.randint(6, 22), rng.choice((0, 0, 0, 15, 30, 30, 45, 10, 20, 40, 50))
        if is_held(hour + minute // 5) == held:
            break
    half, clock = "am" if hour < 12 else "pm", (hour - 1) % 12 + 1
    value = f"{hour:02d}:{minute:02d}"
    if minute:
        return rng.choice((f"{clock}:{minute:02d} {half}", f"{clock}:{minute:02d}{half}", value)), value
    if hour == 12:
        return rng.choice(("noon", "12 pm")), value
    return rng.choice((f"{clock} {half}", f"{clock}{half}", f"{clock}:00 {half}", value)), value


def _code(style: str) -> Pool:
    """Codes such as "BA217": letters for "L", digits for "9"; the last digit carries the residue."""

    def draw(rng: Random, held: bool) -> tuple[str, str]:
        while True:
            swap = {"L": "ABCDEFGHKLMNPRSTUVWX", "9": "0123456789", "8": "123456789"}
            text = "".join(rng.choice(swap[c]) if c in swap else c for c in style)
            if is_held(int("".join(c for c in text if c.isdigit())[-2:])) == held:
                return text, text

    return Pool(schema={"type": "string"}, draw=draw, verbatim=True)


def build_pools() -> dict[str, Pool]:
    """All pools by name."""
    pools = {name: _string(name) for name in (*PLAIN, *COMPOSED)}
    pools |= {f"{name}_list": _strings(name) for name in ("ingredient", "song", "room", "person", "product", "label")}
    pools |= {name: _enum(rows) for name, rows in ENUMS.items()}
    pools |= {name: _flag(*rows) for name, rows in FLAGS.items()}
    pools |= {name: _integer(*bounds) for name, bounds in INTEGERS.items()}
    pools["weight"] = _decimal(480, 990)
    pools["small_weight"] = _decimal(11, 190)
    pools["minutes"] = Pool(schema={"type": "integer", "description": "minutes"}, draw=_draw_duration)
    pools["date"] = Pool(schema={"type": "string", "description": "YYYY-MM-DD"}, draw=_draw_date)
    pools["time"] = Pool(schema={"type": "string", "description": "HH:MM"}, draw=_draw_time)
    codes = {"flight": "LL899", "order_id": "A8999", "ticket": "OPS-899", "version": "v8.9.89", "plate": "LLL-899"}
    pools |= {name: _code(style) for name, style in codes.items()}
    pools["card"] = _code("89999")
    return pools


POOLS: dict[str, Pool] = build_pools()
