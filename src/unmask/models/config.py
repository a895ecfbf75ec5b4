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


class NormKind(StrEnum):
    """How rows are normalised.

    RMS: x / sqrt(mean(x^2) + eps) * weight.
    LAYER: (x - mean) / sqrt(variance + eps) * weight + bias.
    """

    RMS = "rms"
    LAYER = "layer"


class PositionKind(StrEnum):
    """How a row knows where it stands.

    ROTARY: queries and keys are rotated.
    LEARNED: a trained row is added to the embedding.
    PER_LAYER: rotated as well, by angles that differ between layers (`ModelConfig.layers`).
    """

    ROTARY = "rotary"
    LEARNED = "learned"
    PER_LAYER = "per_layer"


class FeedKind(StrEnum):
    """The feed-forward, with the tanh form of GELU.

    SWIGLU: down(silu(gate(x)) * up(x)).
    GEGLU: down(gelu(gate(x)) * up(x)).
    GELU_TANH: down(gelu(up(x))).
    """

    SWIGLU = "swiglu"
    GEGLU = "geglu"
    GELU_TANH = "gelu_tanh"


class RouterScore(StrEnum):
    """How router logits become the scores that experts are chosen and weighted by."""

    SOFTMAX = "softmax"
    SIGMOID = "sigmoid"


class NoiseKind(StrEnum):
    """What an undecided position holds: the mask token, or a token drawn uniformly."""

    MASK = "mask"
    UNIFORM = "uniform"


@dataclass(frozen=True, kw_only=True)
class MoEConfig:
    """A mixture of feed-forward experts in place of the dense feed-forward.

    Attributes:
        num_experts: routed experts E.
        num_chosen: experts J that each row goes to.
        expert_size: width of one expert's feed-forward.
        shared_size: width of the shared expert that every row goes to as well; 0 for none.
        dense_layers: layers that keep a dense feed-forward.
        score: see `RouterScore`.
        has_choice_bias: a trained bias is added to the scores for the choice, not for the weights.
        num_groups: equal runs of experts, of which only `num_chosen_groups` are open to a row; 1 for no grouping. A
            group counts as much as its two best experts together.
        num_chosen_groups: see `num_groups`.
        normalise: divide the chosen weights by their sum.
        scale: factor on the weights, after the division.
    """

    num_experts: int
    num_chosen: int
    expert_size: int
    shared_size: int = 0
    dense_layers: frozenset[int] = frozenset()
    score: RouterScore = RouterScore.SOFTMAX
    has_choice_bias: bool = False
    num_groups: int = 1
    num_chosen_groups: int = 1
    normalise: bool = False
    scale: float = 1.0


@dataclass(frozen=True, kw_only=True)
class AttentionShape:
    """Attention of one layer, in a model whose layers differ. Scores are not scaled.

    Attributes:
        num_kv_heads: key/value heads; divides the query heads.
        head_dim: width K of one head.
        rope_theta: rotary base.
        rotary_dim: dims of a head that are rotated, half of them at the start of each half of the head.
        reach: most clean positions that a row sees (sliding window); None for all.
        has_values: there is a projection for values; without one the keys, before norm and rotation, are the values.
    """

    num_kv_heads: int
    head_dim: int
    rope_theta: float
    rotary_dim: int
    reach: int | None = None
    has_values: bool = True


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Shape of a pre-norm decoder stack. The defaults make it Llama's (RMSNorm, rotary, SwiGLU, no biases).

    Attributes:
        vocab_size: rows of the embedding table.
        hidden_size: width D.
        num_layers: number of blocks.
        num_heads: query heads H.
        num_kv_heads: key/value heads G; divides num_heads.
        head_dim: width K of one head.
        intermediate_size: width F of the feed-forward.
        rope_theta: rotary base.
        rms_norm_eps: added to the mean square (or to the variance, for `NormKind.LAYER`).
        tied: the output head is the embedding table.
        qkv_bias: q, k, v projections carry a bias (Qwen2).
        qk_norm: per-head RMSNorm on q and k before the rotation (Qwen3).
        max_positions: longest sequence.
        rotary_dim: leading dims of a head that are rotated; None for all.
        norm: see `NormKind`.
        positions: see `PositionKind`.
        feed: see `FeedKind`; experts have the same.
        out_bias: the attention's output projection carries a bias.
        feed_bias: both feed-forward projections carry a bias.
        moe: experts in place of the dense feed-forward (DiffusionGemma: beside it); None for a dense model.
        layers: attention of each layer, where layers differ; empty where all have the shape above.
        logit_cap: logits z become cap * tanh(z / cap); None for as they are.
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
    rotary_dim: int | None = None
    norm: NormKind = NormKind.RMS
    positions: PositionKind = PositionKind.ROTARY
    feed: FeedKind = FeedKind.SWIGLU
    out_bias: bool = False
    feed_bias: bool = False
    moe: MoEConfig | None = None
    layers: tuple[AttentionShape, ...] = ()
    logit_cap: float | None = None

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
        editable: the model was trained to correct tokens it has already written.
        noise: see `NoiseKind`.
    """

    mask_token_id: int | None
    attention: AttentionPattern
    block_size: int
    logit_shift: int
    eos_ids: frozenset[int]
    max_positions: int
    vocab_size: int
    editable: bool = False
    noise: NoiseKind = NoiseKind.MASK
