"""Linear layers whose every output row depends on its own input row alone, bit for bit.

Why it matters: a request's bytes must not change with the rows that happen to share its forward, and `verified` mode
must see in one forward of many rows exactly the logits AR mode sees one row at a time. An ordinary fp32 GEMM picks
its kernel by row count and breaks both (decoding in a batch then differs in near ties).
"""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

# Shape legend: N rows, I input width, O output width, T rows per tile.

ROW_TILE = 16
"""Rows per fp32 GEMM call. A constant, because the kernel chosen depends on it."""
WIDE_TILE = 64
"""Rows per call while so many are left, where the kernel's wide product has the bits of its narrow one."""

LinearFactory = Callable[[Tensor, Tensor | None], nn.Module]
"""(weight_OI float32, bias_O or None) -> module mapping [N, I] float32 to [N, O] float32."""


class TiledLinear(nn.Module):
    """fp32 linear layer that multiplies a fixed number of rows at a time: the reference, not the fast path.

    Rows are independent bit for bit when the input width is a multiple of 4, as in every published checkpoint. Wide
    tiles take a third of the time per row; whether their sums have the bits of narrow ones is the library's business,
    so each layer tries it on its own weights when it is built and stays narrow if they differ.
    """

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight_OI, requires_grad=False)
        self.bias = None if bias_O is None else nn.Parameter(bias_O, requires_grad=False)
        self.wide_tile = WIDE_TILE if self._wide_equals_narrow() else ROW_TILE

    @torch.no_grad()
    def _wide_equals_narrow(self) -> bool:
        trial_NI = torch.randn(WIDE_TILE, self.weight.shape[1], generator=torch.Generator().manual_seed(0))
        narrow_NO = torch.cat([functional.linear(tile, self.weight) for tile in trial_NI.split(ROW_TILE)])
        return torch.equal(functional.linear(trial_NI, self.weight), narrow_NO)

    def forward(self, x_NI: Tensor) -> Tensor:
        """Maps [N, I] to [N, O]."""
        num_rows = x_NI.shape[0]
        num_wide = num_rows // self.wide_tile * self.wide_tile
        rest_RI = functional.pad(x_NI[num_wide:], (0, 0, 0, -num_rows % ROW_TILE))
        tiles = [*x_NI[:num_wide].split(self.wide_tile), *rest_RI.split(ROW_TILE)]
        return torch.cat([functional.linear(tile, self.weight, self.bias) for tile in tiles])[:num_rows]


class Int8Product:
    """x @ W^T with 7-bit weights (scale per output row), 8-bit activations (scale per input row), int32 sums.

    Each row is divided by its own largest magnitude before a quantisation with ONE constant scale, so no row can
    influence another; integer sums are exact, so the row count cannot either. Weights use 7 bits because the AVX2
    kernel adds two u8 x s8 products in 16 bits, which 8 bits on both sides would saturate; activations get the eighth
    bit because their outliers are what costs accuracy (docs/default-model.md has the measurement).

    Args:
        weight_OI: float32.
    """

    _ACTIVATION_LEVELS = 127
    _WEIGHT_LEVELS = 63

    def __init__(self, weight_OI: Tensor) -> None:
        scales_O = weight_OI.abs().amax(1).clamp_min(1e-12) / self._WEIGHT_LEVELS
        zeros_O = torch.zeros(weight_OI.shape[0], dtype=torch.long)
        with warnings.catch_warnings():
            # torch is moving eager quantisation to torchao, which has no int8 kernel for AVX2; the ops stay
            warnings.filterwarnings("ignore", message=".*quantize_per.*")
            quantized = torch.quantize_per_channel(weight_OI.float(), scales_O.double(), zeros_O, 0, torch.qint8)
        self._packed = torch.ops.quantized.linear_prepack(quantized, None)
        self._multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32

    def __call__(self, x_NI: Tensor) -> Tensor:
        """Maps [N, I] float32 to [N, O] float32."""
        scale_N1 = (
            x_NI.abs().amax(1, keepdim=True).clamp_min_(1e-12)
        )  # vector_norm(inf) is not vectorised: 8 times this
        levels = self._ACTIVATION_LEVELS
        return self._multiply(x_NI / scale_N1, 1.0 / levels, levels + 1, self._packed).mul_(scale_N1)


class Int8Linear(nn.Module):
    """The fast CPU layer: an `Int8Product` and a bias."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        super().__init__()
        self.product = Int8Product(weight_OI)
        self.bias = None if bias_O is None else nn.Parameter(bias_O, requires_grad=False)

    def forward(self, x_NI: Tensor) -> Tensor:
        """Maps [N, I] to [N, O]."""
        y_NO = self.product(x_NI)
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
