r"""Regular expressions to automata: the subset of ECMA-262 that denotes regular languages, by a parser of our own.

Supported: literals, `.`, classes, `\d \w \s` and their opposites, `^` and `$`, groups (plain, `?:`, named),
alternation, `* + ? {n} {n,} {n,m}` (also lazy, which is the same language), and the escapes `\t \n \r \f \v \0 \cX`
`\xHH \uHHHH \u{...}` and of punctuation. As in ECMA-262, `\d` and `\w` are ASCII, `\s` is its list of white space,
`.` is any character but line ends, and `^` and `$` mean the ends of the whole text. Everything else (backreferences,
lookaround, word boundaries, Unicode properties, inline flags, possessive and atomic groups) is refused by its name.
"""

import re
from dataclasses import dataclass

from unmask.core.errors import RequestError
from unmask.grammar.automaton import Automaton
from unmask.grammar.build import Budget, Graph, Limits, repeat_in
from unmask.grammar.characters import ANY, Form, Ranges, inverted, ranges, written

_DIGIT = ranges([(0x30, 0x39)])
_WORD = ranges([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
_SPACE = ranges(
    (ord(first), ord(last))
    for first, last in [
        ("\t", "\r"),
        (" ", " "),
        ("\xa0", "\xa0"),
        ("\u1680", "\u1680"),
        ("\u2000", "\u200a"),
        ("\u2028", "\u2029"),
        ("\u202f", "\u202f"),
        ("\u205f", "\u205f"),
        ("\u3000", "\u3000"),
        ("\ufeff", "\ufeff"),
    ]
)
_DOT = inverted(ranges([(0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)]))
_CLASS_ESCAPES = {
    "d": _DIGIT,
    "D": inverted(_DIGIT),
    "w": _WORD,
    "W": inverted(_WORD),
    "s": _SPACE,
    "S": inverted(_SPACE),
}
_CONTROL_ESCAPES = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D, "0": 0x00}
_REFUSED_GROUPS = {
    "?=": "lookahead",
    "?!": "lookahead",
    "?<=": "lookbehind",
    "?<!": "lookbehind",
    "?>": "an atomic group",
    "?P=": "a backreference",
    "?(": "a conditional group",
    "?#": "a comment group",
}
_REFUSED_ESCAPES = {
    **dict.fromkeys("bB", "a word boundary"),
    **dict.fromkeys("pP", "a Unicode property"),
    **dict.fromkeys("k123456789", "a backreference"),
}
_QUANTIFIER = re.compile(r"\{(\d+)(,?)(\d*)\}")
_MAX_DEPTH = 50


@dataclass(frozen=True, kw_only=True)
class _Chars:
    chosen: Ranges


@dataclass(frozen=True, kw_only=True)
class _Anchor:
    at_start: bool


@dataclass(frozen=True, kw_only=True)
class _Sequence:
    parts: "tuple[_Node, ...]"


@dataclass(frozen=True, kw_only=True)
class _Choice:
    branches: "tuple[_Node, ...]"


@dataclass(frozen=True, kw_only=True)
class _Repeat:
    part: "_Node"
    least: int
    most: int | None


_Node = _Chars | _Anchor | _Sequence | _Choice | _Repeat


def compile_regex(pattern: str, *, limits: Limits | None = None, param: str | None = "regex") -> Automaton:
    """The UTF-8 texts that match a pattern from their first character to their last.

    Raises:
        RequestError: the pattern is malformed, uses what is not regular, matches nothing, or is too large.
    """
    budget = Budget(limits=limits or Limits(), param=param)
    automaton = pattern_automaton(pattern, form=Form.PLAIN, whole=True, budget=budget)
    if automaton.is_empty:
        raise RequestError(f"no text matches the pattern {pattern!r}", param=param)
    return automaton


def pattern_automaton(pattern: str, *, form: Form, whole: bool, budget: Budget) -> Automaton:
    """The texts that a pattern matches.

    Args:
        pattern: the regular expression.
        form: how the text's characters are written.
        whole: whether the match must span the text (else it may be anywhere in it, as in JSON Schema).
        budget: what may be spent.

    Raises:
        RequestError: the pattern is malformed, uses what is not regular, or is too large.
    """
    graph = Graph(budget)
    start, end = graph.state(), graph.state()
    node = parse_regex(pattern, budget.param)
    if whole:
        graph.link(_emit(graph, start, node, form), end)
    else:
        anything = _Repeat(part=_Chars(chosen=ANY), least=0, most=None)
        graph.link(_emit(graph, start, _Sequence(parts=(anything, node, anything)), form), end)
    return graph.automaton(start, end)


def parse_regex(pattern: str, param: str | None) -> "_Node":
    """Reads a pattern; what it returns is for this module, that it returns is for all.

    Raises:
        RequestError: the pattern is malformed or uses what is not regular.
    """
    return _Parser(pattern, param).parse()


def _emit(graph: Graph, state: int, node: _Node, form: Form) -> int:
    """Adds a node's language behind a state; returns its end."""
    match node:
        case _Chars():
            return graph.insert(state, written(node.chosen, form))
        case _Sequence():
            for part in node.parts:
                state = _emit(graph, state, part, form)
            return state
        case _Choice():
            end = graph.state()
            for branch in node.branches:
                graph.link(_emit(graph, state, branch, form), end)
            return end
        case _Repeat():
            end = graph.state()
            repeat_in(graph, state, end, node.least, node.most, lambda begin: _emit(graph, begin, node.part, form))
            return end
        case _Anchor():
            end = graph.state()
            (graph.link_at_start if node.at_start else graph.link_at_end)(state, end)
            return end


class _Parser:
    """Recursive descent over one pattern."""

    def __init__(self, pattern: str, param: str | None) -> None:
        self._pattern = pattern
        self._param = param
        self._at = 0
        self._depth = 0

    def parse(self) -> _Node:
        node = self._choice()
        if self._at < len(self._pattern):
            raise self._error("unmatched ')'")
        return node

    def _error(self, what: str) -> RequestError:
        return RequestError(f"pattern {self._pattern!r}: {what} at character {self._at}", param=self._param)

    def _refusal(self, what: str) -> RequestError:
        return self._error(f"{what} is not supported (it is not regular, or not in the subset)")

    def _next(self) -> str:
        """The character here, or nothing at the end."""
        return self._pattern[self._at : self._at + 1]

    def _take(self, text: str) -> bool:
        if self._pattern.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _choice(self) -> _Node:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else _Choice(branches=tuple(branches))

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while self._next() not in ("", "|", ")"):
            parts.append(self._repeated())
        return parts[0] if len(parts) == 1 else _Sequence(parts=tuple(parts))

    def _repeated(self) -> _Node:
        node = self._atom()
        bounds = self._bounds()
        if bounds is None:
            return node
        if isinstance(node, _Anchor):
            raise self._error("an anchor cannot be repeated")
        least, most = bounds
        if most is not None and most < least:
            raise self._error("the bounds of a repetition are out of order")
        self._take("?")  # lazy: the same language
        if self._next() == "+":
            raise self._refusal("a possessive quantifier")
        if self._bounds() is not None:
            raise self._error("nothing to repeat")
        return _Repeat(part=node, least=least, most=most)

    def _bounds(self) -> tuple[int, int | None] | None:
        for mark, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(mark):
                return bounds
        found = _QUANTIFIER.match(self._pattern, self._at)
        if found is None:
            return None
        self._at = found.end()
        least = int(found[1])
        return least, (int(found[3]) if found[3] else None if found[2] else least)

    def _atom(self) -> _Node:
        if self._take("("):
            return self._group()
        if self._take("["):
            return _Chars(chosen=self._class())
        if self._take("."):
            return _Chars(chosen=_DOT)
        if self._take("^"):
            return _Anchor(at_start=True)
        if self._take("$"):
            return _Anchor(at_start=False)
        if self._take("\\"):
            return _Chars(chosen=self._escape())
        character = self._next()
        if character in "*+?" or _QUANTIFIER.match(self._pattern, self._at):
            raise self._error("nothing to repeat")
        self._at += 1
        return _Chars(chosen=ranges([(ord(character), ord(character))]))

    def _group(self) -> _Node:
        for opening, what in _REFUSED_GROUPS.items():
            if self._pattern.startswith(opening, self._at):
                raise self._refusal(what)
        named = re.compile(r"\?P?<\w+>|\?:").match(self._pattern, self._at)
        if named is not None:
            self._at = named.end()
        elif self._next() == "?":
            raise self._refusal("an inline flag")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error(f"groups nest deeper than {_MAX_DEPTH}")
        node = self._choice()
        self._depth -= 1
        if not self._take(")"):
            raise self._error("missing ')'")
        return _Sequence(parts=(node,))  # so that a group of an anchor may be repeated

    def _class(self) -> Ranges:
        negated = self._take("^")
        if self._next() == "]":
            raise self._error("an empty class means different things in different languages; it is not supported")
        pairs: list[tuple[int, int]] = []
        while not self._take("]"):
            low = self._class_member()
            if self._next() == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("", "]"):
                self._at += 1
                pairs.append(self._range(low, self._class_member()))
            else:
                pairs += low
        chosen = ranges(pairs)
        return inverted(chosen) if negated else chosen

    def _range(self, low: Ranges, high: Ranges) -> tuple[int, int]:
        single = all(len(end) == 1 and end[0][0] == end[0][1] for end in (low, high))
        if not single or low[0][0] > high[0][0]:
            raise self._error("bad range in a class")
        return low[0][0], high[0][0]

    def _class_member(self) -> Ranges:
        if self._take("\\"):
            if self._take("b"):
                return ((0x08, 0x08),)
            return ranges([(0x2D, 0x2D)]) if self._take("-") else self._escape()
        character = self._next()
        if not character:
            raise self._error("missing ']'")
        self._at += 1
        return ranges([(ord(character), ord(character))])

    def _escape(self) -> Ranges:
        letter = self._next()
        if not letter:
            raise self._error("a backslash with nothing behind it")
        if letter in _REFUSED_ESCAPES:
            raise self._refusal(_REFUSED_ESCAPES[letter])
        if letter in _CLASS_ESCAPES:
            self._at += 1
            return _CLASS_ESCAPES[letter]
        code = self._code_point(letter)
        return ranges([(code, code)])

    def _code_point(self, letter: str) -> int:
        numeric = re.compile(
            r"x([0-9a-fA-F]{2})|u\{([0-9a-fA-F]{1,6})\}|u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})"
            r"|u([0-9a-fA-F]{4})|c([a-zA-Z])"
        ).match(self._pattern, self._at)
        if numeric is not None:
            self._at = numeric.end()
            short, long, high, low, four, control = numeric.groups()
            if control is not None:
                return ord(control) % 32
            if high is not None:
                return 0x10000 + ((int(high, 16) & 0x3FF) << 10) + (int(low, 16) & 0x3FF)
            code = int(short or long or four, 16)
            if code > 0x10FFFF:
                raise self._error("a code point beyond U+10FFFF")
            return code
        if letter.isascii() and ((letter.isalpha() and letter not in _CONTROL_ESCAPES) or letter == "_"):
            raise self._refusal(f"the escape \\{letter}")
        if letter == "0" and self._pattern[self._at + 1 : self._at + 2].isdigit():
            raise self._refusal("an octal escape")
        self._at += 1
        return _CONTROL_ESCAPES.get(letter, ord(letter))
