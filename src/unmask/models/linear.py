"""Linear layers whose every output row depends on its own input row alone, bit for bit.

Why it matters: a request's bytes must not change with the rows that happen to share its forward, and `verified` mode
must see in one forward of many rows exactly the logits AR mode sees one row at a time. An ordinary fp32 GEMM picks
its kernel by row count and breaks both (decoding in a batch then differs in near ties).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

# Shape legend: N rows, I input width, O output width, T rows per tile.

ROW_TILE = 16
"""Rows per fp32 GEMM call. A constant, because the kernel chosen depends on it."""

LinearFactory = Callable[[Tensor, Tensor | None], nn.Module]
"""(weight_OI float32, bias_O or None) -> module mapping [N, I] float32 to [N, O] float32."""


class TiledLinear(nn.Module):
    """fp32 linear layer that always multiplies `ROW_TILE` rows at a time: the reference, not the fast path."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight_OI, requires_grad=False)
        self.bias = None if bias_O is None else nn.Parameter(bias_O, requires_grad=False)

    def forward(self, x_NI: Tensor) -> Tensor:
        """Maps [N, I] to [N, O]."""
        num_rows = x_NI.shape[0]
        padded = functional.pad(x_NI, (0, 0, 0, -num_rows % ROW_TILE))
        tiles = [functional.linear(tile, self.weight, self.bias) for tile in padded.split(ROW_TILE)]
        return torch.cat(tiles)[:num_rows]


class Int8Linear(nn.Module):
    """int8 weights (scale per output row) times 7-bit activations (scale per input row), int32 sums, fp32 out.

    Each row is divided by its own largest magnitude before a quantisation with ONE constant scale, so no row can
    influence another; integer sums are exact, so the row count cannot either. Activations use 7 bits because the
    AVX2 kernel adds two u8 x s8 products in 16 bits, which 8 bits would saturate.
    """

    _LEVELS = 63

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        super().__init__()
        scales_O = weight_OI.abs().amax(1).clamp_min(1e-12) / 127
        zeros_O = torch.zeros(weight_OI.shape[0], dtype=torch.long)
        quantized = torch.quantize_per_channel(weight_OI.float(), scales_O.double(), zeros_O, 0, torch.qint8)
        self.packed = torch.ops.quantized.linear_prepack(quantized, None)
        self.bias = None if bias_O is None else nn.Parameter(bias_O, requires_grad=False)
        self._matmul = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32

    def forward(self, x_NI: Tensor) -> Tensor:
        """Maps [N, I] to [N, O]."""
        scale_N1 = x_NI.abs().amax(1, keepdim=True).clamp_min_(1e-12)
        y_NO = self._matmul(x_NI / scale_N1, 1.0 / self._LEVELS, self._LEVELS + 1, self.packed)
        y_NO.mul_(scale_N1)
        return y_NO if self.bias is None else y_NO.add_(self.bias)


class PlainLinear(nn.Module):
    """An ordinary trainable linear layer (training needs gradients, not row invariance)."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight_OI)
        self.bias = None if bias_O is None else nn.Parameter(bias_O)

    def forward(self, x_NI: Tensor) -> Tensor:
        """Maps [N, I] to [N, O]."""
        return functional.linear(x_NI, self.weight, self.bias)
