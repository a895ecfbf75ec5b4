"""Attention over a whole matrix, written out: the plain thing to compare with."""

import torch
from torch import Tensor

from unmask.models.transformer import Attend, Transformer


def dense_attention(visible_NN: Tensor) -> Attend:
    """Every row sees the columns that are true in its line; a row that sees nothing gets zeros."""

    def attend(_layer: int, q_NHK: Tensor, k_NGK: Tensor, v_NGK: Tensor) -> Tensor:
        repeats = q_NHK.shape[1] // k_NGK.shape[1]
        k_NHK, v_NHK = k_NGK.repeat_interleave(repeats, dim=1), v_NGK.repeat_interleave(repeats, dim=1)
        scores = torch.einsum("qhk,nhk->hqn", q_NHK, k_NHK) / q_NHK.shape[-1] ** 0.5
        weights = scores.masked_fill(~visible_NN, float("-inf")).softmax(-1).nan_to_num(0.0)
        return torch.einsum("hqn,nhk->qhk", weights, v_NHK)

    return attend


def full(length: int, is_real: list[int] | None = None) -> Tensor:
    """Everything sees everything, padding excepted."""
    real = torch.ones(length, dtype=torch.bool) if is_real is None else torch.tensor(is_real, dtype=torch.bool)
    return real.expand(length, length)


def causal(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).tril()


def block_causal(length: int, block_size: int) -> Tensor:
    """A row sees its own block and all before it, counted from position 0."""
    block = torch.arange(length) // block_size
    return block[None] <= block[:, None]


def logits(model: Transformer, ids: list[int], visible: Tensor) -> Tensor:
    with torch.inference_mode():
        return model.head(model(torch.tensor(ids), torch.arange(len(ids)), dense_attention(visible)))
