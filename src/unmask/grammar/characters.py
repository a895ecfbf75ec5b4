r"""Sets of characters and how they are written as bytes: plain UTF-8, or inside a JSON string.

A set is a sorted tuple of inclusive code point ranges that neither touch nor hold surrogates (UTF-8 has none).
Inside a JSON string there is exactly one way to write each character: `"`, `\` and the controls below 0x20 are escaped
(with the short escape if there is one, else `\u00xx` in lower case), everything else stands for itself. That is what
Python's `json.dumps(ensure_ascii=False)` and JavaScript's `JSON.stringify` write.
"""

import json
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import lru_cache
from itertools import pairwise

from unmask.grammar.automaton import Automaton
from unmask.grammar.build import Graph, literal, union

Ranges = tuple[tuple[int, int], ...]

_SURROGATES = (0xD800, 0xDFFF)
_LAST = 0x10FFFF
_MUST_ESCAPE: Ranges = ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C))


class Form(Enum):
    """How characters are written."""

    PLAIN = "plain"
    JSON = "json"


def ranges(pairs: Iterable[tuple[int, int]]) -> Ranges:
    """Puts ranges into the form of a set: sorted, joined, without surrogates."""
    cut: list[tuple[int, int]] = []
    for low, high in pairs:
        cut += [(low, min(high, _SURROGATES[0] - 1)), (max(low, _SURROGATES[1] + 1), high)]
    joined: list[tuple[int, int]] = []
    for low, high in sorted(pair for pair in cut if pair[0] <= pair[1]):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return tuple(joined)


def inverted(chosen: Ranges) -> Ranges:
    """All characters that are not in the set."""
    edges = [(-1, -1), *chosen, (_LAST + 1, _LAST + 1)]
    return ranges((left[1] + 1, right[0] - 1) for left, right in pairwise(edges))


def overlap(left: Ranges, right: Ranges) -> Ranges:
    """The characters in both sets."""
    return ranges((max(a, c), min(b, d)) for a, b in left for c, d in right if max(a, c) <= min(b, d))


ANY: Ranges = ranges([(0, _LAST)])


def escaped(text: str) -> bytes:
    """A text as it stands between the quotes of a JSON string.

    Raises:
        UnicodeEncodeError: the text holds a lone surrogate.
    """
    return json.dumps(text, ensure_ascii=False)[1:-1].encode()


@lru_cache(maxsize=1024)
def written(chosen: Ranges, form: Form) -> Automaton:
    """The language of the written forms of a set's characters."""
    if form is Form.JSON:
        special = overlap(chosen, _MUST_ESCAPE)
        if special:
            forms = [literal(escaped(chr(code))) for low, high in special for code in range(low, high + 1)]
            return union(*forms, written(overlap(chosen, inverted(_MUST_ESCAPE)), Form.PLAIN))
    graph = Graph()
    start, end = graph.state(), graph.state()
    for low, high in chosen:
        for sequence in _utf8(low, high):
            state = start
            for index, (first, last) in enumerate(sequence):
                target = end if index == len(sequence) - 1 else graph.state()
                graph.edge(state, (1 << last + 1) - (1 << first), target)
                state = target
    return graph.automaton(start, end)


def _utf8(low: int, high: int) -> Iterator[list[tuple[int, int]]]:
    """Cuts a range of code points into sequences of byte ranges; every choice of bytes is a character of the range."""
    for limit in (0x7F, 0x7FF, 0xFFFF):
        if low <= limit < high:
            yield from _utf8(low, limit)
            yield from _utf8(limit + 1, high)
            return
    if high > 0x7F:
        for tail_bits in (6, 12, 18):
            tail = (1 << tail_bits) - 1
            if low & ~tail == high & ~tail:
                break
            if low & tail:
                yield from _utf8(low, low | tail)
                yield from _utf8((low | tail) + 1, high)
                return
            if high & tail != tail:
                yield from _utf8(low, (high & ~tail) - 1)
                yield from _utf8(high & ~tail, high)
                return
    yield list(zip(chr(low).encode(), chr(high).encode(), strict=True))
