import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.core.errors import ConfigError
from unmask.text.toolcalls import ContentDelta, ToolCall, ToolCallFormat, ToolCallParser, overlap

FORMAT = ToolCallFormat()
GOOD = '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'


def parse(*pieces: str) -> list[ContentDelta | ToolCall]:
    """All pieces, with neighbouring content merged across pushes."""
    parser = ToolCallParser(FORMAT)
    found = [item for piece in pieces for item in parser.push(piece)] + parser.flush()
    merged: list[ContentDelta | ToolCall] = []
    for item in found:
        last = merged[-1] if merged else None
        if isinstance(item, ContentDelta) and isinstance(last, ContentDelta):
            merged[-1] = ContentDelta(text=last.text + item.text)
        else:
            merged.append(item)
    return merged


def call(name: str = "f", arguments: str = '{"x": 1}') -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def content(text: str) -> ContentDelta:
    return ContentDelta(text=text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("plain", [content("plain")]),
        ("plain \n", [content("plain \n")]),
        (GOOD, [call()]),
        (f"\n {GOOD} \n\n{GOOD}\n", [call(), call()]),
        (f"Let me look.\n{GOOD}", [content("Let me look."), call()]),
        (f"{GOOD}\nDone.", [call(), content("\nDone.")]),
        ('<tool_call>\n{ "name":"f" ,\n"arguments" : { "x":1 } }\n</tool_call>', [call(arguments='{ "x":1 }')]),
        ('<tool_call>{"arguments": {"x": 1}, "name": "f"}</tool_call>', [call()]),
        ('<tool_call>{"name": "now"}</tool_call>', [call("now", "{}")]),
        (
            '<tool_call>{"name": "f", "arguments": {"x": "</tool_call> \\" <tool_call>"}}</tool_call>',
            [call(arguments='{"x": "</tool_call> \\" <tool_call>"}')],
        ),
        ("a <tool_cal b", [content("a <tool_cal b")]),
        ("a < b <", [content("a < b <")]),
    ],
)
def test_reads(text: str, expected: list[ContentDelta | ToolCall]) -> None:
    assert parse(text) == expected
    assert parse(*text) == expected


@pytest.mark.parametrize(
    "body",
    [
        "",
        "garbage",
        "[]",
        "{}",
        '{"name": "f", "arguments": {"x": 1}',
        '{"name": "f", "arguments": {"x": 1},}',
        '{"name": "f", "arguments": {"x": 1}} extra',
        '{"name": "f", "arguments": "{}"}',
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "arguments": {"x": NaN}}',
        '{"name": "f", "arguments": {"x": True}}',
        '{"name": "f", "arguments": {}, "more": 1}',
        '{"name": "f", "name": "g", "arguments": {}}',
        '{"name": "", "arguments": {}}',
        '{"name": "\\ud800", "arguments": {}}',
        '{"name": 1, "arguments": {}}',
        '{"arguments": {}}',
        '{"name": "f", "arguments": {"x": ' + "[" * 5000 + "}}",
        '{"name": "f", "arguments": {"x": ' + "9" * 5000 + "}}",
        '{"name": "f", "arguments": {"x": "open string}}',
        "{1: 2}",
        '{"name"',
    ],
)
def test_a_malformed_call_is_content_and_hides_nothing_behind_it(body: str) -> None:
    bad = f"<tool_call>{body}</tool_call>"
    assert parse(bad) == [content(bad)]
    assert parse(f"hm \n{bad}") == [content(f"hm \n{bad}")]
    assert parse(bad, GOOD) == [content(bad), call()]
    assert parse(*bad, *GOOD) == [content(bad), call()]


@pytest.mark.parametrize("text", ["<tool_call>", "x <tool_call>{", GOOD[:-1], '<tool_call>{"name": "f", "argu'])
def test_an_unterminated_call_is_content(text: str) -> None:
    assert parse(text) == [content(text)]
    assert parse(GOOD, text) == [call(), content(text)]


def test_content_streams_and_calls_come_whole() -> None:
    parser = ToolCallParser(FORMAT)
    assert parser.push("Sure") == [content("Sure")]
    assert parser.push(", <to") == [content(",")]
    assert parser.push("ken>") == [content(" <token>")]
    assert parser.push(GOOD[:-1]) == []
    assert parser.push(GOOD[-1:]) == [call()]
    assert parser.flush() == []


@settings(deadline=None)  # a busy machine is no bug
@given(
    st.lists(
        st.sampled_from(
            [GOOD, "<tool_call>", "</tool_call>", '{"name": "f"', "}", '"', "\\", " ", "\n", "é", "<", "tool"]
        ),
        max_size=12,
    ),
    st.data(),
)
def test_the_result_does_not_depend_on_the_cuts(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert parse(*pieces) == parse(text)


@settings(deadline=None)  # a busy machine is no bug
@given(st.text(alphabet='<tool_cal>/{}" \n\\', max_size=60))
def test_text_without_calls_comes_out_unchanged(text: str) -> None:
    assert parse(*text) == ([content(text)] if text else [])


def test_rendered_calls_read_back() -> None:
    arguments = json.dumps({"city": "Zürich", "note": "</tool_call>"}, ensure_ascii=False)
    assert parse(FORMAT.head("get_weather") + arguments + FORMAT.tail) == [call("get_weather", arguments)]


def test_another_format() -> None:
    parser = ToolCallParser(ToolCallFormat(open="<|call|>", close="<|/call|>"))
    assert parser.push('<|call|>{"name": "f", "arguments": {"x": [[1]]}}<|/call|>') == [call(arguments='{"x": [[1]]}')]


@pytest.mark.parametrize("tag", ["", "<", " <a>", 'a"b'])
def test_impossible_tags_are_refused(tag: str) -> None:
    with pytest.raises(ConfigError, match="tag"):
        ToolCallFormat(open=tag)


@pytest.mark.parametrize(
    ("text", "mark", "length"), [("ab", "abc", 2), ("abc", "abc", 0), ("aa", "aab", 2), ("", "a", 0)]
)
def test_overlap(text: str, mark: str, length: int) -> None:
    assert overlap(text, mark) == length
