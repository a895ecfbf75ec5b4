"""One decoder stack for every family; what sets them apart are values in `ModelConfig`.

It works on N rows, whatever sequences they belong to: projections treat rows alike, and attention is a value the
caller passes in (`Attend`), so causal, block-causal, bidirectional, cached and training attention are the same model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from unmask.models.config import FeedKind, ModelConfig, PositionKind

# Shape legend: N rows, D hidden, H query heads, G kv heads, K head width, X = H + G, C rotated dims of a head,
# F feed-forward, V vocabulary, P positions, R rows read.

MAX_OVERHANG = 512
"""Positions past the context that a forward may still touch: a draft and a window of 256 each."""

_SHARE = 16384
"""Values that PyTorch never divides among threads (it divides GELU from here on, others from twice as many)."""

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q_NHK, k_NGK, v_NGK) -> [N, H, K]: attention of layer `layer`, keys and values not yet repeated."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Undecided:
    """Which rows of a forward are an open window's. Only models that treat those in their own way look at it.

    Attributes:
        is_open_N: bool.
        said: for a window whose rule conditions the model on what it said in the step before, the window's first row
            and those logits, float32 [W, V]. Windows without conditioning are absent.
    """

    is_open_N: Tensor
    said: tuple[tuple[int, Tensor], ...] = ()


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, per row."""

    def __init__(self, weight_D: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight_D, requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalises the last axis."""
        return functional.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias, per row."""

    def __init__(self, weight_D: Tensor, bias_D: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight_D, requires_grad=False)
        self.bias = nn.Parameter(bias_D, requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalises the last axis."""
        return functional.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)


class Block(nn.Module):
    """Pre-norm attention and feed-forward. q, k, v share one projection, and so do gate and up.

    Args:
        config: the shape.
        parts: modules by attribute name: `input_norm`, `qkv`, `out`, `post_norm`; `gate_up` (only up, where the
            feed-forward has no gate) and `down`, or `moe` in their place; `q_norm` and `k_norm` if the shape has them.
    """

    def __init__(self, config: ModelConfig, parts: dict[str, nn.Module]) -> None:
        super().__init__()
        self.config = config
        self.input_norm = parts["input_norm"]
        self.qkv = parts["qkv"]
        self.out = parts["out"]
        self.post_norm = parts["post_norm"]
        self.moe = parts.get("moe")
        if self.moe is None:
            self.gate_up = parts["gate_up"]
            self.down = parts["down"]
        self.q_norm = parts.get("q_norm")
        self.k_norm = parts.get("k_norm")

    def forward(
        self, x_ND: Tensor, cos_N1C: Tensor | None, sin_N1C: Tensor | None, attend: Callable[..., Tensor]
    ) -> Tensor:
        """Maps [N, D] to [N, D]; without cos and sin nothing is rotated."""
        config = self.config
        heads = self.qkv(self.input_norm(x_ND)).unflatten(-1, (-1, config.head_dim))
        qk_NXK, v_NGK = heads.split([config.num_heads + config.num_kv_heads, config.num_kv_heads], dim=1)
        if self.q_norm is not None and self.k_norm is not None:
            q_NHK, k_NGK = qk_NXK.split([config.num_heads, config.num_kv_heads], dim=1)
            qk_NXK = torch.cat((self.q_norm(q_NHK), self.k_norm(k_NGK)), dim=1)
        if cos_N1C is not None and sin_N1C is not None:
            qk_NXK = rotate(qk_NXK, cos_N1C, sin_N1C)
        q_NHK, k_NGK = qk_NXK.split([config.num_heads, config.num_kv_heads], dim=1)
        x_ND = x_ND + self.out(attend(q_NHK, k_NGK, v_NGK).flatten(1))
        h_ND = self.post_norm(x_ND)
        fed_ND = feed_forward(h_ND, self.gate_up, self.down, config.feed) if self.moe is None else self.moe(h_ND)
        return x_ND + fed_ND


def by_rows(function: Callable[[Tensor], Tensor], x_NF: Tensor) -> Tensor:
    """Applies an elementwise function of exponentials so that no row feels how many others there are.

    A kernel computes the last few values of a thread's share without vector instructions, which round differently.
    Shares of a large tensor end anywhere once three or more threads divide it, so it is given in pieces too small to
    divide. Training, where rows need not be independent, takes the tensor whole.
    """
    if x_NF.requires_grad or x_NF.numel() <= _SHARE or torch.get_num_threads() < 3:
        return function(x_NF)
    return torch.cat([function(piece) for piece in x_NF.split(max(1, _SHARE // x_NF.shape[-1]))])


def feed_forward(x_ND: Tensor, up: nn.Module, down: nn.Module, kind: FeedKind) -> Tensor:
    """Maps [N, D] to [N, D]; with a gate, `up` gives gate and value side by side."""
    if kind is FeedKind.GELU_TANH:
        return down(by_rows(_gelu_tanh, up(x_ND)))
    gate_NF, value_NF = up(x_ND).chunk(2, dim=-1)
    return down(by_rows(functional.silu if kind is FeedKind.SWIGLU else _gelu_tanh, gate_NF) * value_NF)


def _gelu_tanh(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


def rotate(x_NHK: Tensor, cos_N1C: Tensor, sin_N1C: Tensor) -> Tensor:
    """Applies the rotary embedding in the half-split layout of Hugging Face Llama (RoPE, arXiv 2104.09864).

    The first half of `sin_N1C` carries the minus sign of the rotation. Dims past C stay as they are.
    """
    rotary_dim = cos_N1C.shape[-1]
    if rotary_dim < x_NHK.shape[-1]:
        turned, rest = x_NHK.split([rotary_dim, x_NHK.shape[-1] - rotary_dim], dim=-1)
        return torch.cat((rotate(turned, cos_N1C, sin_N1C), rest), dim=-1)
    first, second = x_NHK.chunk(2, dim=-1)
    return torch.addcmul(x_NHK * cos_N1C, torch.cat((second, first), dim=-1), sin_N1C)


class Transformer(nn.Module):
    """The stack with its embedding and head. Built by `unmask.models.loading`, which fills every part.

    Args:
        config: the shape.
        embedding_VD: float32 table.
        blocks: one module per layer that maps (x_ND, cos_N1C, sin_N1C, attend) to [N, D], usually a `Block`.
        norm: final norm.
        head: module mapping [R, D] to [R, V].
        positions_PD: trained position rows, for `PositionKind.LEARNED`.
    """

    def __init__(
        self,
        config: ModelConfig,
        embedding_VD: Tensor,
        blocks: Sequence[nn.Module],
        norm: nn.Module,
        head: nn.Module,
        positions_PD: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(embedding_VD, requires_grad=False)
        self.positions = None if positions_PD is None else nn.Parameter(positions_PD, requires_grad=False)
        self.layers = nn.ModuleList(blocks)
        self.norm = norm
        self.lm_head = head
        if config.positions is PositionKind.ROTARY:
            cos_PC, sin_PC = _rotary_table(config)
            self.cos: Tensor
            self.sin: Tensor
            self.register_buffer("cos", cos_PC, persistent=False)
            self.register_buffer("sin", sin_PC, persistent=False)

    def forward(self, ids_N: Tensor, positions_N: Tensor, attend: Attend, undecided: Undecided | None = None) -> Tensor:
        """Runs all layers.

        Args:
            ids_N: int64 token ids.
            positions_N: int64 absolute position of each row.
            attend: attention of the rows, called once per layer with the layer's index.
            undecided: which rows are open; this stack treats all rows alike and does not look.

        Returns:
            Final hidden states after the norm, float32 [N, D]; feed the rows you need to `head`.
        """
        return self.run(functional.embedding(ids_N, self.embedding), positions_N, attend)

    def run(self, x_ND: Tensor, positions_N: Tensor, attend: Attend) -> Tensor:
        """Like `forward`, from input embeddings (training uses it to give the mask id a trainable row)."""
        cos_N1C, sin_N1C = None, None
        if self.positions is None:
            cos_N1C, sin_N1C = self.cos[positions_N].unsqueeze(1), self.sin[positions_N].unsqueeze(1)
        else:
            # rows that hang over the end of the context are computed and then cut off, so any position will do
            x_ND = x_ND + self.positions[positions_N.clamp_max(self.positions.shape[0] - 1)]
        for index, layer in enumerate(self.layers):
            x_ND = layer(x_ND, cos_N1C, sin_N1C, at_layer(attend, index))
        return self.norm(x_ND)

    def head(self, hidden_RD: Tensor) -> Tensor:
        """Logits [R, V] of the given hidden rows, float32."""
        return self.lm_head(hidden_RD)


def _rotary_table(config: ModelConfig) -> tuple[Tensor, Tensor]:
    """The cos and signed sin of every position, [P, C] each."""
    width = config.head_dim if config.rotary_dim is None else config.rotary_dim
    inverse = config.rope_theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    # the last windows of an answer may reach past the context; their rows are computed and then cut off
    positions = torch.arange(config.max_positions + MAX_OVERHANG, dtype=torch.float64)
    angles = torch.outer(positions, inverse)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), dim=-1).float(), torch.cat((-sin, sin), dim=-1).float()


def at_layer(attend: Attend, index: int) -> Callable[..., Tensor]:
    """The attention of one layer."""
    return lambda q, k, v: attend(index, q, k, v)


def masked_attention(visible_NN: Tensor) -> Attend:
    """Full attention among the N rows under a boolean mask (row sees column); differentiable, no cache."""

    def attend(_layer: int, q_NHK: Tensor, k_NGK: Tensor, v_NGK: Tensor) -> Tensor:
        q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q_NHK, k_NGK, v_NGK))
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=visible_NN, enable_gqa=True)
        return out.squeeze(0).transpose(0, 1)

    return attend
