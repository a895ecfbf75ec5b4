"""ONE denoising step of a batch of sequences: the only file where model, cache and rule meet."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from unmask.cache.block_causal import Slots
from unmask.core.plan import Plan
from unmask.decoding.belief import Belief
from unmask.decoding.rules import SelfConditioned
from unmask.engine.sequence import Decoding
from unmask.models.transformer import Transformer, Undecided

# Shape legend: N rows of all sequences, D hidden, R rows read, H heads, G kv heads, K head width, W rows of a window,
# V vocabulary.


@torch.inference_mode()
def denoise(model: Transformer, batch: Sequence[tuple[Decoding, int]]) -> None:
    """Takes every sequence one forward further. Sequences may be in any mode and at any phase of a block.

    Args:
        model: the transformer.
        batch: sequences, each with the most clean rows it may feed; at least one.

    Each sequence attends in its own shape and every other operation treats rows alike, so what a sequence becomes
    does not depend on which others are in the batch.
    """
    sequences = [sequence for sequence, _ in batch]
    plans = [s.cache.plan(s.canvas, s.rule.reads(s.canvas), max_rows=rows) for s, rows in batch]
    attention = _BatchAttention(sequences, plans)
    ids_N = torch.from_numpy(np.concatenate([plan.ids_T for plan in plans]))
    positions_N = torch.from_numpy(np.concatenate([plan.positions_T for plan in plans]))
    hidden_ND = model(ids_N, positions_N, attention, _undecided(sequences, plans, attention.starts))
    read_R = np.concatenate([plan.read_R + start for plan, start in zip(plans, attention.starts, strict=True)])
    logits_RV = model.head(hidden_ND[torch.from_numpy(read_R)])
    rows = logits_RV.split([plan.read_R.shape[0] for plan in plans])
    for sequence, plan, logits in zip(sequences, plans, rows, strict=True):
        sequence.num_forwards += 1
        if not plan.read_R.size:
            sequence.cache.observe(sequence.canvas, plan, None)
            continue
        belief = Belief(logits_RV=logits, predicts_R=plan.predicts_R, causal_R=plan.causal_R)
        delta = sequence.rule.step(sequence.canvas, belief, sequence.random)
        sequence.cache.observe(sequence.canvas, plan, delta)
        sequence.canvas = sequence.canvas.apply(delta)


def _undecided(sequences: Sequence[Decoding], plans: Sequence[Plan], starts: Sequence[int]) -> Undecided:
    """Which rows are open, and what rules tell the model about them."""
    is_open_N = np.concatenate([plan.positions_T >= plan.clean_end for plan in plans])
    said: list[tuple[int, Tensor]] = []
    for sequence, plan, start in zip(sequences, plans, starts, strict=True):
        if isinstance(sequence.rule, SelfConditioned) and plan.clean_end == sequence.canvas.window_start:
            conditioning_WV = sequence.rule.conditioning(sequence.canvas)
            if conditioning_WV is not None:
                said.append((start + int((plan.positions_T < plan.clean_end).sum()), conditioning_WV))
    return Undecided(is_open_N=torch.from_numpy(is_open_N), said=tuple(said))


class _BatchAttention:
    """Attention of the batch: each sequence's rows over that sequence's cache."""

    def __init__(self, sequences: Sequence[Decoding], plans: Sequence[Plan]) -> None:
        self._caches = [sequence.cache for sequence in sequences]
        for cache, plan in zip(self._caches, plans, strict=True):
            cache.reserve(int(plan.positions_T.max()) + 1)
        self._slots = [Slots(plan) for plan in plans]
        self._lengths = [plan.ids_T.shape[0] for plan in plans]
        self.starts = [sum(self._lengths[:i]) for i in range(len(plans))]

    def __call__(self, layer: int, q_NHK: Tensor, k_NGK: Tensor, v_NGK: Tensor) -> Tensor:
        parts = zip(*(x.split(self._lengths) for x in (q_NHK, k_NGK, v_NGK)), strict=True)
        outs: list[Tensor] = []
        for cache, slots, (q, k, v) in zip(self._caches, self._slots, parts, strict=True):
            cache.update(layer, slots, k, v)
            outs.append(cache.attend(layer, slots, q))
        return outs[0] if len(outs) == 1 else torch.cat(outs)
