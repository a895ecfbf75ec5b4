"""A LLaDA-shaped random model of about 100M parameters: our loop against the official one, written out plainly.

    python benchmarks/families.py                 # prompt 128, answer 256, 8 tokens per step, 2 threads
    python benchmarks/families.py --answer 64     # a quick look

The official loop runs the whole canvas through the model in float32, computes all logits, and takes confidences from a
float64 softmax over the whole vocabulary, at the same number of forwards. Caches are approximate (other text).
Contenders are interleaved; ratios are of medians.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from unmask.cache.approximate import ApproximateCache, Reuse
from unmask.cache.block_causal import BlockCausalCache
from unmask.decoding.fixed_canvas import FixedCanvas
from unmask.decoding.low_confidence import LowConfidence
from unmask.decoding.randomness import RandomStream
from unmask.decoding.rules import is_finished
from unmask.decoding.sampling import Sampling
from unmask.engine.runner import denoise
from unmask.engine.sequence import Decoding
from unmask.engine.settings import cache_shape
from unmask.models.families import llada
from unmask.models.linear import Int8Linear, LinearFactory, PlainLinear, TiledLinear
from unmask.models.loading import Loaded, load

MASK, VOCAB, HIDDEN, LAYERS, HEADS, FEED = 4, 32000, 768, 8, 12, 2048


@dataclass
class Contender:
    """One way to decode, and what was measured."""

    name: str
    run: Callable[[], tuple[list[int], int]]
    seconds: list[float] = field(default_factory=list[float])
    ids: list[int] = field(default_factory=list[int])
    num_forwards: int = 0


def make_checkpoint(folder: Path) -> Path:
    """Random weights under LLaDA's official names."""
    raw = {
        "architectures": ["LLaDAModelLM"], "model_type": "llada", "d_model": HIDDEN, "n_heads": HEADS,
        "n_layers": LAYERS, "mlp_hidden_size": FEED, "mlp_ratio": 4, "vocab_size": VOCAB, "embedding_size": VOCAB,
        "rope_theta": 10000.0, "rms_norm_eps": 1e-5, "weight_tying": False, "max_sequence_length": 1024,
        "layer_norm_type": "rms", "block_type": "llama", "activation_type": "silu", "block_group_size": 1,
        "mask_token_id": MASK, "eos_token_id": 2,
    }  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    rows = {"wte": VOCAB, "q_proj": HIDDEN, "k_proj": HIDDEN, "v_proj": HIDDEN, "attn_out": HIDDEN}
    rows |= {"ff_proj": FEED, "up_proj": FEED}
    tensors: dict[str, Tensor] = {}
    for name in {name for names in llada.key_map(llada.build_config(raw)).values() for name in names}:
        part = name.split(".")[-2]
        if part.endswith("norm") or part == "ln_f":
            tensors[name] = torch.ones(HIDDEN)
        elif part == "ff_out":
            inside = ".blocks." in name
            shape = (HIDDEN, FEED) if inside else (VOCAB, HIDDEN)
            tensors[name] = torch.randn(shape, generator=generator) * 0.04
        else:
            tensors[name] = torch.randn(rows[part], HIDDEN, generator=generator) * 0.04
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(raw))
    save_file(tensors, folder / "model.safetensors")
    return folder


@torch.inference_mode()
def official(loaded: Loaded, prompt: np.ndarray, answer: int, block: int, per_step: int) -> tuple[list[int], int]:
    """The released loop of LLaDA, greedy: whole canvas, all logits, float64 softmax, top-k of the active block."""
    canvas = torch.full((len(prompt) + answer,), MASK)
    canvas[: len(prompt)] = torch.from_numpy(prompt)
    positions = torch.arange(len(canvas))

    def attend(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads = (x.transpose(0, 1)[None] for x in (q, k, v))
        return functional.scaled_dot_product_attention(*heads)[0].transpose(0, 1)

    forwards = 0
    for end in range(len(prompt) + block, len(canvas) + 1, block):
        while (canvas[:end] == MASK).any():
            logits = loaded.model.head(loaded.model(canvas, positions, attend))
            forwards += 1
            logits[:, MASK] = -torch.inf  # so that both loops end after as many forwards
            ids = logits.argmax(-1)
            sure = logits.double().softmax(-1).gather(-1, ids[:, None])[:, 0]
            sure[(canvas != MASK) | (positions >= end)] = -torch.inf
            chosen = sure.topk(per_step).indices
            canvas[chosen] = ids[chosen]
    return canvas[len(prompt) :].tolist(), forwards


def ours(
    loaded: Loaded, prompt: np.ndarray, answer: int, block: int, per_step: int, reuse: Reuse | None
) -> tuple[list[int], int]:
    """Our rule and runner; with `reuse` over an approximate cache."""
    rule = LowConfidence(
        layout=FixedCanvas(mask_token_id=MASK),
        sampling=Sampling(banned_ids=(MASK,)),
        block_length=block,
        steps_per_block=block // per_step,
    )
    shape = cache_shape(loaded.config, loaded.traits)
    decoding = Decoding(
        rule=rule,
        random=RandomStream(seed=0),
        canvas=rule.begin(prompt, answer),
        cache=BlockCausalCache(shape) if reuse is None else ApproximateCache(shape, reuse),
    )
    while not is_finished(decoding.canvas, frozenset()):
        denoise(loaded.model, [(decoding, 10**6)])
    return decoding.canvas.answer_L.tolist(), decoding.num_forwards


def outside_forwards(loaded: Loaded, run: Callable[[], object]) -> float:
    """Share of wall time spent outside the model's forward and head."""
    inside = [0.0]
    model = loaded.model
    forward, head = model.forward, model.head

    def timed(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(*given: object) -> Tensor:
            began = time.perf_counter()
            result = function(*given)
            inside[0] += time.perf_counter() - began
            return result

        return call

    model.forward, model.head = timed(forward), timed(head)  # pyright: ignore[reportAttributeAccessIssue]
    began = time.perf_counter()
    run()
    wall = time.perf_counter() - began
    model.forward, model.head = forward, head  # pyright: ignore[reportAttributeAccessIssue]
    return 1 - inside[0] / wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--answer", type=int, default=256)
    parser.add_argument("--block", type=int, default=32)
    parser.add_argument("--per-step", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    prompt = np.random.default_rng(0).integers(5, VOCAB, options.prompt)
    given = (prompt, options.answer, options.block, options.per_step)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = make_checkpoint(Path(folder) / "llada")

        def opened(linear: LinearFactory) -> Loaded:
            return load(checkpoint, linear=linear)

        plain, tiled, int8 = opened(PlainLinear), opened(TiledLinear), opened(Int8Linear)
    prefix, dual = (Reuse(kind=kind, block_length=options.block) for kind in ("prefix", "dual"))
    contenders = [
        Contender("official loop, fp32", lambda: official(plain, *given)),
        Contender("ours, fp32", lambda: ours(tiled, *given, None)),
        Contender("ours, int8", lambda: ours(int8, *given, None)),
        Contender("ours, int8, prefix cache (approximate)", lambda: ours(int8, *given, prefix)),
        Contender("ours, int8, dual cache (approximate)", lambda: ours(int8, *given, dual)),
    ]
    for _ in track(range(options.rounds), description="rounds"):
        for contender in contenders:
            began = time.perf_counter()
            contender.ids, contender.num_forwards = contender.run()
            contender.seconds.append(time.perf_counter() - began)
    base = statistics.median(contenders[0].seconds)
    table = Table(title=f"prompt {options.prompt}, answer {options.answer}, block {options.block}, "
                  f"{options.per_step} tokens per step, {options.threads} threads")  # fmt: skip
    for column in ("loop", "forwards", "median s", "speed", "ids as official"):
        table.add_column(column, justify="left" if column == "loop" else "right")
    rows = []
    for one in contenders:
        seconds = statistics.median(one.seconds)
        same = sum(a == b for a, b in zip(one.ids, contenders[0].ids, strict=True)) / len(one.ids)
        table.add_row(one.name, str(one.num_forwards), f"{seconds:.2f}", f"{base / seconds:.2f}x", f"{same:.0%}")
        rows.append({"loop": one.name, "forwards": one.num_forwards, "seconds": one.seconds, "same_ids": same})
    share = outside_forwards(int8, lambda: ours(int8, *given, None))
    Console().print(table)
    print(f"outside the forwards (int8, no cache): {share:.1%} of wall time")
    if options.out is not None:
        options.out.write_text(json.dumps({"options": vars(options) | {"out": str(options.out)}, "rows": rows,
                                           "outside_forwards": share}, indent=1) + "\n")  # fmt: skip


if __name__ == "__main__":
    main()
