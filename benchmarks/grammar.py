"""What constrained decoding costs on a CPU: compiling a tool list, and refining one step of a window.

    python benchmarks/grammar.py --tokenizer MODEL_FOLDER      # 1, 5, 20 and 40 tools, windows of 8, 16 and 32

Tools are those of `unmask.train.tooldata`, in the default model's frame: the answer is exactly one call. Logits are
random, so strings are long and nothing is certain: the hardest case. `first` is a step on an empty window (all tools
are still possible), `later` is a mean over the steps until the answer is complete, a quarter of the window each.
Read the medians; p95 shows what else runs on the machine.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from unmask.grammar.automaton import Automaton
from unmask.grammar.build import concat, literal, union
from unmask.grammar.constraint import Constraint
from unmask.grammar.schema import compile_schema
from unmask.grammar.tokens import Vocabulary, token_bytes
from unmask.train.tooldata import TRAIN_TOOLS
from unmask.train.tooldata.offers import canonical

OPEN_TAG, CLOSE_TAG = "<tool_call>\n", "\n</tool_call>"


@dataclass
class Timings:
    """Seconds of one kind of work."""

    seconds: list[float] = field(default_factory=list)

    def measure(self, work: Callable[[], Any]) -> Any:
        started = time.perf_counter()
        result = work()
        self.seconds.append(time.perf_counter() - started)
        return result

    def milliseconds(self) -> dict[str, float]:
        p50, p95 = np.percentile(self.seconds, [50, 95]) * 1e3
        return {"p50_ms": round(float(p50), 2), "p95_ms": round(float(p95), 2)}


def call_automaton(tools: list[dict[str, Any]]) -> Automaton:
    """One call of any of the tools, tags included."""
    calls: list[Automaton] = []
    for tool in tools:
        function = tool["function"]
        head = f'{OPEN_TAG}{{"name": {json.dumps(function["name"])}, "arguments": '
        calls.append(
            concat(literal(head.encode()), compile_schema(function["parameters"]), literal(f"}}{CLOSE_TAG}".encode()))
        )
    return union(*calls)


def compile_tools(
    tools: list[dict[str, Any]], vocabulary: Vocabulary, eos_id: int, timings: dict[str, Timings]
) -> Constraint:
    """Schema to automaton and automaton to tokens, timed apart."""
    automaton = timings["schema"].measure(lambda: call_automaton(tools))
    return timings["tokens"].measure(lambda: Constraint.compile(automaton, vocabulary, eos_ids=[eos_id]))


def decode(
    constraint: Constraint, window: int, max_tokens: int, rng: np.random.Generator, timings: dict[str, Timings]
) -> None:
    """One answer with random logits; every text it can become is valid, which is checked."""
    ids_L, open_L = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)
    num_rows = len(constraint.vocabulary.tokens_V)
    while len(ids_L) < max_tokens and not constraint.has_ended(constraint.walk(ids_L.tolist())):
        start = len(ids_L)
        ids_L = np.append(ids_L, np.zeros(window, dtype=np.int64))
        open_L = np.append(open_L, np.ones(window, dtype=np.bool_))
        while open_L.any():
            rows = start + np.flatnonzero(open_L[start:])
            logits_RV = rng.normal(size=(len(rows), num_rows)).astype(np.float32) * 3
            kind = "first" if start == 0 and len(rows) == window else "later"
            step = partial(
                constraint.refine,
                ids_L=ids_L,
                open_L=open_L,
                answer_start=0,
                window_end=len(ids_L),
                limit=max_tokens,
                logits_RV=logits_RV,
                predicts_R=rows,
            )
            refined = timings[kind].measure(step)
            chosen = np.argsort(-refined.confidence_R, kind="stable")[: max(window // 4, 1)]
            ids_L[rows[chosen]] = refined.path_ids_R[chosen]
            open_L[rows[chosen]] = False
    if not constraint.is_complete(constraint.walk(ids_L[:max_tokens].tolist())):
        raise SystemExit("an answer is not valid: this must not happen")


def measure(count: int, options: argparse.Namespace, vocabulary: Vocabulary, eos_id: int) -> dict[str, Any]:
    """All numbers for one number of tools; every repetition draws other tools."""
    offered = [canonical(spec).tool for spec in TRAIN_TOOLS]
    compiling = {"schema": Timings(), "tokens": Timings()}
    steps = {window: {"first": Timings(), "later": Timings()} for window in options.windows}
    sizes: dict[str, int] = {}
    for repetition in track(range(options.repetitions), f"{count} tools", transient=True):
        tools = Random(repetition).sample(offered, count)
        constraint = compile_tools(tools, vocabulary, eos_id, compiling)
        pairs = constraint.network.pairs.source_P
        sizes = {
            "states": constraint.classes.num_states,
            "classes": constraint.classes.num_classes,
            "edges": len(constraint.classes.class_E),
            "pairs": len(pairs),
            "minimum_tokens": constraint.minimum_tokens,
        }
        for window, timings in steps.items():
            max_tokens = max(options.max_tokens, constraint.minimum_tokens)
            decode(constraint, window, max_tokens, np.random.default_rng(repetition), timings)
    return {
        "tools": count,
        **sizes,
        "compile": {name: timings.milliseconds() for name, timings in compiling.items()},
        "step": {
            str(window): {name: timings.milliseconds() for name, timings in kinds.items()}
            for window, kinds in steps.items()
        },
    }


def show(results: list[dict[str, Any]], windows: list[int]) -> Table:
    """One line per number of tools."""
    table = Table(title="constrained decoding, CPU, milliseconds (p50 / p95)")
    columns = ["tools", "states", "classes", "edges", "pairs", "schema", "tokens"]
    for column in columns + [f"{kind} step, window {window}" for window in windows for kind in ("first", "later")]:
        table.add_column(column, justify="right")

    def cell(timing: dict[str, float]) -> str:
        return f"{timing['p50_ms']:.1f} / {timing['p95_ms']:.1f}"

    for row in results:
        cells = [str(row[name]) for name in columns[:5]]
        cells += [cell(row["compile"][name]) for name in ("schema", "tokens")]
        cells += [cell(row["step"][str(window)][kind]) for window in windows for kind in ("first", "later")]
        table.add_row(*cells)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder with tokenizer.json and config.json")
    parser.add_argument("--tools", type=int, nargs="+", default=[1, 5, 20, 40])
    parser.add_argument("--windows", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/grammar.json"))
    options = parser.parse_args()
    if max(options.tools) > len(TRAIN_TOOLS):
        raise SystemExit(f"there are {len(TRAIN_TOOLS)} tools; ask for no more")

    description = json.loads((options.tokenizer / "tokenizer.json").read_text(encoding="utf-8"))
    config = json.loads((options.tokenizer / "config.json").read_text(encoding="utf-8"))
    vocabulary = Vocabulary(token_bytes(description, num_rows=config["vocab_size"]))
    eos = config["eos_token_id"]
    eos_id = eos[0] if isinstance(eos, list) else eos
    results = [measure(count, options, vocabulary, eos_id) for count in options.tools]
    Console(width=200).print(show(results, options.windows))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    names = ("repetitions", "max_tokens")
    report = {"rows": len(vocabulary.tokens_V), **{name: getattr(options, name) for name in names}, "results": results}
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
