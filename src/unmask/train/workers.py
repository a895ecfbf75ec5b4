"""Data-parallel training on one machine: every worker takes its own conversations, all take the same step.

Gradients meet through torch.distributed (gloo) over a file in the run folder, so no port is opened. A worker that dies
makes the others stop: the exchange raises in them.
"""

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from unmask.core.errors import EngineError

_PATIENCE = timedelta(minutes=10)


class Workers:
    """This process's place among `count` equal ones; alone (count 1) every exchange is the identity.

    Args:
        rank: 0 for the one that logs and saves.
        count: processes in the run.
        meeting: file through which they find each other; unused when alone.
    """

    def __init__(self, rank: int = 0, count: int = 1, meeting: Path | None = None) -> None:
        self.rank, self.count = rank, count
        if count > 1:
            assert meeting is not None, "several workers need a meeting file"
            dist.init_process_group(
                "gloo", init_method=meeting.as_uri(), rank=rank, world_size=count, timeout=_PATIENCE
            )

    def average(self, gradients: Sequence[Tensor]) -> None:
        """Replaces gradients (float32, any shapes) by their mean over all workers, in place."""
        if self.count == 1:
            return
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        try:
            dist.all_reduce(flat)
        except RuntimeError as error:
            raise EngineError(f"another training worker has gone: {str(error).splitlines()[0]}") from error
        flat /= self.count
        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def mean(self, values: dict[str, float]) -> dict[str, float]:
        """Mean of each named value over the workers that have it."""
        if self.count == 1:
            return values
        everyone: list[dict[str, float]] = [{}] * self.count
        dist.all_gather_object(everyone, values)
        names = dict.fromkeys(name for one in everyone for name in one)
        held = {name: [one[name] for one in everyone if name in one] for name in names}
        return {name: sum(found) / len(found) for name, found in held.items()}


def run_workers(count: int, lead: Callable[[Workers], None], follow: Callable[[Workers], None]) -> None:
    """Calls `lead` in this process as rank 0 and `follow` in `count - 1` new ones, which end with this one.

    Args:
        count: workers, at least 1.
        lead: logs and saves.
        follow: the same work without that; picklable.

    Raises:
        EngineError: a worker ended early; whatever `lead` raises.
    """
    if count == 1:
        lead(Workers())
        return
    with tempfile.TemporaryDirectory(prefix="unmask-workers-") as folder:
        meeting = Path(folder) / "meeting"
        spawn = multiprocessing.get_context("spawn")
        others = [spawn.Process(target=_follow, args=(r, count, meeting, follow), daemon=True) for r in range(1, count)]
        for other in others:
            other.start()
        try:
            lead(Workers(0, count, meeting))
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()
            for other in others:
                other.join(10)
                other.kill()


def _follow(rank: int, count: int, meeting: Path, follow: Callable[[Workers], None]) -> None:
    """Body of a new process: it works in silence, its leader speaks."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    follow(Workers(rank, count, meeting))
