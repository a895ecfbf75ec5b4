"""Quality of the default model on held-out requests, in every mode.

    python benchmarks/default_model/evaluate.py                       # smol-agent as shipped
    python benchmarks/default_model/evaluate.py --adapter runs/ar/adapter --modes ar --name ar-only

A call is right when its name and arguments equal the expected ones as JSON values; "no tool" is right when no call is
made. Greedy. Intervals are Wilson's at 95 %.
"""

import argparse
import hashlib
import json
import math
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.progress import track

from unmask.core.errors import UnmaskError
from unmask.core.request import Chunk, Mode, Request, SamplingParams
from unmask.engine.loop import EngineLoop
from unmask.engine.settings import EngineSettings
from unmask.models.linear import Int8Linear, TiledLinear
from unmask.models.loading import load
from unmask.models.smol_agent import ADAPTER, TEMPLATE
from unmask.text.chat import ChatTemplate
from unmask.text.tokenizer import Tokenizer
from unmask.text.toolcalls import ToolCall, ToolCallFormat, ToolCallParser
from unmask.train.tooldata import Conversation, generate

SEED = 2026
SETS = (
    ("values", "values", "call"),
    ("phrasings", "phrasings", "call"),
    ("tools", "tools", "call"),
    ("no tool", "phrasings", "no_tool"),
)
MAX_TOKENS = 96


@dataclass
class Answer:
    """What one mode made of one request."""

    ids: list[int] = field(default_factory=list)
    num_forwards: int = 0


def wilson(right: int, total: int) -> tuple[float, float]:
    """95 % interval of a share."""
    z, p = 1.96, right / total
    middle = (p + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(p * (1 - p) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return middle - half, middle + half


def calls_of(text: str) -> list[tuple[str, Any]]:
    """Parsed calls of an answer."""
    parser = ToolCallParser(ToolCallFormat())
    events = [*parser.push(text), *parser.flush()]
    return [(event.name, json.loads(event.arguments)) for event in events if isinstance(event, ToolCall)]


def is_right(conversation: Conversation, text: str) -> bool:
    """The scoring rule of the module's head."""
    calls = calls_of(text)
    if conversation.kind == "no_tool":
        return not calls
    function = conversation.messages[-1]["tool_calls"][0]["function"]
    return calls == [(function["name"], json.loads(function["arguments"]))]


def run(loop: EngineLoop, prompts: Sequence[tuple[int, ...]], mode: Mode, label: str) -> list[Answer]:
    """Answers all prompts, sixteen at a time."""
    answers = [Answer() for _ in prompts]
    done = threading.Semaphore(0)

    failures: list[UnmaskError] = []

    def listen(answer: Answer, item: Chunk | UnmaskError) -> None:
        if isinstance(item, UnmaskError):
            failures.append(item)
            done.release()
            return
        answer.ids += item.token_ids
        answer.num_forwards = item.num_forwards
        if item.finish_reason is not None:
            done.release()

    submitted = 0
    for finished in track(range(len(prompts)), description=label):
        while submitted < min(len(prompts), finished + 32):
            request = Request(
                id=f"{label}-{submitted}",
                prompt_ids=prompts[submitted],
                params=SamplingParams(max_tokens=MAX_TOKENS, mode=mode),
            )
            loop.submit(request, lambda chunk, answer=answers[submitted]: listen(answer, chunk))
            submitted += 1
        done.acquire()
        if failures:
            raise SystemExit(f"generation failed: {failures[0]}")
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", type=Path, default=Path.home() / ".cache/unmask/smollm2-135m-instruct")
    parser.add_argument("--adapter", type=Path, default=ADAPTER)
    parser.add_argument("--name", default="smol-agent")
    parser.add_argument("--modes", nargs="+", default=["ar", "verified", "diffusion"], choices=[m.value for m in Mode])
    parser.add_argument("--count", type=int, default=300, help="requests per set")
    parser.add_argument(
        "--sets", nargs="+", default=[name for name, _, _ in SETS], choices=[name for name, _, _ in SETS]
    )
    parser.add_argument("--precision", choices=["int8", "fp32"], default="int8")
    parser.add_argument("--threshold", type=float, default=0.9)
    parser.add_argument("--block-size", type=int, default=None)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/default_model/results"))
    parser.add_argument("--merge", action="store_true", help="add to an earlier result of the same name")
    options = parser.parse_args()

    linear = Int8Linear if options.precision == "int8" else TiledLinear
    loaded = load(options.base, linear=linear, adapter=options.adapter)
    tokenizer = Tokenizer.load(options.base, loaded.traits.eos_ids)
    template = ChatTemplate.load(TEMPLATE)
    loop = EngineLoop(loaded, EngineSettings(threshold=options.threshold, block_size=options.block_size))
    report: dict[str, Any] = {
        "name": options.name,
        "count": options.count,
        "seed": SEED,
        "precision": options.precision,
        "threshold": options.threshold,
        "block_size": loop.settings.block_size,
        "sets": {},
    }
    for name, split, kind in (row for row in SETS if row[0] in options.sets):
        conversations = generate(split, SEED, options.count, kinds={kind: 1.0})
        prompts = [tuple(tokenizer.encode(template.render(c.messages[:-1], c.tools))) for c in conversations]
        rows: dict[str, Any] = {}
        answers: dict[str, list[Answer]] = {}
        for mode in options.modes:
            began = time.perf_counter()
            answers[mode] = run(loop, prompts, Mode(mode), f"{name} {mode}")
            texts = [tokenizer.decode(answer.ids) for answer in answers[mode]]
            right = [is_right(c, text) for c, text in zip(conversations, texts, strict=True)]
            tokens = sum(len(answer.ids) for answer in answers[mode])
            forwards = sum(answer.num_forwards for answer in answers[mode])
            low, high = wilson(sum(right), len(right))
            rows[mode] = {
                "right": sum(right),
                "share": sum(right) / len(right),
                "low": low,
                "high": high,
                "tokens_per_forward": tokens / forwards,
                "forwards_per_request": forwards / len(right),
                "seconds": time.perf_counter() - began,
                "ids": [hashlib.sha256(repr(answer.ids).encode()).hexdigest()[:12] for answer in answers[mode]],
                "wrong": [
                    {"id": c.id, "request": c.messages[-2]["content"], "got": text, "want": c.messages[-1]}
                    for c, text, ok in zip(conversations, texts, right, strict=True)
                    if not ok
                ][:20],
            }
            share = f"{sum(right)}/{len(right)} [{low:.3f}, {high:.3f}]"
            print(f"{name:10} {mode:10} {share}  {tokens / forwards:.2f} tokens per forward")
        report["sets"][name] = rows
    loop.close()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / f"{options.name}.json"
    if options.merge and file.exists():  # modes measured by separate runs meet in one file
        earlier = json.loads(file.read_text(encoding="utf-8"))
        for name, rows in earlier["sets"].items():
            report["sets"][name] = rows | report["sets"].get(name, {})
    file.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {file}")


if __name__ == "__main__":
    main()
