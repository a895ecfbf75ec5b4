"""Trains the adapter of the default model: every setting in one place. Resumes when interrupted.

python benchmarks/default_model/train.py --out runs/dual             # the shipped adapter, all stages
python benchmarks/default_model/train.py --out runs/ar --ar-only     # the rival: same data and steps, AR loss alone

Each stage continues from the adapter of the one before it, with other conversations and a lower rate. The stages are
what was run, in this order, not what one would plan: the first rate proved too high (docs/default-model.md).
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from rich.progress import Progress

from unmask.models.smol_agent import TEMPLATE, prepare
from unmask.train.convert import ConvertSettings, StepReport, convert
from unmask.train.lora import LoraSettings


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One run: its peak rate, the share of steps after which it falls, its steps and workers (4 conversations each)."""

    lr: float
    decay_from: float
    steps: int
    workers: int


STAGES = (
    Stage(lr=1.5e-3, decay_from=0.5, steps=800, workers=1),
    Stage(lr=8e-4, decay_from=1.0, steps=140, workers=2),
    Stage(lr=4e-4, decay_from=0.0, steps=580, workers=2),
    Stage(lr=4e-4, decay_from=0.35, steps=1600, workers=2),
)


def settings_of(options: argparse.Namespace, index: int, base: Path, adapter: Path | None) -> ConvertSettings:
    """Settings of one stage."""
    stage = STAGES[index]
    return ConvertSettings(
        base=base,
        out=options.out / f"stage{index + 1}",
        template=TEMPLATE,
        general=Path(__file__).parent / "general.jsonl",
        general_share=0.08,
        steps=stage.steps,
        conversations=4,
        workers=stage.workers,
        lr=stage.lr,
        decay_from=stage.decay_from,
        block_sizes=(8,),
        logit_shift=1,
        full_share=0.7,
        lora=LoraSettings(rank=16, alpha=32.0, int8=True),
        adapter=adapter,
        diffusion_weight=0.0 if options.ar_only else 1.0,
        seed=index,
        save_every=20,
        threads=options.threads,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ar-only", action="store_true")
    parser.add_argument("--stages", type=int, default=len(STAGES), choices=range(1, len(STAGES) + 1))
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/unmask")
    options = parser.parse_args()
    base = prepare(options.cache, print)
    adapter: Path | None = None
    for index in range(options.stages):
        settings = settings_of(options, index, base, adapter)
        print(run(settings, f"stage {index + 1}"))
        adapter = settings.out / "adapter"
    join_logs(options.out, options.stages)


def run(settings: ConvertSettings, name: str) -> Path:
    """One stage behind a progress bar."""
    with Progress() as progress:
        task = progress.add_task(name, total=settings.steps)

        def report(step: StepReport) -> None:
            losses = ", ".join(f"{key} {value:.3f}" for key, value in step.metrics.items() if "loss" in key)
            progress.update(task, completed=step.step, description=f"{name}: {losses}")

        return convert(settings, report)


def join_logs(out: Path, stages: int) -> None:
    """Writes the stages' logs in a row, with the number of conversations seen so far."""
    seen = 0
    with (out / "log.jsonl").open("w", encoding="utf-8") as joined:
        for index in range(stages):
            for line in (out / f"stage{index + 1}" / "log.jsonl").read_text(encoding="utf-8").splitlines():
                seen += 4 * STAGES[index].workers
                joined.write(json.dumps({"stage": index + 1, "conversations": seen, **json.loads(line)}) + "\n")


if __name__ == "__main__":
    main()
