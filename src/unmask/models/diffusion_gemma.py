"""The stack of DiffusionGemma: one set of weights that reads decided rows as an encoder and open ones as a decoder.

A decided row is causal and is fed its embedding; a row of the open window sees the decided rows and its whole window,
and its embedding is mixed with what the model said about the position in the step before (self-conditioning). The two
differ in one scalar per layer and in that mixing, so both run through the same layers in the same forward. Each layer
has a dense feed-forward and experts side by side; some layers see a sliding window, others everything.

Source: huggingface/transformers 5.24.0 `modeling_diffusion_gemma.py`; self-conditioning: arXiv 2208.04202 section 3.
Departs from the source: rows never depend on the rows beside them, bit for bit; angles are computed in float64.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from unmask.models.config import AttentionShape, ModelConfig, MoEConfig
from unmask.models.linear import ROW_TILE, LinearFactory
from unmask.models.moe import Expert, MoE, Router
from unmask.models.parts import Parts, check_names, parameter
from unmask.models.source import TensorSource
from unmask.models.transformer import Attend, RMSNorm, Transformer, Undecided, at_layer, by_rows, rotate

# Shape legend: N rows, D hidden, H query heads, G kv heads, X = H + G, K head width, J experts chosen per row,
# W rows of a window, V vocabulary, R rows read.

NORMS = ("input", "post", "dense", "dense_post", "routed", "routed_post", "feed_post")
"""Norms of a layer: before and after attention; before and after each feed-forward; after their sum."""


class ScaledRouter(nn.Module):
    """A router over normalised rows with a trained scale per dim and a trained factor per expert."""

    def __init__(self, router: Router, scale_D: Tensor, expert_scale_E: Tensor, eps: float) -> None:
        super().__init__()
        self.router = router
        self.scale = nn.Parameter(scale_D, requires_grad=False)
        self.expert_scale = nn.Parameter(expert_scale_E, requires_grad=False)
        self.eps = eps

    def forward(self, x_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Maps [N, D] to (experts [N, J] int64, weights [N, J]), best score first."""
        normed_ND = _unit(x_ND, self.eps) * self.scale * x_ND.shape[-1] ** -0.5
        chosen_NJ, weights_NJ = self.router(normed_ND)
        return chosen_NJ, weights_NJ * self.expert_scale[chosen_NJ]


class GemmaBlock(nn.Module):
    """Attention, then a dense feed-forward beside experts; a norm before and after each, and a scalar on the sum.

    Args:
        num_heads: H.
        shape: attention of this layer.
        parts: `qkv` (without v if the shape has no values), `out`, `q_norm`, `k_norm`, `feed`, and a norm for each of
            `NORMS`.
        moe: experts, whose router is a `ScaledRouter`.
        scalars_2: factor of decided rows, of open rows.
        eps: of all norms.
    """

    def __init__(
        self,
        num_heads: int,
        shape: AttentionShape,
        parts: Mapping[str, nn.Module],
        moe: MoE,
        scalars_2: Tensor,
        eps: float,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.shape = shape
        self.qkv, self.out = parts["qkv"], parts["out"]
        self.q_norm, self.k_norm = parts["q_norm"], parts["k_norm"]
        self.feed, self.moe = parts["feed"], moe
        self.norms = nn.ModuleDict({name: parts[name] for name in NORMS})
        self.scalars = nn.Parameter(scalars_2, requires_grad=False)
        self.eps = eps

    def forward(
        self, x_ND: Tensor, cos_N1K: Tensor, sin_N1K: Tensor, attend: Callable[..., Tensor], is_open_N: Tensor
    ) -> Tensor:
        """Maps [N, D] to [N, D]."""
        norms, moe = self.norms, self.moe
        x_ND = x_ND + norms["post"](self._attention(norms["input"](x_ND), cos_N1K, sin_N1K, attend))
        dense_ND = norms["dense_post"](self.feed(norms["dense"](x_ND)))
        routed_ND = norms["routed_post"](moe.mix(norms["routed"](x_ND), *moe.router(x_ND)))
        x_ND = x_ND + norms["feed_post"](dense_ND + routed_ND)
        return x_ND * self.scalars[is_open_N.long()][:, None]

    def _attention(self, x_ND: Tensor, cos_N1K: Tensor, sin_N1K: Tensor, attend: Callable[..., Tensor]) -> Tensor:
        num_q, num_kv = self.num_heads, self.shape.num_kv_heads
        heads = self.qkv(x_ND).unflatten(-1, (-1, self.shape.head_dim))
        q_NHK, k_NGK, *rest = heads.split([num_q, *[num_kv] * (1 + self.shape.has_values)], dim=1)
        v_NGK = _unit(rest[0] if rest else k_NGK, self.eps)
        qk_NXK = rotate(torch.cat((self.q_norm(q_NHK), self.k_norm(k_NGK)), dim=1), cos_N1K, sin_N1K)
        q_NHK, k_NGK = qk_NXK.split([num_q, num_kv], dim=1)
        return self.out(attend(q_NHK, k_NGK, v_NGK).flatten(1))


class SelfConditioning(nn.Module):
    """Mixes what the model said in the step before into the embeddings of an open window."""

    def __init__(self, pre_norm: RMSNorm, feed: Expert) -> None:
        super().__init__()
        self.pre_norm = pre_norm
        self.feed = feed

    def forward(self, x_WD: Tensor, said_WD: Tensor) -> Tensor:
        """Maps embeddings and expected embeddings (0 where nothing was said) to the rows fed to the layers."""
        return _unit(x_WD + self.feed(self.pre_norm(said_WD)), self.pre_norm.eps)


class DiffusionGemma(Transformer):
    """See the module.

    Args:
        config: the shape; `layers` holds one attention shape for each layer.
        embedding_VD: float32 table.
        blocks: one for each layer.
        norm: final norm.
        head: module mapping [R, D] to [R, V], before the cap.
        conditioning: see `SelfConditioning`.
        unused: tensors that no forward reads (the vision tower), left where they are and only read to be saved.
    """

    def __init__(
        self,
        config: ModelConfig,
        embedding_VD: Tensor,
        blocks: Sequence[GemmaBlock],
        norm: nn.Module,
        head: nn.Module,
        conditioning: SelfConditioning,
        unused: Mapping[str, Callable[[], Tensor]],
    ) -> None:
        super().__init__(config, embedding_VD, blocks, norm, head)
        self.conditioning = conditioning
        self.unused = dict(unused)

    def forward(self, ids_N: Tensor, positions_N: Tensor, attend: Attend, undecided: Undecided | None = None) -> Tensor:
        """Runs all layers; see `Transformer.forward`. Without `undecided` all rows are decided ones."""
        scale = self.config.hidden_size**0.5
        x_ND = functional.embedding(ids_N, self.embedding) * scale
        if undecided is None:
            return self.run(x_ND, positions_N, attend)
        said_ND = torch.zeros_like(x_ND)
        for start, logits_WV in undecided.said:
            said_ND[start : start + logits_WV.shape[0]] = self._expected_embedding(logits_WV) * scale
        is_open_N = undecided.is_open_N
        x_ND[is_open_N] = self.conditioning(x_ND[is_open_N], said_ND[is_open_N])
        return self._layers(x_ND, positions_N, attend, is_open_N)

    def run(self, x_ND: Tensor, positions_N: Tensor, attend: Attend) -> Tensor:
        """Runs all layers on input embeddings of decided rows."""
        return self._layers(x_ND, positions_N, attend, torch.zeros(x_ND.shape[0], dtype=torch.bool))

    def head(self, hidden_RD: Tensor) -> Tensor:
        """Capped logits [R, V] of the given hidden rows, float32."""
        logits_RV, cap = self.lm_head(hidden_RD), self.config.logit_cap
        return logits_RV if cap is None else by_rows(torch.tanh, logits_RV / cap) * cap

    def _layers(self, x_ND: Tensor, positions_N: Tensor, attend: Attend, is_open_N: Tensor) -> Tensor:
        angles: dict[AttentionShape, tuple[Tensor, Tensor]] = {}
        for index, (layer, shape) in enumerate(zip(self.layers, self.config.layers, strict=True)):
            turn = replace(shape, num_kv_heads=1, reach=None, has_values=True)
            if turn not in angles:
                angles[turn] = _angles(turn, positions_N)
            x_ND = layer(x_ND, *angles[turn], at_layer(attend, index), is_open_N)
        return self.norm(x_ND)

    def _expected_embedding(self, logits_WV: Tensor) -> Tensor:
        """softmax(logits) @ embedding, [W, D], a fixed number of rows at a time (see `TiledLinear`)."""
        padded = functional.pad(logits_WV, (0, 0, 0, -logits_WV.shape[0] % ROW_TILE))
        tiles = [tile.softmax(-1) @ self.embedding for tile in padded.split(ROW_TILE)]
        return torch.cat(tiles)[: logits_WV.shape[0]]


def _unit(x: Tensor, eps: float) -> Tensor:
    """RMS norm of the last axis, without a weight."""
    return functional.rms_norm(x, (x.shape[-1],), None, eps)


def _angles(shape: AttentionShape, positions_N: Tensor) -> tuple[Tensor, Tensor]:
    """The cos and signed sin of a layer's rotation, [N, 1, K] each; dims that are not rotated have angle 0."""
    half, turned = shape.head_dim // 2, shape.rotary_dim // 2
    inverse = shape.rope_theta ** (-torch.arange(turned, dtype=torch.float64) / half)
    angles_NK = positions_N.double()[:, None] * functional.pad(inverse, (0, half - turned))
    cos, sin = by_rows(torch.cos, angles_NK).float(), by_rows(torch.sin, angles_NK).float()
    return torch.cat((cos, cos), dim=-1)[:, None], torch.cat((-sin, sin), dim=-1)[:, None]


def build(
    source: TensorSource,
    config: ModelConfig,
    key_map: Mapping[str, tuple[str, ...]],
    linear: LinearFactory,
    *,
    unused: frozenset[str],
    redundant: frozenset[str],
) -> DiffusionGemma:
    """Builds the model from official tensors.

    Args:
        source: tensors under their official names, one for each expert.
        config: the shape.
        key_map: our parameter name -> official tensors stacked to make it.
        linear: how projections are kept.
        unused: official tensors that are kept in the files and saved again.
        redundant: official tensors that may be there and say nothing new.

    Raises:
        CheckpointError: tensors missing or left over, or of a wrong shape.
    """
    check_names(source, key_map, unused | redundant)
    parts = _GemmaParts(source, key_map, linear, config)
    hidden, width = config.hidden_size, config.intermediate_size
    embedding = parts.fetch("embedding", config.vocab_size, hidden)
    conditioning = SelfConditioning(parts.norm("conditioning.pre_norm"), parts.feed("conditioning.feed.", width))
    blocks = [parts.block(index, shape) for index, shape in enumerate(config.layers)]
    readers = {name: _reader(source, name) for name in sorted(unused)}
    norm, head = parts.norm("norm"), linear(embedding, None)
    return DiffusionGemma(config, embedding, blocks, norm, head, conditioning, readers).eval()


def _reader(source: TensorSource, name: str) -> Callable[[], Tensor]:
    return lambda: source.read(name)


class _GemmaParts(Parts):
    """Makes the modules."""

    def __init__(
        self, source: TensorSource, key_map: Mapping[str, tuple[str, ...]], linear: LinearFactory, config: ModelConfig
    ) -> None:
        super().__init__(source, key_map, linear)
        self._config = config

    def norm(self, name: str, width: int | None = None) -> RMSNorm:
        return RMSNorm(self.fetch(name, width or self._config.hidden_size), self._config.rms_norm_eps)

    def feed(self, at: str, width: int) -> Expert:
        hidden = self._config.hidden_size
        up = self.projection(at + "gate_up", 2 * width, hidden)
        return Expert(up, self.projection(at + "down", hidden, width), self._config.feed)

    def block(self, index: int, shape: AttentionShape) -> GemmaBlock:
        config, at, width = self._config, f"layers.{index}.", shape.head_dim
        assert config.moe is not None, "the family has experts in every layer"
        num_heads = config.num_heads + (1 + shape.has_values) * shape.num_kv_heads
        parts: dict[str, nn.Module] = {
            "qkv": self.projection(at + "qkv", num_heads * width, config.hidden_size),
            "out": self.projection(at + "out", config.hidden_size, config.num_heads * width),
            "q_norm": self.norm(at + "q_norm", width),
            "k_norm": self.norm(at + "k_norm", width),
            "feed": self.feed(at + "feed.", config.intermediate_size),
        }
        parts |= {name: self.norm(f"{at}norms.{name}") for name in NORMS}
        moe = self._experts(at + "moe.", config.moe)
        return GemmaBlock(config.num_heads, shape, parts, moe, self.fetch(at + "scalars", 2), config.rms_norm_eps)

    def _experts(self, at: str, moe: MoEConfig) -> MoE:
        hidden, num_experts = self._config.hidden_size, moe.num_experts
        router = ScaledRouter(
            Router(moe, self.fetch(at + "router.router.gate", num_experts, hidden), None),
            self.fetch(at + "router.scale", hidden),
            self.fetch(at + "router.expert_scale", num_experts),
            self._config.rms_norm_eps,
        )
        experts = [self.feed(f"{at}experts.{index}.", moe.expert_size) for index in range(num_experts)]
        return MoE(router, experts, None)


def export(model: Transformer, key_map: Mapping[str, tuple[str, ...]]) -> dict[str, Tensor]:
    """The official tensors of a model that `build` made, bit for bit, still with one for each expert.

    Raises:
        CheckpointError: the projections are kept in another form than float32.
    """
    assert isinstance(model, DiffusionGemma), "the family builds no other"
    config, tensors = model.config, {name: read() for name, read in model.unused.items()}
    for ours, names in key_map.items():
        value = parameter(model, ours).detach()
        widths = [value.shape[0] // len(names)] * len(names)
        if ours.endswith(".qkv"):
            shape = config.layers[int(ours.split(".")[1])]
            widths = [heads * shape.head_dim for heads in (config.num_heads, *[shape.num_kv_heads] * (len(names) - 1))]
        tensors |= {name: part.clone() for name, part in zip(names, value.split(widths), strict=True)}
    return tensors
