"""Attention over a packed training row: the prefix alone, then each branch over the prefix and itself.

Equal to full attention under the same visibility matrix, at the cost of the tree and not of its square.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from unmask.models.transformer import Attend

# Shape legend: N rows, P prefix rows, R rows of a branch, S = P + R, H query heads, G kv heads, K width.


def tree_attention(visible_NN: Tensor, num_prefix: int, branch_lengths: Sequence[int]) -> Attend:
    """Builds the attention of one packed row.

    Args:
        visible_NN: bool, row sees column; prefix rows see prefix rows only, branches never see one another.
        num_prefix: P, may be 0.
        branch_lengths: rows of each branch, in order; P plus their sum is N.
    """
    sections = [num_prefix, *branch_lengths] if num_prefix else list(branch_lengths)
    masks: list[Tensor] = [visible_NN[:num_prefix, :num_prefix]] if num_prefix else []
    start = num_prefix
    for length in branch_lengths:
        rows = visible_NN[start : start + length]
        masks.append(torch.cat((rows[:, :num_prefix], rows[:, start : start + length]), dim=1))
        start += length

    def attend(_layer: int, q_NHK: Tensor, k_NGK: Tensor, v_NGK: Tensor) -> Tensor:
        repeats = q_NHK.shape[1] // k_NGK.shape[1]
        k_NHK, v_NHK = k_NGK.repeat_interleave(repeats, 1), v_NGK.repeat_interleave(repeats, 1)
        parts = zip(q_NHK.split(sections), k_NHK.split(sections), v_NHK.split(sections), masks, strict=True)
        outs: list[Tensor] = []
        for index, (q, k, v, mask_RS) in enumerate(parts):
            if num_prefix and index:
                k, v = torch.cat((k_NHK[:num_prefix], k)), torch.cat((v_NHK[:num_prefix], v))
            q_HRK, k_HSK, v_HSK = (x.transpose(0, 1)[None] for x in (q, k, v))
            out = functional.scaled_dot_product_attention(q_HRK, k_HSK, v_HSK, attn_mask=mask_RS[None, None])
            outs.append(out[0].transpose(0, 1))
        return torch.cat(outs)

    return attend
