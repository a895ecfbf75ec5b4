import io
import sys

import pytest

from tests.fakes import ByteTokenizer
from unmask.cli.chat import _LiveDisplay, draft_text, printable
from unmask.cli.main import main

FAST = ["--precision", "fp32", "--threads", "1", "--max-tokens", "6"]


def chat(
    checkpoint: str, typed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *argv: str
) -> tuple[int, str, list[str]]:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    status = main(["chat", checkpoint, *FAST, *argv])
    shown = capsys.readouterr()
    return status, shown.out, shown.err.splitlines()


def test_a_piped_conversation_ends_with_its_input(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, notes = chat(checkpoint, "hello\n\nagain", monkeypatch, capsys)
    assert status == 0
    assert out
    assert len(notes) == 2
    assert all("forwards" in line and "tokens per forward" in line for line in notes)


def test_reset_forgets_and_quit_leaves(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    once = chat(checkpoint, "hello\n", monkeypatch, capsys)[1]
    status, out, notes = chat(checkpoint, "hello\n/reset\nhello\n/what\n/quit\nhello\n", monkeypatch, capsys)
    assert status == 0
    assert out == once * 2
    assert "unmask: the conversation is forgotten" in notes
    assert any("unknown command '/what'" in line for line in notes)


def test_a_conversation_that_is_too_long_can_go_on(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, notes = chat(checkpoint, f"{'x' * 3000}\nhello\n", monkeypatch, capsys)
    assert status == 0
    assert "/reset starts anew" in notes[0]
    assert out == chat(checkpoint, "hello\n", monkeypatch, capsys)[1]


def test_drafts_show_masks() -> None:
    assert draft_text((104, 105, -1, -1, 33, -1), ByteTokenizer()) == "hi░░!░"  # pyright: ignore[reportArgumentType]
    assert draft_text((), ByteTokenizer()) == ""  # pyright: ignore[reportArgumentType]


def test_answers_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b[2Jb\r\n\tc") == "a\ufffd[2Jb\ufffd\n\tc"


def test_the_live_display_leaves_only_final_text(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", screen)
    display = _LiveDisplay()
    display.start()
    display.show("one\ntw", "░░")
    display.show("o", "")
    display.finish("2 tokens")
    lines = [line.rstrip() for line in screen.getvalue().splitlines() if line.strip()]
    assert lines[0] == "one"
    assert lines[-2:] == ["two", "2 tokens"]
