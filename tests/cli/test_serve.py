"""The server as a process: what it prints, what it refuses, and how it ends."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from unmask.cli.main import main

KEY = "open-sesame"
HELLO = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4}
FAST = ["--precision", "fp32", "--threads", "1", "--port", "0"]


@dataclass
class Served:
    """A running `unmask serve`, and what it has printed up to and with its snippets."""

    process: "subprocess.Popen[str]"
    greeting: str

    @property
    def url(self) -> str:
        found = re.search(r"^listening on (\S+)$", self.greeting, re.MULTILINE)
        assert found is not None
        return found[1]

    def end(self, *signals: signal.Signals, timeout_s: float = 30) -> tuple[int, str]:
        """Sends the signals; returns exit status and standard error."""
        for number in signals:
            self.process.send_signal(number)
            time.sleep(0.2)
        _, errors = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, errors


@contextlib.contextmanager
def serving(checkpoint: str, *argv: str, environment: Mapping[str, str] | None = None) -> Iterator[Served]:
    command = [sys.executable, "-m", "unmask.cli.main", "serve", checkpoint, *FAST, *argv]
    kept = {name: value for name, value in os.environ.items() if name != "UNMASK_API_KEY"}
    environment = {**kept, **(environment or {})}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        try:
            yield Served(process=process, greeting=greeting_of(process))
        finally:
            process.kill()


def greeting_of(process: "subprocess.Popen[str]") -> str:
    """What is printed up to the last line of the last snippet."""
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("print("):
            return "".join(lines)
    raise AssertionError(f"it did not start: {process.communicate()[1]}")


@pytest.fixture(scope="module")
def guarded(checkpoint: str) -> Iterator[Served]:
    """A server with a key, for all tests that leave it running."""
    with serving(checkpoint, environment={"UNMASK_API_KEY": KEY}) as served:
        yield served


def ask(url: str, key: str | None = None, **changes: object) -> httpx2.Response:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    return httpx2.post(f"{url}/v1/chat/completions", json={**HELLO, **changes}, headers=headers, timeout=30)


def test_it_says_what_it_does(guarded: Served) -> None:
    assert "model    tiny (fp32, causal_context attention)" in guarded.greeting
    assert "mode     verified, block size 4" in guarded.greeting
    assert "API key  required" in guarded.greeting
    assert KEY not in guarded.greeting


def test_the_key_is_asked_for(guarded: Served) -> None:
    assert ask(guarded.url).status_code == 401
    assert ask(guarded.url, "wrong").json()["error"]["code"] == "invalid_api_key"
    assert ask(guarded.url, KEY).status_code == 200


def test_the_context_ends_without_a_fault(guarded: Served) -> None:
    answer = ask(guarded.url, KEY, max_tokens=None, messages=[{"role": "user", "content": "x" * 2000}])
    assert answer.status_code == 200
    assert answer.json()["usage"]["total_tokens"] <= 2048


def test_the_python_snippet_runs_as_printed(guarded: Served, tmp_path: Path) -> None:
    file = tmp_path / "snippet.py"
    file.write_text(guarded.greeting[guarded.greeting.index("import os") :])
    environment = {**os.environ, "UNMASK_API_KEY": KEY, "PYTHONIOENCODING": "utf-8"}
    finished = subprocess.run([sys.executable, file], env=environment, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout


def test_a_draft_model_takes_forwards_away_and_nothing_else(guarded: Served, checkpoint: str) -> None:
    plain = ask(guarded.url, KEY, diffusion={"mode": "ar"}, max_tokens=8).json()
    with serving(checkpoint, "--draft-model", checkpoint, "--num-drafts", "3") as served:
        assert "drafts   3 tokens a forward by the draft model, in mode ar" in served.greeting
        drafted = ask(served.url, diffusion={"mode": "ar"}, max_tokens=8).json()
    assert drafted["choices"] == plain["choices"]
    assert plain["usage"]["unmask"]["num_forwards"] == 8
    assert drafted["usage"]["unmask"]["num_forwards"] == 2


@pytest.mark.skipif(shutil.which("curl") is None, reason="no curl here")
def test_the_curl_snippet_runs_as_printed(guarded: Served) -> None:
    command = guarded.greeting[guarded.greeting.index("curl ") : guarded.greeting.index("Or let")]
    environment = {**os.environ, "UNMASK_API_KEY": KEY}
    finished = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True, check=False)
    assert '"chat.completion"' in finished.stdout, finished.stderr


def test_a_taken_port_is_one_line(guarded: Served, checkpoint: str, capsys: pytest.CaptureFixture[str]) -> None:
    port = guarded.url.rsplit(":", 1)[1]
    assert main(["serve", checkpoint, "--port", port]) == 2
    assert capsys.readouterr().err == (
        f"unmask: port {port} on 127.0.0.1 is taken; choose another with --port (0 takes a free one)\n"
    )


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--host", "no.such.host.invalid"], "is not an address of this machine"),
        (["--host", "203.0.113.7"], "cannot listen on 203.0.113.7"),
        (["--request-timeout", "0"], "--request-timeout must be above 0"),
        (["--max-running", "0"], "max_running must be at least 1"),
        (["--mode", "ar", "--threshold", "0.5"], "--threshold only acts in mode diffusion"),
        (["--num-drafts", "3"], "--num-drafts only acts with --draft-model"),
        (["--api-key", ""], "--api-key must not be empty"),
    ],
)
def test_bad_settings_are_one_line(
    checkpoint: str, argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", checkpoint, "--port", "0", *argv]) == 2
    errors = capsys.readouterr().err
    assert says in errors
    assert errors.count("\n") == 1


@contextlib.contextmanager
def streaming(url: str, **changes: object) -> Iterator[Iterator[str]]:
    """The lines of a long answer, from its first on."""
    body = {**HELLO, "stream": True, "max_tokens": 1900, "diffusion": {"mode": "ar"}, **changes}
    headers = {"Authorization": f"Bearer {KEY}"}
    with httpx2.stream("POST", f"{url}/v1/chat/completions", json=body, headers=headers, timeout=30) as stream:
        lines = stream.iter_lines()
        next(lines)
        yield lines


def test_ctrl_c_lets_a_running_answer_finish(guarded: Served) -> None:
    """The last test with this server."""
    with streaming(guarded.url, max_tokens=200) as lines:
        guarded.process.send_signal(signal.SIGINT)
        assert "data: [DONE]" in list(lines)
    status, errors = guarded.end()
    assert status == 0
    assert errors.splitlines()[-1] == (
        "unmask: stopping; running requests (1) get 10 s to finish (Ctrl-C: stop at once)"
    )


def test_sigterm_under_load_ends_what_takes_too_long(checkpoint: str) -> None:
    with serving(checkpoint, "--grace", "0.3", "--host", "0.0.0.0") as served:
        assert served.url.startswith("http://127.0.0.1:")
        with streaming(served.url) as lines:
            served.process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert "data: [DONE]" not in rest
        assert '"code": "aborted"' in rest[-1]
        status, errors = served.end()
        assert status == 0
        assert "warning: everyone who can reach 0.0.0.0 can use this server" in errors
        with pytest.raises(httpx2.ConnectError):
            ask(served.url)


def test_a_second_ctrl_c_ends_it_at_once(checkpoint: str) -> None:
    with serving(checkpoint, "--grace", "60") as served:
        with streaming(served.url):
            status, errors = served.end(signal.SIGINT, signal.SIGINT, timeout_s=5)
        assert status == 130
        assert "Traceback" not in errors
