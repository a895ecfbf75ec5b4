import subprocess

import pytest

from unmask.cli import demo
from unmask.cli.demo import draw_tasks
from unmask.cli.main import main


def test_tasks_are_drawn_from_the_held_out_split() -> None:
    tasks = draw_tasks(30, 1)
    assert tasks == draw_tasks(30, 1) != draw_tasks(30, 2)
    assert len({task.name for task in tasks}) >= 6
    assert all(task.name in {tool["function"]["name"] for tool in task.tools} for task in tasks)


def test_the_race_prints_its_table(checkpoint: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", checkpoint, "-n", "1", "--show", "1", "--precision", "fp32", "--threads", "1"]) == 0
    shown = capfd.readouterr().out
    assert "user   " in shown
    assert all(f" {mode} " in shown for mode in ("verified", "diffusion", "ar"))
    assert "1.00x" in shown


def test_a_server_that_does_not_start_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "/nowhere/at-all", "-n", "1"]) == 2
    errors = capfd.readouterr().err.splitlines()
    assert "no checkpoint folder" in errors[-2]
    assert errors[-1] == "unmask: the server did not start; the lines above say why"


def test_a_server_that_dies_is_reported(
    checkpoint: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wait_for_url = demo._url

    def url_of_the_dead(process: "subprocess.Popen[str]") -> str:
        url = wait_for_url(process)
        process.kill()
        process.wait()
        return url

    monkeypatch.setattr(demo, "_url", url_of_the_dead)
    assert main(["demo", checkpoint, "-n", "1", "--precision", "fp32"]) == 2
    assert capfd.readouterr().err.splitlines()[-1].startswith("unmask: the server died (status -9)")
