"""The command line as a whole: what is loaded, what is printed, which status comes back."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NoReturn

import pytest

from unmask import __version__
from unmask.cli.main import VERBS, _guarded, main
from unmask.core.errors import ConfigError, UnmaskError


def raising(error: BaseException) -> Callable[[argparse.Namespace], int]:
    def run(_args: argparse.Namespace) -> NoReturn:
        raise error

    return run


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"    {verb}" in shown for verb in VERBS)
    assert "UNMASK_CACHE" in shown
    assert "UNMASK_API_KEY" in shown


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_help_with_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([verb, "--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    assert f"unmask {verb}" in shown
    assert "examples:" in shown


def test_help_is_fast_and_loads_no_torch() -> None:
    program = "import sys; from unmask.cli.main import main; main(sys.argv[1:]); print('torch' in sys.modules)"
    started = time.perf_counter()
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "False"
    assert time.perf_counter() - started < 2  # 0.06 s where nothing else runs


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert left.value.code == 0
    assert capsys.readouterr().out == f"unmask {__version__}\n"


@pytest.mark.parametrize(
    "argv", [["sevre"], ["serve", "--port", "x"], ["serve", "--port", "70000"], ["chat", "--nope"]]
)
def test_bad_arguments_exit_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(argv)
    assert left.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ConfigError("no such\nmodel"), 2, "unmask: no such model\n"),
        (UnmaskError("odd"), 2, "unmask: odd\n"),
        (
            ZeroDivisionError("by zero"),
            1,
            "unmask: unexpected ZeroDivisionError: by zero; run again with --debug for the traceback\n",
        ),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_outcomes(error: BaseException, status: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _guarded(raising(error), argparse.Namespace(debug=False)) == status
    assert capsys.readouterr().err == line


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert _guarded(raising(ValueError("odd")), argparse.Namespace(debug=True)) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert shown.splitlines()[-1] == "unmask: unexpected ValueError: odd"


def test_debug_is_taken_before_and_after_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--debug", "generate", "-m", "nope", "hi"], ["generate", "-m", "nope", "hi", "--debug"]):
        assert main(argv) == 2
        assert "Traceback" in capsys.readouterr().err


def test_a_closed_pipe_is_no_fault() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    program = (
        "import argparse, sys; from unmask.cli.main import _guarded\n"
        "def run(args):\n    print('x' * 100_000)\n    return 0\n"
        "sys.exit(_guarded(run, argparse.Namespace(debug=False)))"
    )
    finished = subprocess.run([sys.executable, "-c", program], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert finished.returncode == 141
    assert finished.stderr == b""
