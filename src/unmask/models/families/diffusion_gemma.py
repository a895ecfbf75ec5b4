"""DiffusionGemma-26B-A4B: Gemma 4's layers as encoder and decoder with shared weights, denoising uniform noise.

The tied weights lie under `model.decoder.`; of the encoder only the layers' scalars are stored. The vision tower is
accounted for by its prefix and left in the files: only text is served.
Source: huggingface/transformers 5.24.0, `models/diffusion_gemma`; google/diffusiongemma-26B-A4B-it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from unmask.core.errors import CheckpointError
from unmask.models.config import (
    AttentionPattern,
    AttentionShape,
    FeedKind,
    ModelConfig,
    MoEConfig,
    NoiseKind,
    PositionKind,
    Traits,
)
from unmask.models.diffusion_gemma import NORMS, DiffusionGemma, build, export
from unmask.models.facts import check_shape, naming_lost_fields, read_traits, refuse
from unmask.models.linear import LinearFactory
from unmask.models.source import Place, RelaidSource, SafetensorsSource, TensorSource
from unmask.models.transformer import Transformer

ARCHITECTURES = ("DiffusionGemmaForBlockDiffusion",)

_VISION = ("model.encoder.vision_tower.", "model.encoder.embed_vision.")
_TIED = ("model.decoder.embed_tokens.", "model.decoder.norm.", "model.decoder.layers.")
_PACKED = ("gate_up_proj", "down_proj")
_OFFICIAL_NORMS = dict(
    zip(
        NORMS,
        (
            "input_layernorm",
            "post_attention_layernorm",
            "pre_feedforward_layernorm",
            "post_feedforward_layernorm_1",
            "pre_feedforward_layernorm_2",
            "post_feedforward_layernorm_2",
            "post_feedforward_layernorm",
        ),
        strict=True,
    )
)


def build_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the official `config.json`.

    Raises:
        CheckpointError: a needed field is absent, or the checkpoint uses a switch that no published one does.
    """
    with naming_lost_fields(raw):
        text: Mapping[str, Any] = raw["text_config"]
        refuse(text, "attention_bias", instead="without it")
        refuse(text, "use_bidirectional_attention", "vision", instead="whose prompt is read causally")
        refuse(text, "hidden_activation", "gelu_pytorch_tanh", instead="with 'gelu_pytorch_tanh'")
        if not (raw.get("tie_word_embeddings", True) and text.get("tie_word_embeddings", True)):
            raise CheckpointError("tie_word_embeddings false is not supported; use a checkpoint with tied weights")
        kinds = text["layer_types"]
        layers = tuple(_attention(text, index, kind) for index, kind in enumerate(kinds))
        config = ModelConfig(
            vocab_size=int(text["vocab_size"]),
            hidden_size=int(text["hidden_size"]),
            num_layers=int(text["num_hidden_layers"]),
            num_heads=int(text["num_attention_heads"]),
            num_kv_heads=int(text["num_key_value_heads"]),
            head_dim=int(text["head_dim"]),
            intermediate_size=int(text["intermediate_size"]),
            rope_theta=layers[0].rope_theta,
            rms_norm_eps=float(text["rms_norm_eps"]),
            tied=True,
            qkv_bias=False,
            qk_norm=True,
            max_positions=int(text["max_position_embeddings"]),
            positions=PositionKind.PER_LAYER,
            feed=FeedKind.GEGLU,
            moe=MoEConfig(
                num_experts=int(text["num_experts"]),
                num_chosen=int(text["top_k_experts"]),
                expert_size=int(text["moe_intermediate_size"]),
                normalise=True,
            ),
            layers=layers,
            logit_cap=float(text.get("final_logit_softcapping", 30.0)),
        )
    if len(layers) != config.num_layers:
        raise CheckpointError(f"layer_types has {len(layers)} entries, but num_hidden_layers is {config.num_layers}")
    check_shape(config)
    return config


def _attention(text: Mapping[str, Any], index: int, kind: str) -> AttentionShape:
    """Attention of one layer: full layers have wider heads, fewer of them, and no values of their own."""
    if kind not in ("sliding_attention", "full_attention"):
        raise CheckpointError(f"layer type {kind!r} is not supported (known: sliding_attention, full_attention)")
    is_full = kind == "full_attention"
    own: Mapping[str, Any] = (text.get("per_layer_config") or {}).get(str(index), {})
    if is_full and "per_layer_config" not in text:  # the older spelling
        own = {"head_dim": text["global_head_dim"], "num_key_value_heads": text.get("num_global_key_value_heads")}
    head_dim = int(own.get("head_dim") or text["head_dim"])
    rope: Mapping[str, Any] = text["rope_parameters"][kind]
    share = float(rope.get("partial_rotary_factor", 1.0))
    if rope["rope_type"] not in ("default", "proportional") or rope.get("factor", 1.0) != 1.0:
        raise CheckpointError(f"rotary scaling {rope['rope_type']!r} is not supported; use a published checkpoint")
    if rope["rope_type"] == "default" and share != 1.0:
        raise CheckpointError(f"partial_rotary_factor {share} needs rope_type 'proportional'")
    return AttentionShape(
        num_kv_heads=int(own.get("num_key_value_heads") or text["num_key_value_heads"]),
        head_dim=head_dim,
        rope_theta=float(rope["rope_theta"]),
        rotary_dim=2 * int(share * head_dim // 2),
        reach=None if is_full else int(text["sliding_window"]),
        has_values=not is_full,
    )


def build_traits(raw: Mapping[str, Any], config: ModelConfig) -> Traits:
    """Causal context, a window of uniform noise; there is no mask token."""
    with naming_lost_fields(raw):
        block_size = int(raw["canvas_length"])
    eos = raw["text_config"].get("eos_token_id")
    traits = read_traits(
        {**raw, "eos_token_id": eos}, config, attention=AttentionPattern.CAUSAL_CONTEXT, block_size=block_size
    )
    return replace(traits, noise=NoiseKind.UNIFORM)


def key_map(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """Our parameter name -> the official tensors, with one name for each expert (see `view`)."""
    assert config.moe is not None, "set by build_config"
    names = {
        "embedding": ("model.decoder.embed_tokens.weight",),
        "norm": ("model.decoder.norm.weight",),
        "conditioning.pre_norm": ("model.decoder.self_conditioning.pre_norm.weight",),
    }
    names |= _feed_names("conditioning.feed.", "model.decoder.self_conditioning.")
    for index, shape in enumerate(config.layers):
        ours, official = f"layers.{index}.", f"model.decoder.layers.{index}."
        projections = ("q", "k", "v") if shape.has_values else ("q", "k")
        attention = official + "self_attn."
        names[ours + "qkv"] = tuple(f"{attention}{letter}_proj.weight" for letter in projections)
        names[ours + "out"] = (attention + "o_proj.weight",)
        names |= {ours + norm: (f"{attention}{norm}.weight",) for norm in ("q_norm", "k_norm")}
        names |= {f"{ours}norms.{norm}": (f"{official}{name}.weight",) for norm, name in _OFFICIAL_NORMS.items()}
        names |= _feed_names(ours + "feed.", official + "mlp.")
        names[ours + "moe.router.router.gate"] = (official + "router.proj.weight",)
        names[ours + "moe.router.scale"] = (official + "router.scale",)
        names[ours + "moe.router.expert_scale"] = (official + "router.per_expert_scale",)
        for expert in range(config.moe.num_experts):
            names[f"{ours}moe.experts.{expert}.gate_up"] = (f"{official}experts.gate_up_proj.{expert}",)
            names[f"{ours}moe.experts.{expert}.down"] = (f"{official}experts.down_proj.{expert}",)
        scalar = f"layers.{index}.layer_scalar"
        names[ours + "scalars"] = (f"model.encoder.language_model.{scalar}", f"model.decoder.{scalar}")
    return names


def _feed_names(ours: str, official: str) -> dict[str, tuple[str, ...]]:
    gate_up = (official + "gate_proj.weight", official + "up_proj.weight")
    return {ours + "gate_up": gate_up, ours + "down": (official + "down_proj.weight",)}


def view(files: SafetensorsSource, config: ModelConfig) -> RelaidSource:
    """One name for each expert, over tensors that hold all experts of a layer.

    Raises:
        CheckpointError: such a tensor holds another number of experts.
    """
    assert config.moe is not None, "set by build_config"
    places: dict[str, Place] = {}
    for stored in files.names():
        if not stored.endswith(tuple(f".experts.{part}" for part in _PACKED)):
            continue
        shape = files.shape(stored)
        if len(shape) != 3 or shape[0] != config.moe.num_experts:
            raise CheckpointError(f"{stored!r} {shape} does not hold {config.moe.num_experts} experts")
        places |= {f"{stored}.{expert}": Place(name=stored, entry=expert) for expert in range(shape[0])}
    return RelaidSource(files, places)


def build_model(source: TensorSource, config: ModelConfig, linear: LinearFactory) -> DiffusionGemma:
    """Builds the model. Copies of the tied weights may be in the files and are not read."""
    names = key_map(config)
    tied = {name for official in names.values() for name in official if name.startswith(_TIED)}
    copies = {name.replace("decoder", "encoder.language_model", 1) for name in tied}
    unused = frozenset(name for name in source.names() if name.startswith(_VISION))
    return build(source, config, names, linear, unused=unused, redundant=frozenset(copies | {"lm_head.weight"}))


def export_model(model: Transformer) -> dict[str, Tensor]:
    """The official tensors, the vision tower's too."""
    tensors = export(model, key_map(model.config))
    assert model.config.moe is not None, "set by build_config"
    for index in range(model.config.num_layers):
        for part in _PACKED:
            packed = f"model.decoder.layers.{index}.experts.{part}"
            experts = range(model.config.moe.num_experts)
            tensors[packed] = torch.stack([tensors.pop(f"{packed}.{expert}") for expert in experts])
    return tensors
