"""Attention over a packed training row: the prefix alone, then all branches at once, each over prefix and itself.

Equal to full attention under the same visibility matrix, at the cost of the tree and not of its square.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from unmask.models.transformer import Attend

# Shape legend: N rows, P prefix rows, C branches, R rows of the longest branch, H query heads, G kv heads, K width.


def tree_attention(visible_NN: Tensor, num_prefix: int, branch_lengths: Sequence[int]) -> Attend:
    """Builds the attention of one packed row.

    Args:
        visible_NN: bool, row sees column; prefix rows see prefix rows only, branches never see one another.
        num_prefix: P, may be 0.
        branch_lengths: rows of each branch, in order; P plus their sum is N.
    """
    longest = max(branch_lengths)
    starts = torch.tensor([num_prefix + sum(branch_lengths[:i]) for i in range(len(branch_lengths))])
    lengths = torch.tensor(branch_lengths)
    offsets_R = torch.arange(longest)
    real_CR = offsets_R < lengths[:, None]
    index_CR = torch.where(real_CR, starts[:, None] + offsets_R, starts[:, None])
    columns_CS = torch.cat((torch.arange(num_prefix).expand(len(branch_lengths), -1), index_CR), dim=1)
    seen_CRS = visible_NN[index_CR[:, :, None], columns_CS[:, None]]
    seen_CRS[:, :, num_prefix:] &= real_CR[:, None]
    prefix_PP = visible_NN[:num_prefix, :num_prefix]

    def attend(_layer: int, q_NHK: Tensor, k_NGK: Tensor, v_NGK: Tensor) -> Tensor:
        repeats = q_NHK.shape[1] // k_NGK.shape[1]
        q, k, v = q_NHK, k_NGK.repeat_interleave(repeats, 1), v_NGK.repeat_interleave(repeats, 1)
        out = _masked(q[index_CR], k[columns_CS], v[columns_CS], seen_CRS)[real_CR]
        if not num_prefix:
            return out
        head = _masked(q[None, :num_prefix], k[None, :num_prefix], v[None, :num_prefix], prefix_PP[None])[0]
        return torch.cat((head, out))

    return attend


def _masked(q_CRHK: Tensor, k_CSHK: Tensor, v_CSHK: Tensor, seen_CRS: Tensor) -> Tensor:
    """Scaled dot-product attention with rows before heads in and out."""
    q, k, v = (x.transpose(1, 2) for x in (q_CRHK, k_CSHK, v_CSHK))
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen_CRS[:, None]).transpose(1, 2)
