"""Lossless speculation in AR mode on tool calls: equal ids, acceptance, tokens per forward, speed.

    python benchmarks/speculative.py                          # plain AR against look-up drafts, 50 requests
    python benchmarks/speculative.py --draft-model DIR        # also against a draft model
    python benchmarks/speculative.py --kind after_result      # answers that repeat what a tool returned

Contenders alternate request by request, so a drifting machine hits them alike; read the ratios, not the milliseconds.
A difference in one id ends the run. Acceptance is the share of drafts that became text; a prompt is read in one
forward, so each forward of a draft model is one draft.
"""

import argparse
import json
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from unmask.core.errors import UnmaskError
from unmask.core.request import Chunk, FinishReason, Mode, Request, SamplingParams
from unmask.engine.loop import EngineLoop
from unmask.engine.opening import open_model
from unmask.engine.settings import EngineSettings
from unmask.train.tooldata import generate


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One way to decode."""

    loop: EngineLoop
    params: SamplingParams


@dataclass
class Tally:
    """What one contender did over all requests."""

    seconds: list[float] = field(default_factory=list)
    tokens: int = 0
    forwards: int = 0
    draft_forwards: int = 0
    drafts: int = 0
    accepted: int = 0


def answer(contender: Contender, name: str, prompt: tuple[int, ...]) -> list[Chunk]:
    """One request through the engine, waited for; chunks show the drafts that the next forward verifies."""
    done = threading.Event()
    news: list[Chunk | UnmaskError] = []

    def listen(item: Chunk | UnmaskError) -> None:
        news.append(item)
        if isinstance(item, UnmaskError) or item.finish_reason is not None:
            done.set()

    contender.loop.submit(Request(id=name, prompt_ids=prompt, params=contender.params, drafts=True), listen)
    done.wait()
    if isinstance(news[-1], UnmaskError):
        raise SystemExit(f"generation failed: {news[-1]}")
    return [item for item in news if isinstance(item, Chunk)]


def add(tally: Tally, chunks: Sequence[Chunk], seconds: float) -> list[int]:
    """Counts one answer; returns its ids. Look-up drafts of the first forward are on no chunk, so they do not count."""
    ids = [token for chunk in chunks for token in chunk.token_ids]
    tally.seconds.append(seconds)
    tally.tokens += len(ids)
    tally.forwards += chunks[-1].num_forwards
    tally.draft_forwards += chunks[-1].num_draft_forwards
    if chunks[-1].num_draft_forwards:
        tally.drafts += chunks[-1].num_draft_forwards
        # Every forward adds one token to what it accepts; at the end that is the end-of-sequence, which is on no chunk.
        stopped = chunks[-1].finish_reason is FinishReason.STOP
        tally.accepted += len(ids) + stopped - chunks[-1].num_forwards
    position = 0
    for chunk in chunks:
        position += len(chunk.token_ids)
        tally.drafts += len(chunk.draft_ids)
        agree = [a == b for a, b in zip(chunk.draft_ids, ids[position:], strict=False)]
        tally.accepted += agree.index(False) if False in agree else len(agree)
    return ids


def race(contenders: dict[str, Contender], prompts: Sequence[tuple[int, ...]]) -> dict[str, Tally]:
    """Runs every contender on every prompt, alternating; all must give the ids of the first."""
    tallies = {name: Tally() for name in contenders}
    for contender in contenders.values():
        answer(contender, "warm up", prompts[0])
    for index, prompt in enumerate(track(prompts, description="requests")):
        wanted: list[int] | None = None
        for name, contender in contenders.items():
            began = time.perf_counter()
            chunks = answer(contender, f"{index}", prompt)
            ids = add(tallies[name], chunks, time.perf_counter() - began)
            wanted = ids if wanted is None else wanted
            if ids != wanted:
                raise SystemExit(f"request {index}: {name} gave {ids}, plain AR {wanted}; speculation must be lossless")
    return tallies


def show(tallies: dict[str, Tally]) -> dict[str, Any]:
    """Prints the table and returns it as data. Speed is the median of the per-request ratios to plain AR."""
    table = Table("contender", "equal ids", "acceptance", "tok/forward", "draft forwards", "tok/s", "x AR speed")
    plain = next(iter(tallies.values()))
    rows: dict[str, Any] = {}
    for name, tally in tallies.items():
        ratios = [base / own for base, own in zip(plain.seconds, tally.seconds, strict=True)]
        rows[name] = {
            "ids_equal_ar": True,
            "drafts": tally.drafts,
            "acceptance": tally.accepted / tally.drafts if tally.drafts else None,
            "tokens": tally.tokens,
            "forwards": tally.forwards,
            "tokens_per_forward": tally.tokens / tally.forwards,
            "draft_forwards": tally.draft_forwards,
            "tokens_per_s": tally.tokens / sum(tally.seconds),
            "speed_ratio_to_ar": statistics.median(ratios),
        }
        row = rows[name]
        acceptance = "-" if row["acceptance"] is None else f"{row['acceptance']:.0%}"
        table.add_row(
            name, "yes", acceptance, f"{row['tokens_per_forward']:.2f}", str(tally.draft_forwards),
            f"{row['tokens_per_s']:.1f}", f"{row['speed_ratio_to_ar']:.2f}",
        )  # fmt: skip
    Console().print(table)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smol-agent")
    parser.add_argument("--precision", choices=["auto", "int8", "fp32"], default="auto")
    parser.add_argument("--draft-model", metavar="DIR", help="a smaller checkpoint with the same vocabulary")
    parser.add_argument("--num-drafts", type=int, default=4, help="of the draft model, for each forward")
    parser.add_argument("--lookup", type=int, nargs="+", default=[4, 8], help="look-up drafts for each forward")
    parser.add_argument("--kind", choices=["call", "after_result"], default="call")
    parser.add_argument("--count", type=int, default=50, help="requests (held-out values)")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/unmask")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/speculative.json"))
    options = parser.parse_args()

    model = open_model(
        options.model,
        cache_dir=options.cache,
        precision=options.precision,
        draft_model=options.draft_model,
        progress=print,
    )
    template = model.chat_template()
    conversations = generate("values", 7, options.count, kinds={options.kind: 1.0})
    prompts = [tuple(model.tokenizer.encode(template.render(c.messages[:-1], c.tools))) for c in conversations]
    settings = EngineSettings(
        threads=options.threads, num_drafts=options.num_drafts, max_prefill_rows=65536, max_prefix_tokens=0
    )
    plain = SamplingParams(max_tokens=options.max_tokens, temperature=options.temperature, mode=Mode.AR)
    loops = [EngineLoop(model.loaded, settings)]
    contenders = {"ar": Contender(loop=loops[0], params=plain)}
    for num_drafts in options.lookup:
        params = replace(plain, lookup=num_drafts)
        contenders[f"lookup {num_drafts}"] = Contender(loop=loops[0], params=params)
    if model.draft is not None:
        loops.append(EngineLoop(model.loaded, settings, model.draft))
        contenders[f"draft model {options.num_drafts}"] = Contender(loop=loops[1], params=plain)
    names = ("model", "precision", "draft_model", "kind", "count", "max_tokens", "temperature", "threads")
    result: dict[str, Any] = {name: getattr(options, name) for name in names}
    result["contenders"] = show(race(contenders, prompts))
    for loop in loops:
        loop.close()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
