"""What the packed rows of a batch are, read back from the samples alone; and the logits serving gives for them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from tests.models.random_weights import MASK
from unmask.cache.block_causal import BlockCausalCache
from unmask.core.canvas import Canvas, Delta, IntArray
from unmask.core.plan import Reads, masked_reads, verifying_reads
from unmask.core.request import Request, SamplingParams
from unmask.decoding.belief import Belief
from unmask.decoding.randomness import RandomStream
from unmask.engine.runner import denoise
from unmask.engine.sequence import Running
from unmask.engine.settings import cache_shape
from unmask.models.loading import Loaded
from unmask.train.objectives import denoiser
from unmask.train.packing import PackedBatch, Sample


@dataclass(frozen=True)
class Block:
    """One block of one noisy copy.

    Attributes:
        start: its first position.
        rows: its packed rows, in order of position.
        ids: what they hold.
    """

    start: int
    rows: list[int]
    ids: list[int]

    @property
    def masked(self) -> list[int]:
        return [self.start + i for i, token in enumerate(self.ids) if token == MASK]


@dataclass(frozen=True)
class Branch:
    """One conversation: its text from position 0 on, the packed row of each clean position, and its noisy copies."""

    text: list[int]
    answer_at: int
    clean_rows: list[int]
    copies: list[list[Block]]


def branches(prefix: Sequence[int], samples: Sequence[Sample], batch: PackedBatch) -> list[Branch]:
    """Reads the batch back; blocks are told apart by who sees whom. Tokens must differ from the mask id."""
    visible = batch.visible_NN.numpy()
    found: list[Branch] = []
    at = len(prefix)
    for sample, length in zip(samples, batch.branch_lengths, strict=True):
        own = [*sample.prompt_ids, *sample.answer_ids]
        clean_rows = [*range(len(prefix)), *range(at, at + len(own))]
        copies: list[list[Block]] = []
        last = None
        for row in range(at + len(own), at + length):
            position = int(batch.positions_N[row])
            if last is None or position <= last:
                copies.append([])
            if not copies[-1] or not visible[row, copies[-1][-1].rows[0]]:
                copies[-1].append(Block(position, [], []))
            copies[-1][-1].rows.append(row)
            copies[-1][-1].ids.append(int(batch.ids_N[row]))
            last = position
        answer_at = len(prefix) + len(sample.prompt_ids)
        found.append(Branch([*prefix, *own], answer_at, clean_rows, copies))
        at += length
    return found


def trained(loaded: Loaded, batch: PackedBatch) -> Tensor:
    """Logits [N, V] of every packed row, as the training objective computes them."""
    with torch.no_grad():
        return denoiser(loaded.model, None, MASK)(batch, torch.arange(batch.ids_N.shape[0]))


@dataclass
class Recorder:
    """A decoding rule that changes nothing and keeps what it was shown."""

    reads: Callable[[Canvas], Reads]
    shown: dict[int, Tensor] = field(default_factory=dict)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        raise AssertionError("the canvas is given")

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        self.shown = dict(zip(belief.predicts_R.tolist(), belief.logits_RV.clone(), strict=True))
        nothing = np.zeros(0, np.int64)
        return Delta(
            positions_W=nothing,
            ids_W=nothing,
            open_W=nothing.astype(np.bool_),
            num_final=canvas.num_final,
            window_start=canvas.window_start,
            length=canvas.length,
        )


def served(
    loaded: Loaded, text: Sequence[int], window: Sequence[int], *, num_final: int, causal: bool = False
) -> dict[int, Tensor]:
    """Logits the cached engine reads for [text | window], by predicted position; the text is fed in small pieces."""
    ids = np.array([*text, *window])
    rule = Recorder(verifying_reads if causal else masked_reads)
    at = np.arange(ids.shape[0])
    canvas = Canvas(
        ids_L=ids,
        open_L=((at >= len(text)) & (ids == MASK)) | ((at >= num_final) & (at < len(text))),
        prompt_length=num_final,
        num_final=num_final,
        window_start=len(text),
        limit=1000,
    )
    running = Running(
        request=Request(id="r", prompt_ids=(1,), params=SamplingParams()),
        params=SamplingParams(),
        rule=rule,
        eos_ids=frozenset(),
        random=RandomStream(seed=0),
        canvas=canvas,
        cache=BlockCausalCache(cache_shape(loaded.config, loaded.traits)),
        num_reserved=0,
        deadline=None,
    )
    while not rule.shown:
        num_text_left = num_final - running.cache.stored  # drafts after it are never stored, so they are fed at once
        denoise(loaded.model, [(running, 5 if num_text_left > 9 else running.num_pending)])
    return rule.shown
