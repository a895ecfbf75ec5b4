"""`unmask demo`: one tool-calling agent, the same requests in every decoding mode, side by side."""

import argparse
import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from unmask.cli.demo_tools import Desk
from unmask.cli.options import MODEL_HELP, add_model, number
from unmask.core.errors import EngineError
from unmask.core.request import Mode

if TYPE_CHECKING:
    from openai import OpenAI
    from rich.table import Table

DESCRIPTION = """\
Start a server, let a small agent work through held-out requests (request, tool call, tool result, final sentence) in
each decoding mode, interleaved on the same requests, and print the result side by side."""
EPILOG = """\
examples:
  unmask demo
  unmask demo -n 50 --threads 2
"""

_MODES = (Mode.VERIFIED, Mode.DIFFUSION, Mode.AR)
_MAX_ROUNDS = 3
_MAX_TOKENS = 128
_STOP_S = 20.0
_CAPTION = "exact: whole call as expected; median, p95: wall time of a call; speed: median of ar / median"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    parser.add_argument("model", nargs="?", default="smol-agent", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("-n", "--requests", type=number(1, 1000), default=20, metavar="N", help="default: 20")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="which requests are drawn (default: 1)")
    parser.add_argument("--show", type=int, default=3, metavar="N", help="runs printed in full (default: 3)")
    add_model(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the race; returns the exit status."""
    tasks = draw_tasks(args.requests, args.seed)
    with _stopped_in_order(), _server(args) as (process, url):
        try:
            runs = _race(url, tasks, args.show)
        except EngineError as error:
            status = process.poll()
            raise EngineError(
                f"the server died (status {status}); {error}" if status is not None else str(error)
            ) from error
        if process.poll() is not None:
            raise EngineError(f"the server died (status {process.poll()})")

    from rich.console import Console

    Console().print(_table(runs))
    return 0


@contextlib.contextmanager
def _stopped_in_order() -> Iterator[None]:
    """SIGTERM leaves by an exception, so that the server is stopped too."""
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(_number: int, _frame: object) -> NoReturn:
    sys.exit(143)


@dataclass(frozen=True, kw_only=True)
class Task:
    """One held-out request with the call it should lead to."""

    text: str
    tools: Sequence[Mapping[str, Any]]
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Run:
    """How the agent did on one task in one mode.

    Attributes:
        exact: whether the first answer was the expected call, argument for argument.
        wall_s: seconds of that call.
        num_forwards: its forwards.
        num_tokens: its tokens.
        trace: what was said and done, for printing.
    """

    exact: bool
    wall_s: float
    num_forwards: int
    num_tokens: int
    trace: str


def draw_tasks(count: int, seed: int) -> list[Task]:
    """Requests with unseen values whose tool the demo implements."""
    from unmask.train.tooldata import generate

    names = set(Desk().tools)
    tasks: list[Task] = []
    for batch in itertools.count():
        for conversation in generate("values", 1000 * seed + batch, 64, {"after_result": 1.0}):
            if conversation.tool in names and _is_single(conversation.messages):
                call = conversation.messages[1]["tool_calls"][0]["function"]
                task = Task(
                    text=conversation.messages[0]["content"],
                    tools=conversation.tools,
                    name=call["name"],
                    arguments=json.loads(call["arguments"]),
                )
                tasks.append(task)
        if len(tasks) >= count:
            break
    return tasks[:count]


def _is_single(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the conversation is request, call, result, report; others ask for two things or have a history."""
    return len(messages) == 4 and "tool_calls" not in messages[-1]


@contextlib.contextmanager
def _server(args: argparse.Namespace) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Runs `unmask serve` on a free port; yields the process and its URL."""
    command = [sys.executable, "-m", "unmask.cli.main", "serve", args.model, "--port", "0"]
    command += ["--max-prefix-tokens", "0"]  # every mode reads the whole prompt
    command += ["--precision", args.precision, *([] if args.threads is None else ["--threads", str(args.threads)])]
    environment = {name: value for name, value in os.environ.items() if name != "UNMASK_API_KEY"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            yield process, _url(process)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _url(process: "subprocess.Popen[str]") -> str:
    """Reads the server's output until it listens."""
    assert process.stdout is not None, "stdout is a pipe"
    for line in process.stdout:
        if line.startswith("listening on "):
            return line.split()[-1]
    raise EngineError("the server did not start; the lines above say why")


def _race(url: str, tasks: Sequence[Task], num_shown: int) -> dict[Mode, list[Run]]:
    """Every task in every mode, one after the other; the first mode changes from task to task."""
    import openai
    from rich.console import Console
    from rich.progress import track

    console = Console()
    runs: dict[Mode, list[Run]] = {mode: [] for mode in _MODES}
    try:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=600) as client:
            model = client.models.list().data[0].id
            for mode in _MODES:
                _work(client, model, tasks[0], mode)  # warm-up, not counted
            for index, task in enumerate(track(tasks, "racing", console=console, transient=True)):
                for turn in range(len(_MODES)):
                    mode = _MODES[(index + turn) % len(_MODES)]
                    runs[mode].append(_work(client, model, task, mode))
                if index < num_shown:
                    console.print(runs[_MODES[0]][-1].trace, markup=False, highlight=False)
    except openai.OpenAIError as error:
        raise EngineError(f"a request failed: {error}") from error
    return runs


def _work(client: "OpenAI", model: str, task: Task, mode: Mode) -> Run:
    """The agent: asks, calls the tool, hands its result back, until the model answers with a sentence."""
    desk = Desk()
    messages: list[Any] = [{"role": "user", "content": task.text}]
    trace, first = [f"user   {task.text}"], None
    for _ in range(_MAX_ROUNDS):
        started = time.perf_counter()
        answer = client.chat.completions.create(
            model=model,
            messages=messages,
            tools=list(task.tools),  # pyright: ignore[reportArgumentType] - plain dicts of the same shape
            temperature=0,
            max_tokens=_MAX_TOKENS,
            extra_body={"diffusion": {"mode": mode.value}},
        )
        wall_s = time.perf_counter() - started
        first = first or (answer, wall_s)
        message = answer.choices[0].message
        if not message.tool_calls:
            trace.append(f"model  {message.content}")
            break
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            assert call.type == "function", "the server knows no other calls"
            result = desk.call(call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
            trace += [f"call   {call.function.name} {call.function.arguments}", f"tool   {result}"]
    assert first is not None, "there is at least one round"
    return _judge(task, *first, trace="\n".join(trace) + "\n")


def _judge(task: Task, answer: Any, wall_s: float, trace: str) -> Run:
    """Compares the first answer with the expected call."""
    calls = answer.choices[0].message.tool_calls or []
    found = [(call.function.name, json.loads(call.function.arguments)) for call in calls]
    usage = answer.usage
    return Run(
        exact=found == [(task.name, task.arguments)],
        wall_s=wall_s,
        num_forwards=usage.model_extra["unmask"]["num_forwards"],
        num_tokens=usage.completion_tokens,
        trace=trace,
    )


def _table(runs: Mapping[Mode, Sequence[Run]]) -> "Table":
    from rich.table import Table

    count = len(runs[Mode.AR])
    table = Table(title=f"{count} held-out requests, one tool call each; modes interleaved", caption=_CAPTION)
    for column in ("mode", "exact", "median", "p95", "forwards", "tokens/fwd", "speed"):
        table.add_column(column, justify="left" if column == "mode" else "right", no_wrap=True)
    slowest = statistics.median(run.wall_s for run in runs[Mode.AR])
    for mode, own in runs.items():
        median = statistics.median(run.wall_s for run in own)
        forwards = sum(run.num_forwards for run in own)
        table.add_row(
            mode.value,
            f"{sum(run.exact for run in own)}/{count}",
            f"{1000 * median:.0f} ms",
            f"{1000 * _p95([run.wall_s for run in own]):.0f} ms",
            f"{forwards / count:.1f}",
            f"{sum(run.num_tokens for run in own) / forwards:.2f}",
            f"{slowest / median:.2f}x",
        )
    return table


def _p95(values: Sequence[float]) -> float:
    """The smallest value that 95 % do not exceed."""
    ordered = sorted(values)
    return ordered[-(-95 * len(ordered) // 100) - 1]
