"""The diffusion transformer of MDLM and BD3-LM: LayerNorm, GELU, and a modulation of every block by the noise level.

The released models were trained without time conditioning: they are always told a noise level of 0, so a modulation
is a constant (not zero), computed once when the model is built. What is left are blocks for `Transformer`: full
attention makes it MDLM, block-causal attention BD3-LM.

Source: adaLN, arXiv 2212.09748 section 3.2; MDLM, arXiv 2406.07524 appendix; BD3-LM, arXiv 2503.09573 section 3.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from unmask.core.errors import CheckpointError
from unmask.models.config import ModelConfig
from unmask.models.linear import LinearFactory, TiledLinear
from unmask.models.parts import Parts, check_names
from unmask.models.source import TensorSource
from unmask.models.transformer import Transformer, rotate

# Shape legend: N rows, D hidden, H heads, K head width, X = 2 * H, C code of the noise level, F feed-forward,
# I input and O output width, V vocabulary, R rows read.

SIGMA_FREQUENCIES = 128
"""Frequencies in the sinusoid of the noise level; the first matrix after it has twice as many columns."""


class CentredNorm(nn.Module):
    """(x - mean) / sqrt(variance + eps) * weight, per row: a layer norm without bias."""

    def __init__(self, weight_D: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight_D, requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalises the last axis."""
        return functional.layer_norm(x, (x.shape[-1],), self.weight, None, self.eps)


class NoiseCode(nn.Module):
    """What the model is told about the noise level: a sinusoid through two layers."""

    def __init__(self, inner: nn.Module, outer: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.outer = outer

    def forward(self, sigma: float) -> Tensor:
        """[1, C]."""
        frequencies = torch.pow(10000.0, -torch.arange(SIGMA_FREQUENCIES) / SIGMA_FREQUENCIES)
        angles = sigma * frequencies[None]
        hidden = functional.silu(self.inner(torch.cat((angles.cos(), angles.sin()), dim=-1)))
        return functional.silu(self.outer(hidden))


def modulate(x_ND: Tensor, shift_1D: Tensor, scale_1D: Tensor) -> Tensor:
    """Returns x * (1 + scale) + shift."""
    return x_ND * (1 + scale_1D) + shift_1D


class DiTBlock(nn.Module):
    """Attention and feed-forward, each shifted and scaled after its norm, and gated.

    Args:
        num_heads: H.
        parts: `norm1`, `qkv`, `out`, `norm2`, `up`, `down`, and `modulation`, which maps the noise code to shift, scale
            and gate of the attention, then of the feed-forward.
        code_1C: the noise code, the same in all forwards.
    """

    def __init__(self, num_heads: int, parts: Mapping[str, nn.Module], code_1C: Tensor) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm1, self.norm2 = parts["norm1"], parts["norm2"]
        self.qkv, self.out = parts["qkv"], parts["out"]
        self.up, self.down = parts["up"], parts["down"]
        self.modulation = parts["modulation"]
        self.constants_61D: Tensor
        self.register_buffer("constants_61D", torch.stack(self.modulation(code_1C).chunk(6, dim=-1)), persistent=False)

    def forward(self, x_ND: Tensor, cos_N1K: Tensor, sin_N1K: Tensor, attend: Callable[..., Tensor]) -> Tensor:
        """Maps [N, D] to [N, D]."""
        shift1, scale1, gate1, shift2, scale2, gate2 = self.constants_61D.unbind()
        heads = self.qkv(modulate(self.norm1(x_ND), shift1, scale1)).unflatten(-1, (3 * self.num_heads, -1))
        qk_NXK, v_NHK = heads.split([2 * self.num_heads, self.num_heads], dim=1)
        q_NHK, k_NHK = rotate(qk_NXK, cos_N1K, sin_N1K).chunk(2, dim=1)
        x_ND = x_ND + gate1 * self.out(attend(q_NHK, k_NHK, v_NHK).flatten(1))
        up_NF = self.up(modulate(self.norm2(x_ND), shift2, scale2))
        return x_ND + gate2 * self.down(functional.gelu(up_NF, approximate="tanh"))


class ModulatedNorm(CentredNorm):
    """The final norm, shifted and scaled."""

    def __init__(self, weight_D: Tensor, eps: float, modulation: nn.Module, code_1C: Tensor) -> None:
        super().__init__(weight_D, eps)
        self.modulation = modulation
        self.constants_21D: Tensor
        self.register_buffer("constants_21D", torch.stack(modulation(code_1C).chunk(2, dim=-1)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalises the last axis and modulates it."""
        shift_1D, scale_1D = self.constants_21D.unbind()
        return modulate(super().forward(x), shift_1D, scale_1D)


class DiT(Transformer):
    """A `Transformer` of DiT blocks that keeps what a forward does not need but a checkpoint holds.

    Args:
        config: the shape; `rms_norm_eps` is the eps of the layer norms.
        embedding_VD: float32 table.
        blocks: one `DiTBlock` per layer.
        norm: final norm.
        head: module mapping [R, D] to [R, V].
        noise_code: where the blocks' constants come from.
        kept: further tensors, by name (letters, digits and underscores).
    """

    def __init__(
        self,
        config: ModelConfig,
        embedding_VD: Tensor,
        blocks: Sequence[DiTBlock],
        norm: ModulatedNorm,
        head: nn.Module,
        noise_code: NoiseCode,
        kept: Mapping[str, Tensor],
    ) -> None:
        super().__init__(config, embedding_VD, blocks, norm, head)
        self.noise_code = noise_code
        self.kept = nn.ParameterDict({name: nn.Parameter(value, requires_grad=False) for name, value in kept.items()})


def build_dit(
    source: TensorSource,
    config: ModelConfig,
    key_map: Mapping[str, tuple[str, ...]],
    linear: LinearFactory,
    *,
    optional: frozenset[str] = frozenset(),
    sigma: float = 0.0,
) -> DiT:
    """Builds the model from official tensors.

    The matrices that make the modulations stay float32 and frozen whatever `linear` is: they are used once.

    Args:
        source: tensors under their official names.
        config: the shape.
        key_map: our parameter name -> the one official tensor of it.
        linear: how the projections of the rows are kept.
        optional: our names of scalars that a checkpoint may lack.
        sigma: the noise level the model is told; 0 for models without time conditioning.

    Raises:
        CheckpointError: tensors missing or left over, or of a wrong shape.
    """
    present = {ours: names for ours, names in key_map.items() if ours not in optional or names[0] in source.names()}
    check_names(source, present)
    parts = Parts(source, present, linear)
    hidden, feed, eps = config.hidden_size, config.intermediate_size, config.rms_norm_eps
    width_C = source.read(*present["noise_code.outer"]).shape[0]
    with torch.no_grad():
        noise_code = NoiseCode(
            parts.projection("noise_code.inner", width_C, 2 * SIGMA_FREQUENCIES, TiledLinear),
            parts.projection("noise_code.outer", width_C, width_C, TiledLinear),
        )
        code_1C = noise_code(sigma)
        blocks: list[DiTBlock] = []
        for index in range(config.num_layers):
            at = f"layers.{index}."
            modules = {
                "norm1": CentredNorm(parts.fetch(at + "norm1", hidden), eps),
                "qkv": parts.projection(at + "qkv", 3 * hidden, hidden),
                "out": parts.projection(at + "out", hidden, hidden),
                "norm2": CentredNorm(parts.fetch(at + "norm2", hidden), eps),
                "up": parts.projection(at + "up", feed, hidden),
                "down": parts.projection(at + "down", hidden, feed),
                "modulation": parts.projection(at + "modulation", 6 * hidden, width_C, TiledLinear),
            }
            blocks.append(DiTBlock(config.num_heads, modules, code_1C))
        norm_modulation = parts.projection("norm.modulation", 2 * hidden, width_C, TiledLinear)
        norm = ModulatedNorm(parts.fetch("norm", hidden), eps, norm_modulation, code_1C)
    model = DiT(
        config,
        parts.fetch("embedding", config.vocab_size, hidden),
        blocks,
        norm,
        parts.projection("head", config.vocab_size, hidden),
        noise_code,
        _kept(parts, present, config),
    )
    return model.eval()


def _kept(parts: Parts, present: Mapping[str, tuple[str, ...]], config: ModelConfig) -> dict[str, Tensor]:
    """The tensors beside the weights. The rotary frequencies must be those the stack computes by itself."""
    frequencies = parts.fetch("kept.inv_freq", config.head_dim // 2)
    wanted = config.rope_theta ** (-torch.arange(0, config.head_dim, 2) / config.head_dim)
    if not torch.allclose(frequencies, wanted, rtol=1e-2, atol=0):
        raise CheckpointError(
            f"{present['kept.inv_freq'][0]!r} holds other rotary frequencies than those of base {config.rope_theta:g}"
        )
    scalars = [ours for ours in present if ours.startswith("kept.") and ours != "kept.inv_freq"]
    return {"inv_freq": frequencies} | {ours.removeprefix("kept."): parts.fetch(ours) for ours in scalars}


def export_dit(model: Transformer, key_map: Mapping[str, tuple[str, ...]]) -> dict[str, Tensor]:
    """The official tensors of a model that `build_dit` made, bit for bit.

    Raises:
        CheckpointError: the projections are kept in another form than float32.
    """
    tensors: dict[str, Tensor] = {}
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for ours, (official,) in key_map.items():
        path = ours.replace("head", "lm_head", 1) if ours.split(".")[0] == "head" else ours
        value = parameters.get(path, parameters.get(f"{path}.weight"))
        if value is not None:
            tensors[official] = value.detach().clone()
        elif not path.startswith("kept."):
            raise CheckpointError(f"{official!r} is not kept in float32; load the checkpoint with precision 'fp32'")
    return tensors


def subs_log_probs(logits_RV: Tensor, ids_R: Tensor, mask_token_id: int) -> Tensor:
    """Log-probabilities of the clean token under the SUBS parameterisation of masked diffusion.

    A clean token is never the mask, and a position that is not masked any more keeps its token.

    Args:
        logits_RV: float32, raw output of the model.
        ids_R: int64, what each row was fed.
        mask_token_id: the id that stands for an undecided position.

    Returns:
        float32 [R, V]; -inf where impossible.

    Source: MDLM, arXiv 2406.07524 section 3.2.3.
    Departs from the source: -inf instead of -1e6, so that impossible means impossible.
    """
    mask = torch.tensor([mask_token_id], device=logits_RV.device)
    log_probs_RV = logits_RV.index_fill(-1, mask, -torch.inf).log_softmax(-1)
    carried_RV = torch.full_like(log_probs_RV, -torch.inf).scatter(-1, ids_R[:, None], 0.0)
    return torch.where((ids_R == mask_token_id)[:, None], log_probs_RV, carried_RV)
