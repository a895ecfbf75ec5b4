"""What a checkpoint is: the shape of its transformer (`ModelConfig`) and the facts a decoder must know (`Traits`)."""

from dataclasses import dataclass
from enum import StrEnum


class AttentionPattern(StrEnum):
    """Which clean tokens a clean token sees.

    CAUSAL_CONTEXT: clean tokens are causal, so their keys never depend on block borders; the open block is
        bidirectional inside and sees everything before it. The only pattern on which all three modes run.
    BLOCK_CAUSAL: clean tokens see earlier blocks and their own whole block; blocks are aligned to position 0.
    BIDIRECTIONAL: everything sees everything; nothing can be cached exactly.
    CAUSAL: a plain AR model: no masks at all.
    """

    CAUSAL_CONTEXT = "causal_context"
    BLOCK_CAUSAL = "block_causal"
    BIDIRECTIONAL = "bidirectional"
    CAUSAL = "causal"


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Shape of a Llama-like decoder stack (RMSNorm, rotary, SwiGLU, grouped-query attention).

    Attributes:
        vocab_size: rows of the embedding table.
        hidden_size: width D.
        num_layers: number of blocks.
        num_heads: query heads H.
        num_kv_heads: key/value heads G; divides num_heads.
        head_dim: width K of one head.
        intermediate_size: width F of the feed-forward.
        rope_theta: rotary base.
        rms_norm_eps: added to the mean square.
        tied: the output head is the embedding table.
        qkv_bias: q, k, v projections carry a bias (Qwen2).
        qk_norm: per-head RMSNorm on q and k before the rotation (Qwen3).
        max_positions: longest sequence.
    """

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    rope_theta: float
    rms_norm_eps: float
    tied: bool
    qkv_bias: bool
    qk_norm: bool
    max_positions: int

    @property
    def q_size(self) -> int:
        """Width of all query heads together."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key (or value) heads together."""
        return self.num_kv_heads * self.head_dim


@dataclass(frozen=True, kw_only=True)
class Traits:
    """Facts of a checkpoint that decoding depends on. They live here and nowhere else.

    Attributes:
        mask_token_id: id that stands for an undecided position; None for plain AR models.
        attention: see `AttentionPattern`.
        block_size: positions denoised together unless the request says otherwise.
        logit_shift: 0 if a masked position's own row predicts it, 1 if the row before does.
        eos_ids: ids that end an answer.
        max_positions: longest sequence.
        vocab_size: width of the logits.
    """

    mask_token_id: int | None
    attention: AttentionPattern
    block_size: int
    logit_shift: int
    eos_ids: frozenset[int]
    max_positions: int
    vocab_size: int
