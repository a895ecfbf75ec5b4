"""Trains the adapter of the default model: every setting in one place. Resumes when interrupted.

python benchmarks/default_model/train.py --out runs/dual             # the shipped adapter
python benchmarks/default_model/train.py --out runs/ar --ar-only     # the rival: same data and steps, AR loss alone
"""

import argparse
from pathlib import Path

from rich.progress import Progress

from unmask.models.smol_agent import TEMPLATE, prepare
from unmask.train.convert import ConvertSettings, StepReport, convert
from unmask.train.lora import LoraSettings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ar-only", action="store_true")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=1.5e-3, help="peak learning rate")
    parser.add_argument("--decay-from", type=float, default=0.5, help="share of the steps after which it falls")
    parser.add_argument("--adapter", type=Path, default=None, help="continue from this adapter in a new run")
    parser.add_argument("--seed", type=int, default=0, help="another seed for a run that continues")
    parser.add_argument("--workers", type=int, default=1, help="processes; each takes 4 conversations a step")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/unmask")
    options = parser.parse_args()
    settings = ConvertSettings(
        base=prepare(options.cache, print),
        out=options.out,
        template=TEMPLATE,
        general=Path(__file__).parent / "general.jsonl",
        general_share=0.08,
        steps=options.steps,
        conversations=4,
        workers=options.workers,
        lr=options.lr,
        decay_from=options.decay_from,
        block_sizes=(8,),
        logit_shift=1,
        full_share=0.7,
        lora=LoraSettings(rank=16, alpha=32.0, int8=True),
        adapter=options.adapter,
        diffusion_weight=0.0 if options.ar_only else 1.0,
        seed=options.seed,
        save_every=20,
        threads=options.threads,
    )
    with Progress() as progress:
        task = progress.add_task("training", total=settings.steps)

        def report(step: StepReport) -> None:
            losses = ", ".join(f"{name} {value:.3f}" for name, value in step.metrics.items() if "loss" in name)
            progress.update(task, completed=step.step, description=losses)

        print(convert(settings, report))


if __name__ == "__main__":
    main()
