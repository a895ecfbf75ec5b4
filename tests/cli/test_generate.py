import io
import json
import sys
from typing import Any

import pytest

from unmask.cli.main import main

FAST = ["--precision", "fp32", "--threads", "1", "--max-tokens", "8"]


def generate(checkpoint: str, *argv: str) -> int:
    return main(["generate", "-m", checkpoint, *FAST, *argv])


def pipe_in(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))


def test_prompts_become_json_lines_in_order(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate(checkpoint, "first", "second", "--json") == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["prompt"] for line in lines] == ["first", "second"]
    for line in lines:
        usage = line["usage"]
        assert line["finish_reason"] in ("stop", "length")
        assert usage["completion_tokens"] <= 8
        assert usage["tokens_per_forward"] == round(usage["completion_tokens"] / usage["num_forwards"], 3)


def test_standard_input_is_one_prompt(
    checkpoint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe_in(monkeypatch, "one\ntwo\n")
    assert generate(checkpoint, "--json") == 0
    assert json.loads(capsys.readouterr().out)["prompt"] == "one\ntwo"


def test_lines_are_prompts(
    checkpoint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe_in(monkeypatch, "one\n\ntwo\n")
    assert generate(checkpoint, "--json", "--lines") == 0
    assert [json.loads(line)["prompt"] for line in capsys.readouterr().out.splitlines()] == ["one", "two"]


def test_raw_leaves_the_template_out(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    counts: list[int] = []
    for argv in (["--raw"], []):
        assert generate(checkpoint, "abc", "--json", *argv) == 0
        counts.append(json.loads(capsys.readouterr().out)["usage"]["prompt_tokens"])
    assert counts[0] == 3 < counts[1]


def test_speculation_changes_nothing_but_the_forwards(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[dict[str, Any]] = []
    for argv in ([], ["--lookup", "4"], ["--draft-model", checkpoint, "--num-drafts", "3"]):
        assert generate(checkpoint, "hi", "--json", "--mode", "ar", *argv) == 0
        lines.append(json.loads(capsys.readouterr().out))
    assert lines[0]["text"] == lines[1]["text"] == lines[2]["text"]
    assert [line["usage"]["num_forwards"] for line in lines][::2] == [8, 2]
    assert lines[2]["usage"]["num_draft_forwards"] == 6


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--lookup", "4"], "lookup only acts in mode 'ar', not 'verified'"),
        (["--draft-model", "x"], "--draft-model only acts in mode ar"),
        (["--mode", "ar", "--num-drafts", "2"], "--num-drafts only acts with --draft-model"),
        (["--mode", "ar", "--draft-model", "./x"], "no checkpoint folder at ./x"),
    ],
)
def test_speculation_without_effect_is_refused(
    checkpoint: str, argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate(checkpoint, "hi", *argv) != 0
    assert says in capsys.readouterr().err


def test_text_is_the_same_for_the_same_seed(checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    texts: list[str] = []
    for seed in ("1", "1", "2"):
        assert generate(checkpoint, "hi", "--temperature", "1", "--seed", seed) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["hi", "--max-tokens", "0"], "max_tokens must be at least 1"),
        (["hi", "--max-tokens", "99999"], "exceed the context of 2048 tokens"),
        (["hi", "--temperature", "-1"], "temperature must be"),
        (["hi", "--top-p", "0"], "top_p must be in"),
        (["hi", "--lines"], "--lines reads standard input"),
        ([], "standard input is empty"),
    ],
)
def test_bad_input_is_one_line(
    checkpoint: str,
    argv: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipe_in(monkeypatch, "")
    assert generate(checkpoint, *argv) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert says in shown.err
    assert shown.err.count("\n") == 1


def test_unknown_models_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "-m", "smol-agnet", "hi"]) == 2
    assert "did you mean 'smol-agent'" in capsys.readouterr().err
