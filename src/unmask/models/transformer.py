"""One decoder stack for every Llama-shaped family (Llama, SmolLM2, Qwen2, Qwen2.5, Qwen3).

It works on N rows, whatever sequences they belong to: projections treat rows alike, and attention is a value the
caller passes in (`Attend`), so causal, block-causal, bidirectional, cached and training attention are the same model.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from unmask.models.config import ModelConfig

# Shape legend: N rows, D hidden, H query heads, G kv heads, K head width, X = H + G, F feed-forward, V vocabulary,
# R rows read.

MAX_OVERHANG = 512
"""Positions past the context that a forward may still touch: a draft and a window of 256 each."""

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""(layer, q_NHK, k_NGK, v_NGK) -> [N, H, K]: attention of layer `layer`, keys and values not yet repeated."""


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight, per row."""

    def __init__(self, weight_D: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight_D, requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalises the last axis."""
        return functional.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class Block(nn.Module):
    """Pre-norm attention and SwiGLU feed-forward. q, k, v share one projection, and so do gate and up."""

    def __init__(self, config: ModelConfig, parts: dict[str, nn.Module]) -> None:
        super().__init__()
        self.config = config
        self.input_norm = parts["input_norm"]
        self.qkv = parts["qkv"]
        self.out = parts["out"]
        self.post_norm = parts["post_norm"]
        self.gate_up = parts["gate_up"]
        self.down = parts["down"]
        self.q_norm = parts.get("q_norm")
        self.k_norm = parts.get("k_norm")

    def forward(self, x_ND: Tensor, cos_N1K: Tensor, sin_N1K: Tensor, attend: Callable[..., Tensor]) -> Tensor:
        """Maps [N, D] to [N, D]."""
        config = self.config
        heads = self.qkv(self.input_norm(x_ND)).unflatten(-1, (-1, config.head_dim))
        qk_NXK, v_NGK = heads.split([config.num_heads + config.num_kv_heads, config.num_kv_heads], dim=1)
        if self.q_norm is not None and self.k_norm is not None:
            q_NHK, k_NGK = qk_NXK.split([config.num_heads, config.num_kv_heads], dim=1)
            qk_NXK = torch.cat((self.q_norm(q_NHK), self.k_norm(k_NGK)), dim=1)
        q_NHK, k_NGK = rotate(qk_NXK, cos_N1K, sin_N1K).split([config.num_heads, config.num_kv_heads], dim=1)
        x_ND = x_ND + self.out(attend(q_NHK, k_NGK, v_NGK).flatten(1))
        gate_NF, up_NF = self.gate_up(self.post_norm(x_ND)).chunk(2, dim=-1)
        return x_ND + self.down(functional.silu(gate_NF) * up_NF)


def rotate(x_NHK: Tensor, cos_N1K: Tensor, sin_N1K: Tensor) -> Tensor:
    """Applies the rotary embedding in the half-split layout of Hugging Face Llama (RoPE, arXiv 2104.09864).

    The first half of `sin_N1K` carries the minus sign of the rotation.
    """
    first, second = x_NHK.chunk(2, dim=-1)
    return torch.addcmul(x_NHK * cos_N1K, torch.cat((second, first), dim=-1), sin_N1K)


class Transformer(nn.Module):
    """The stack with its embedding and head. Built by `unmask.models.loading`, which fills every part.

    Args:
        config: the shape.
        embedding_VD: float32 table.
        layers: parts of each block, see `Block`.
        norm: final norm.
        head: module mapping [R, D] to [R, V].
    """

    def __init__(
        self,
        config: ModelConfig,
        embedding_VD: Tensor,
        layers: list[dict[str, nn.Module]],
        norm: nn.Module,
        head: nn.Module,
    ) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(embedding_VD, requires_grad=False)
        self.layers = nn.ModuleList(Block(config, parts) for parts in layers)
        self.norm = norm
        self.lm_head = head
        inverse = config.rope_theta ** (-torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim)
        # the last windows of an answer may reach past the context; their rows are computed and then cut off
        positions = torch.arange(config.max_positions + MAX_OVERHANG, dtype=torch.float64)
        angles = torch.outer(positions, inverse)
        self.cos: Tensor
        self.sin: Tensor
        self.register_buffer("cos", torch.cat((angles.cos(), angles.cos()), dim=-1).float(), persistent=False)
        self.register_buffer("sin", torch.cat((-angles.sin(), angles.sin()), dim=-1).float(), persistent=False)

    def forward(self, ids_N: Tensor, positions_N: Tensor, attend: Attend) -> Tensor:
        """Runs all layers.

        Args:
            ids_N: int64 token ids.
            positions_N: int64 absolute position of each row.
            attend: attention of the rows, called once per layer with the layer's index.

        Returns:
            Final hidden states after the norm, float32 [N, D]; feed the rows you need to `head`.
        """
        return self.run(functional.embedding(ids_N, self.embedding), positions_N, attend)

    def run(self, x_ND: Tensor, positions_N: Tensor, attend: Attend) -> Tensor:
        """Like `forward`, from input embeddings (training uses it to give the mask id a trainable row)."""
        cos_N1K, sin_N1K = self.cos[positions_N].unsqueeze(1), self.sin[positions_N].unsqueeze(1)
        for index, layer in enumerate(self.layers):
            x_ND = layer(x_ND, cos_N1K, sin_N1K, _at_layer(attend, index))
        return self.norm(x_ND)

    def head(self, hidden_RD: Tensor) -> Tensor:
        """Logits [R, V] of the given hidden rows, float32."""
        return self.lm_head(hidden_RD)


def _at_layer(attend: Attend, index: int) -> Callable[..., Tensor]:
    return lambda q, k, v: attend(index, q, k, v)


def masked_attention(visible_NN: Tensor) -> Attend:
    """Full attention among the N rows under a boolean mask (row sees column); differentiable, no cache."""

    def attend(_layer: int, q_NHK: Tensor, k_NGK: Tensor, v_NGK: Tensor) -> Tensor:
        q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q_NHK, k_NGK, v_NGK))
        out = functional.scaled_dot_product_attention(q, k, v, attn_mask=visible_NN, enable_gqa=True)
        return out.squeeze(0).transpose(0, 1)

    return attend
