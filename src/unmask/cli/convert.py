"""`unmask convert`: an autoregressive checkpoint becomes a block diffusion model."""

import argparse
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from unmask.core.errors import ConfigError

if TYPE_CHECKING:
    from unmask.train.convert import ConvertSettings, StepReport

DESCRIPTION = """\
Trains a Llama-shaped checkpoint to denoise blocks of masks while it keeps its autoregressive skill (one loss for each).
Writes OUT/model, ready for `unmask serve OUT/model`, OUT/adapter (LoRA in PEFT layout), OUT/log.jsonl, and a state from
which the same command resumes after Ctrl-C or a crash."""

EPILOG = """\
examples:
  unmask convert ./SmolLM2-135M-Instruct --out runs/a2d --steps 600
  unmask convert ./Qwen3-0.6B --out runs/qwen --data chats.jsonl --block-sizes 16 --lr 5e-4
  unmask convert ./base --out runs/ar --diffusion-weight 0        an AR-only adapter, for comparison

DATA is "toolcalls" (unmask's own generator) or a JSON-lines file, one conversation a line:
  {"messages": [{"role": "user", "content": "..."}, ..., {"role": "assistant", "content": "..."}], "tools": [...]}
Only the last assistant message is learned. "toolcalls" uses the default model's chat template if the base's shows no
tools. A step of 4 conversations takes about 5 s for a 135M model on one CPU core."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's options; what is not given keeps the default of `ConvertSettings`."""
    parser.add_argument("base", type=Path, help="checkpoint folder (config.json, *.safetensors, tokenizer.json)")
    parser.add_argument("--out", type=Path, required=True, help="run folder; give it again to resume")
    parser.add_argument("--data", help='"toolcalls" (default) or a JSON-lines file')
    parser.add_argument("--general", type=Path, help='JSON-lines of {"prompt", "answer"} mixed into "toolcalls"')
    parser.add_argument("--general-share", type=float, help="share of steps made of those (default 0.1)")
    parser.add_argument("--template", type=Path, help="chat template file (default BASE/chat_template.jinja)")
    parser.add_argument("--steps", type=int, help="optimiser steps (default 1000)")
    parser.add_argument("--conversations", type=int, help="conversations per step (default 4)")
    parser.add_argument(
        "--workers", type=int, help="processes that share each step, each with --conversations (default 1)"
    )
    parser.add_argument("--lr", type=float, help="peak learning rate (default 1e-3)")
    parser.add_argument("--full", action="store_true", default=None, help="train all projections, not adapters")
    parser.add_argument("--rank", type=int, help="LoRA rank (default 16)")
    parser.add_argument("--alpha", type=float, help="LoRA alpha (default 2 x rank)")
    parser.add_argument("--adapter", type=Path, help="PEFT folder to continue from (same rank and mask token)")
    parser.add_argument("--fp32", action="store_true", help="frozen products in fp32 instead of int8")
    parser.add_argument("--mask-token-id", type=int, help="default: an unused special token")
    parser.add_argument("--attention", choices=["causal_context", "block_causal"], help="default causal_context")
    parser.add_argument("--block-sizes", type=int, nargs="+", help="drawn per conversation (default 8 12 16)")
    parser.add_argument("--logit-shift", type=int, choices=[0, 1], help="1: a row predicts the next position")
    parser.add_argument("--full-share", type=float, help="share of answers masked whole (default 0.6)")
    parser.add_argument("--ar-weight", type=float, help="weight of the AR loss (default 1)")
    parser.add_argument("--diffusion-weight", type=float, help="weight of the diffusion loss (default 1)")
    parser.add_argument("--confidence-weight", type=float, help="weight of the confidence loss (default 0)")
    parser.add_argument("--seed", type=int, help="of adapters, data and noise (default 0)")
    parser.add_argument("--save-every", type=int, help="steps between saved states (default 50)")
    parser.add_argument("--threads", type=int, help="CPU threads (default: torch's choice)")


def settings_from(args: argparse.Namespace) -> "ConvertSettings":
    """Builds the settings from what was given.

    Raises:
        ConfigError: a value is impossible.
    """
    from unmask.models.config import AttentionPattern
    from unmask.train.convert import ConvertSettings
    from unmask.train.lora import LoraSettings

    given = {f.name: getattr(args, f.name) for f in fields(ConvertSettings) if getattr(args, f.name, None) is not None}
    if "block_sizes" in given:
        given["block_sizes"] = tuple(given["block_sizes"])
    if "attention" in given:
        given["attention"] = AttentionPattern(given["attention"])
    if args.full and (args.rank is not None or args.alpha is not None or args.fp32):
        raise ConfigError("--rank, --alpha and --fp32 are about adapters; leave them out with --full")
    rank = args.rank if args.rank is not None else 16
    if rank < 1:
        raise ConfigError(f"--rank must be at least 1, got {rank}")
    alpha = args.alpha if args.alpha is not None else 2.0 * rank
    return ConvertSettings(**given, lora=LoraSettings(rank=rank, alpha=alpha, int8=not args.fp32))


def run(args: argparse.Namespace) -> int:
    """Converts, with a progress bar that shows loss, throughput and time to end."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    settings = settings_from(args)
    from unmask.train.convert import convert

    columns = (
        TextColumn("converting"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[news]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("steps", total=settings.steps, news="loading")

        def report(step: "StepReport") -> None:
            losses = ", ".join(f"{k[:-5]} {v:.3f}" for k, v in step.metrics.items() if k.endswith("_loss"))
            news = f"{losses}, {step.rows / step.seconds:.0f} rows/s"
            progress.update(task, completed=step.step, news=news)

        folder = convert(settings, report)
    console.print(f"wrote {folder}")
    return 0
