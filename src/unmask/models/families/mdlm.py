"""MDLM and BD3-LM: the diffusion transformer over GPT-2's vocabulary with the mask as its last id.

Both have the same tensors; MDLM sees in both directions, BD3-LM by blocks. Neither `config.json` names the special
ids: the mask is the last id of the vocabulary and GPT-2's <|endoftext|>, which begins and ends texts, the one before.
Source: kuleshov-group/mdlm, kuleshov-group/bd3lms.
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from unmask.core.errors import CheckpointError
from unmask.models.config import AttentionPattern, FeedKind, ModelConfig, NormKind, Traits
from unmask.models.dit import DiT, build_dit, export_dit
from unmask.models.linear import LinearFactory
from unmask.models.source import TensorSource
from unmask.models.transformer import Transformer

ARCHITECTURES = ("MDLM",)
BLOCK_ARCHITECTURES = ("BD3LM",)

_MAX_WINDOW = 256
"""Most positions that are denoised together on this engine unless the whole canvas is."""
_OPTIONAL = frozenset({"kept.sampling_eps_min", "kept.sampling_eps_max"})
"""Range of training's noise levels, stored by checkpoints trained with a clipped schedule; decoding does not use it."""


def build_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the official `config.json`.

    Raises:
        CheckpointError: a needed field is absent, or the checkpoint needs what decoding does not offer.
    """
    try:
        hidden, heads = int(raw["hidden_dim"]), int(raw["n_heads"])
        config = ModelConfig(
            vocab_size=int(raw["vocab_size"]),
            hidden_size=hidden,
            num_layers=int(raw["n_blocks"]),
            num_heads=heads,
            num_kv_heads=heads,
            head_dim=hidden // heads,
            intermediate_size=4 * hidden,
            rope_theta=10000.0,
            rms_norm_eps=1e-5,
            tied=False,
            qkv_bias=False,
            qk_norm=False,
            max_positions=int(raw["model_length"]),
            norm=NormKind.LAYER,
            feed=FeedKind.GELU_TANH,
            feed_bias=True,
        )
    except KeyError as error:
        raise CheckpointError(f"config.json has no field {error.args[0]!r}, which this family needs") from error
    if not 1 <= config.max_positions <= 2**24 or not 1 <= config.num_layers <= 1024 or config.vocab_size < 3:
        raise CheckpointError("model_length, n_blocks or vocab_size makes no sense")
    if config.hidden_size % (2 * config.num_heads):
        raise CheckpointError(f"hidden_dim {hidden} is not an even multiple of n_heads {heads}")
    if raw.get("time_conditioning", False):
        raise CheckpointError(
            "time_conditioning is not supported: no decoding rule tells the model the time; "
            "use a checkpoint trained without it"
        )
    if raw.get("causal", False) or not raw.get("adaln", True):
        raise CheckpointError("this is an autoregressive baseline (causal, or without adaln), not a diffusion model")
    return config


def build_traits(raw: Mapping[str, Any], config: ModelConfig) -> Traits:
    """What decoding must know. A BD3-LM with one block for the whole context sees in both directions."""
    size = int(raw.get("block_size", config.max_positions))
    whole = size >= config.max_positions
    return Traits(
        mask_token_id=config.vocab_size - 1,
        attention=AttentionPattern.BIDIRECTIONAL if whole else AttentionPattern.BLOCK_CAUSAL,
        block_size=min(size, config.max_positions, _MAX_WINDOW) if whole else size,
        logit_shift=0,
        eos_ids=frozenset([config.vocab_size - 2]),
        max_positions=config.max_positions,
        vocab_size=config.vocab_size,
    )


def key_map(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """Our parameter name -> the official tensor of it."""
    names = {
        "embedding": "vocab_embed.embedding",
        "kept.inv_freq": "rotary_emb.inv_freq",
        "noise_code.inner": "sigma_map.mlp.0.weight",
        "noise_code.inner.bias": "sigma_map.mlp.0.bias",
        "noise_code.outer": "sigma_map.mlp.2.weight",
        "noise_code.outer.bias": "sigma_map.mlp.2.bias",
        "norm": "output_layer.norm_final.weight",
        "norm.modulation": "output_layer.adaLN_modulation.weight",
        "norm.modulation.bias": "output_layer.adaLN_modulation.bias",
        "head": "output_layer.linear.weight",
        "head.bias": "output_layer.linear.bias",
    }
    for index in range(config.num_layers):
        ours, official = f"layers.{index}.", f"blocks.{index}."
        names |= {
            ours + "norm1": official + "norm1.weight",
            ours + "qkv": official + "attn_qkv.weight",
            ours + "out": official + "attn_out.weight",
            ours + "norm2": official + "norm2.weight",
            ours + "up": official + "mlp.0.weight",
            ours + "up.bias": official + "mlp.0.bias",
            ours + "down": official + "mlp.2.weight",
            ours + "down.bias": official + "mlp.2.bias",
            ours + "modulation": official + "adaLN_modulation.weight",
            ours + "modulation.bias": official + "adaLN_modulation.bias",
        }
    return {ours: (f"backbone.{official}",) for ours, official in names.items()}


def block_key_map(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """The same for BD3-LM, whose checkpoints may hold two scalars more."""
    return key_map(config) | {ours: (ours.removeprefix("kept."),) for ours in sorted(_OPTIONAL)}


def build(source: TensorSource, config: ModelConfig, linear: LinearFactory) -> DiT:
    """Builds an MDLM."""
    return build_dit(source, config, key_map(config), linear)


def build_block(source: TensorSource, config: ModelConfig, linear: LinearFactory) -> DiT:
    """Builds a BD3-LM."""
    return build_dit(source, config, block_key_map(config), linear, optional=_OPTIONAL)


def export(model: Transformer) -> dict[str, Tensor]:
    """The official tensors of either."""
    return export_dit(model, block_key_map(model.config))
