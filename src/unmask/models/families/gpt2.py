"""GPT-2: LayerNorm, trained positions, an ungated feed-forward, biases everywhere, weights stored as (in, out).

Source: the gpt2 family of the Hugging Face hub.
"""

from collections.abc import Mapping
from typing import Any

from unmask.core.errors import CheckpointError
from unmask.models.config import AttentionPattern, FeedKind, ModelConfig, NormKind, PositionKind, Traits
from unmask.models.facts import check_shape, naming_lost_fields, read_traits, refuse
from unmask.models.source import Place, RelaidSource, SafetensorsSource

ARCHITECTURES = ("GPT2LMHeadModel",)
TRANSPOSED = frozenset({"qkv", "out", "gate_up", "down"})
"""Our parameters whose official weights are (in, out)."""

_TANH_GELUS = ("gelu_new", "gelu_pytorch_tanh")


def build_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the official `config.json`.

    Raises:
        CheckpointError: a needed field is absent, or the checkpoint uses a switch that no published one does.
    """
    with naming_lost_fields(raw):
        hidden, heads = int(raw["n_embd"]), int(raw["n_head"])
        config = ModelConfig(
            vocab_size=int(raw["vocab_size"]),
            hidden_size=hidden,
            num_layers=int(raw["n_layer"]),
            num_heads=heads,
            num_kv_heads=heads,
            head_dim=hidden // heads,
            intermediate_size=int(raw.get("n_inner") or 4 * hidden),
            rope_theta=1.0,  # nothing is rotated
            rms_norm_eps=float(raw["layer_norm_epsilon"]),
            tied=bool(raw.get("tie_word_embeddings", True)),
            qkv_bias=True,
            qk_norm=False,
            max_positions=int(raw["n_positions"]),
            norm=NormKind.LAYER,
            positions=PositionKind.LEARNED,
            feed=FeedKind.GELU_TANH,
            out_bias=True,
            feed_bias=True,
        )
    check_shape(config)
    activation = raw.get("activation_function", "gelu_new")
    if activation not in _TANH_GELUS:
        raise CheckpointError(f"activation_function {activation!r} is not supported; use a checkpoint with 'gelu_new'")
    for field in ("scale_attn_by_inverse_layer_idx", "add_cross_attention"):
        refuse(raw, field, instead="without it")
    if not raw.get("scale_attn_weights", True):
        raise CheckpointError("scale_attn_weights false is not supported; use a checkpoint with true")
    return config


def build_traits(raw: Mapping[str, Any], config: ModelConfig) -> Traits:
    """A plain AR model; a converted checkpoint carries its facts in `config.json` under "unmask"."""
    return read_traits(raw, config, attention=AttentionPattern.CAUSAL, block_size=1)


def key_map(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """Our parameter name -> the official tensors. q, k and v lie fused in the files as well."""
    names = {"embedding": ("transformer.wte.weight",)} | stack_names(config, "transformer.")
    return names if config.tied else names | {"head": ("lm_head.weight",)}


def stack_names(config: ModelConfig, prefix: str) -> dict[str, tuple[str, ...]]:
    """Names of everything between embedding and head."""
    names: dict[str, tuple[str, ...]] = {"positions": (prefix + "wpe.weight",)}
    modules = {"norm": prefix + "ln_f"}
    for index in range(config.num_layers):
        ours, official = f"layers.{index}.", f"{prefix}h.{index}."
        modules[ours + "input_norm"] = official + "ln_1"
        modules[ours + "qkv"] = official + "attn.c_attn"
        modules[ours + "out"] = official + "attn.c_proj"
        modules[ours + "post_norm"] = official + "ln_2"
        modules[ours + "gate_up"] = official + "mlp.c_fc"
        modules[ours + "down"] = official + "mlp.c_proj"
    for ours, official in modules.items():
        names[ours] = (official + ".weight",)
        names[ours + ".bias"] = (official + ".bias",)
    return names


def redundant(config: ModelConfig, prefix: str = "transformer.") -> frozenset[str]:
    """Buffers with the causal mask, which files of old versions of transformers hold."""
    buffers = ("attn.bias", "attn.masked_bias")
    return frozenset(f"{prefix}h.{index}.{name}" for index in range(config.num_layers) for name in buffers)


def view(files: SafetensorsSource, _config: ModelConfig) -> RelaidSource:
    """Official names over the first published files, which lack the prefix `transformer.`."""
    is_bare = "wte.weight" in files.names()
    bare = [name for name in files.names() if is_bare and name != "lm_head.weight"]
    return RelaidSource(files, {f"transformer.{name}": Place(name=name) for name in bare})
