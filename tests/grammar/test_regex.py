"""Our regular expressions against Python's `re`, on random patterns and texts where both dialects agree."""

import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from unmask.core.errors import RequestError
from unmask.grammar.build import Budget, Limits
from unmask.grammar.characters import Form, escaped
from unmask.grammar.regex import compile_regex, pattern_automaton

ALPHABET = 'ab"\\\n/é漢🦊'
ATOMS = st.sampled_from(
    [
        "a",
        "b",
        '"',
        r"\\",
        "é",
        "漢",
        "🦊",
        r"\n",
        "[ab]",
        "[^a]",
        r"[é-🦊]",
        r"[^\n\r\u2028\u2029]",
        r"[\\\"a-]",
        r"\w",
        r"\W",
    ]
)
TEXTS = st.text(alphabet=ALPHABET, max_size=7)


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    quantifiers = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,1}", "{2,}", "*?", "+?"])
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda branches: f"(?:{'|'.join(branches)})"),
        st.tuples(inner, quantifiers).map(lambda pair: f"({pair[0]}){pair[1]}"),
        st.tuples(st.sampled_from(["^", "", ""]), inner, st.sampled_from([r"$", "", ""])).map(
            lambda parts: f"(?:{''.join(parts)})"
        ),
    )


PATTERNS = st.recursive(ATOMS, grown, max_leaves=6)


def python(pattern: str) -> re.Pattern[str]:
    """The same pattern for `re`, whose `$` would also match before a last line end."""
    return re.compile(pattern.replace("$", r"\Z"), re.ASCII)


@given(PATTERNS, st.lists(TEXTS, min_size=1, max_size=12))
@example(pattern="^a|b$", texts=["ac", "cb", "ca", "bc"])
@example(pattern="(^a|b)*$", texts=["", "ab", "ba", "aab", "bbb"])
@settings(max_examples=150, deadline=None)
def test_agrees_with_re(pattern: str, texts: list[str]) -> None:
    expected = python(pattern)
    whole = pattern_automaton(pattern, form=Form.PLAIN, whole=True, budget=Budget())
    inside = pattern_automaton(pattern, form=Form.JSON, whole=False, budget=Budget())
    for text in texts:
        assert whole.accepts(text.encode()) == bool(expected.fullmatch(text)), (pattern, text)
        assert inside.accepts(escaped(text)) == bool(expected.search(text)), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^\d{4}-\d\d$", ["2024-10"], ["2024-1", "x2024-10", "\u0662024-10"]),
        (r"\x41\u0042\u{1f98a}\cA\0", ["AB🦊\x01\x00"], ["AB"]),
        (r"\uD83E\uDD8A", ["🦊"], [""]),
        (r"a{,2}", ["a{,2}"], ["a", "aa"]),
        (r"(?<year>a)(?P<b>b)", ["ab"], ["a"]),
        (r".", ["a", "\x85", "🦊"], ["\n", "\r", "\u2028", "ab", ""]),
        (r"\s", ["\ufeff", "\u3000", " "], ["\x1f", "a"]),
        (r"", [""], ["a"]),
    ],
)
def test_follows_ecma(pattern: str, good: list[str], bad: list[str]) -> None:
    automaton = compile_regex(pattern)
    assert all(automaton.accepts(text.encode()) for text in good)
    assert not any(automaton.accepts(text.encode()) for text in bad)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        (r"(a)\1", "a backreference"),
        (r"(?<n>a)\k<n>", "a backreference"),
        ("a(?=b)", "lookahead"),
        ("a(?!b)", "lookahead"),
        ("(?<=a)b", "lookbehind"),
        ("(?<!a)b", "lookbehind"),
        ("(?>a)", "an atomic group"),
        ("(?i)a", "an inline flag"),
        (r"\bword", "a word boundary"),
        (r"\p{L}", "a Unicode property"),
        ("a++", "possessive"),
        (r"a\Z", r"the escape \Z"),
        (r"\01", "octal"),
        ("(a", r"missing '\)'"),
        ("a)", r"unmatched '\)'"),
        ("[a", "missing ']'"),
        ("[]a]", "empty class"),
        ("[b-a]", "bad range"),
        ("*a", "nothing to repeat"),
        ("a{3,2}", "out of order"),
        ("a\\", "backslash"),
        ("(" * 200 + ")" * 200, "nest deeper"),
        ("a^b", "no text matches"),
    ],
)
def test_refuses_by_name(pattern: str, reason: str) -> None:
    with pytest.raises(RequestError, match=re.escape(reason) if "\\Z" in reason else reason) as refusal:
        compile_regex(pattern, param="guided_regex")
    assert refusal.value.param == "guided_regex"
    assert "\n" not in str(refusal.value)


def test_explosions_are_bounded() -> None:
    for pattern in ("(a|b)*a(a|b){30}", "a{100000}", "((a{100}){100}){100}"):
        with pytest.raises(RequestError, match="2000 states"):
            compile_regex(pattern, limits=Limits(max_states=2000))


def test_json_form_is_what_json_writes() -> None:
    automaton = pattern_automaton(".*", form=Form.JSON, whole=False, budget=Budget())
    for code in (*range(0x300), 0x2028, 0xFFFF, 0x10FFFF):
        assert automaton.accepts(json.dumps(chr(code), ensure_ascii=False)[1:-1].encode()), hex(code)
    for wrong in (b'"', b"\\", b"\n", b"\\u0041", b"\\/", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"):
        assert not automaton.accepts(wrong), wrong
