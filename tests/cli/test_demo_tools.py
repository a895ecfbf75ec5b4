import json

import pytest

from unmask.cli.demo import draw_tasks
from unmask.cli.demo_tools import Desk


@pytest.mark.parametrize("task", draw_tasks(40, 3), ids=lambda task: task.name)
def test_every_expected_call_runs(task: object) -> None:
    result = json.loads(Desk().call(task.name, json.dumps(task.arguments)))  # pyright: ignore[reportAttributeAccessIssue]
    assert "error" not in result


def test_tools_change_their_world() -> None:
    desk = Desk()
    assert json.loads(desk.call("add_task", '{"task": "call"}'))["open"] == 3
    assert json.loads(desk.call("add_task", '{"task": "write"}'))["open"] == 4
    assert json.loads(desk.call("set_timer", '{"minutes": 75}')) == {"ends": "15:15"}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("fly", "{}"),
        ("set_timer", "{}"),
        ("set_timer", "{"),
        ("convert_currency", '{"amount": 1}'),
        ("set_timer", "[]"),
    ],
)
def test_wrong_calls_become_results(name: str, arguments: str) -> None:
    assert "error" in json.loads(Desk().call(name, arguments))
