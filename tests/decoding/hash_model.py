"""Models without weights: every logit is a hash of what the row may see, so any leak or mix-up changes ids."""

import zlib
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from unmask.core.canvas import BoolArray, IntArray
from unmask.decoding.reference import ReferenceModel


def hash_model(seed: int, vocab_size: int, spread: float = 2.0) -> ReferenceModel:
    """Gaussian logits with standard deviation `spread`, a pure function of the row's position and visible ids."""

    def model(ids_L: IntArray, visible_LL: BoolArray, *_told: object) -> Tensor:
        rows = [
            np.random.default_rng([seed, position, zlib.crc32(ids_L[seen].tobytes())]).standard_normal(vocab_size)
            for position, seen in enumerate(visible_LL)
        ]
        return torch.from_numpy(np.array(rows) * spread).float()

    return model


def drafting(model: ReferenceModel, drafts: Mapping[int, int]) -> ReferenceModel:
    """The same causal rows, but window rows (those that see past themselves) are sure of the given drafts."""

    def drafted(ids_L: IntArray, visible_LL: BoolArray, *_told: object) -> Tensor:
        logits_LV = model(ids_L, visible_LL)
        length = ids_L.shape[0]
        window = np.flatnonzero(visible_LL.sum(1) > np.arange(1, length + 1))
        for position in [*window.tolist(), length - 1] if window.size else []:
            if position in drafts:
                logits_LV[position] = -30.0
                logits_LV[position, drafts[position]] = 30.0
        return logits_LV

    return drafted
