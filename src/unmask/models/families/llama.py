"""Llama, SmolLM2, Qwen2, Qwen2.5 and Qwen3: same stack, three switches (qkv bias, q/k norm, tied head)."""

from collections.abc import Mapping
from typing import Any

from unmask.core.errors import CheckpointError
from unmask.models.config import AttentionPattern, ModelConfig, Traits

ARCHITECTURES = (
    "LlamaForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
)


def build_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the official `config.json`.

    Raises:
        CheckpointError: a needed field is absent, or the checkpoint uses a feature the stack does not have.
    """
    architecture = raw["architectures"][0]
    try:
        heads = int(raw["num_attention_heads"])
        hidden = int(raw["hidden_size"])
        config = ModelConfig(
            vocab_size=int(raw["vocab_size"]),
            hidden_size=hidden,
            num_layers=int(raw["num_hidden_layers"]),
            num_heads=heads,
            num_kv_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=int(raw.get("head_dim") or hidden // heads),
            intermediate_size=int(raw["intermediate_size"]),
            rope_theta=float(_rope(raw)),
            rms_norm_eps=float(raw["rms_norm_eps"]),
            tied=bool(raw.get("tie_word_embeddings", False)),
            qkv_bias=architecture.startswith("Qwen2") or bool(raw.get("attention_bias", False)),
            qk_norm=architecture.startswith("Qwen3"),
            max_positions=int(raw.get("max_position_embeddings", 2048)),
        )
    except KeyError as error:
        raise CheckpointError(f"config.json has no field {error.args[0]!r}, which {architecture} needs") from error
    if not 1 <= config.max_positions <= 2**24 or not 1 <= config.num_layers <= 1024:
        raise CheckpointError("max_position_embeddings or num_hidden_layers makes no sense")
    if not (0 < config.rms_norm_eps < 1 and 0 < config.rope_theta < float("inf")):
        raise CheckpointError("rms_norm_eps or rope_theta makes no sense")
    if config.num_heads % config.num_kv_heads:
        raise CheckpointError(f"{config.num_heads} query heads are not a multiple of {config.num_kv_heads} kv heads")
    if raw.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"hidden_act {raw['hidden_act']!r} is not supported; use a checkpoint with 'silu'")
    if raw.get("mlp_bias"):
        raise CheckpointError("mlp_bias is not supported; use a checkpoint without feed-forward biases")
    if raw.get("use_sliding_window"):
        raise CheckpointError("use_sliding_window is not supported; use a checkpoint with full attention")
    return config


def _rope(raw: Mapping[str, Any]) -> float:
    """Returns the rotary base from either of the two official spellings; refuses scaled rotary embeddings."""
    parameters = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind != "default":
        raise CheckpointError(
            f"rotary scaling {kind!r} is not supported; use a checkpoint with plain rotary embeddings"
        )
    return float(raw.get("rope_theta", parameters.get("rope_theta", 10000.0)))


def build_traits(raw: Mapping[str, Any], config: ModelConfig) -> Traits:
    """Reads what decoding must know. A converted checkpoint carries it in `config.json` under "unmask"."""
    facts: Mapping[str, Any] = raw.get("unmask", {})
    if not isinstance(facts, Mapping):
        raise CheckpointError("'unmask' in config.json makes no sense: it must be an object")
    unknown = sorted(set(facts) - {"mask_token_id", "attention", "block_size", "logit_shift"})
    if unknown:
        raise CheckpointError(f"config.json has an unknown fact {unknown[0]!r} under 'unmask'")
    if facts.get("attention", "causal") not in {pattern.value for pattern in AttentionPattern}:
        known = ", ".join(pattern.value for pattern in AttentionPattern)
        raise CheckpointError(f"attention {facts['attention']!r} makes no sense (known: {known})")
    for name in ("mask_token_id", "block_size", "logit_shift"):
        if not isinstance(facts.get(name, 0), int) or isinstance(facts.get(name), bool):
            raise CheckpointError(f"{name} under 'unmask' in config.json must be an integer, got {facts[name]!r}")
    eos = raw.get("eos_token_id")
    eos_ids = frozenset(eos if isinstance(eos, list) else [] if eos is None else [eos])
    return Traits(
        mask_token_id=facts.get("mask_token_id"),
        attention=AttentionPattern(facts.get("attention", AttentionPattern.CAUSAL)),
        block_size=int(facts.get("block_size", 1)),
        logit_shift=int(facts.get("logit_shift", 0)),
        eos_ids=eos_ids,
        max_positions=config.max_positions,
        vocab_size=config.vocab_size,
    )


def key_map(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """Our parameter name -> the official tensors stacked along the output axis to make it. Strict both ways."""
    names: dict[str, tuple[str, ...]] = {"embedding": ("model.embed_tokens.weight",), "norm": ("model.norm.weight",)}
    if not config.tied:
        names["head"] = ("lm_head.weight",)
    for index in range(config.num_layers):
        ours, official = f"layers.{index}.", f"model.layers.{index}."
        attention, feed = official + "self_attn.", official + "mlp."
        names[ours + "input_norm"] = (official + "input_layernorm.weight",)
        names[ours + "post_norm"] = (official + "post_attention_layernorm.weight",)
        names[ours + "qkv"] = tuple(f"{attention}{part}_proj.weight" for part in "qkv")
        names[ours + "out"] = (attention + "o_proj.weight",)
        names[ours + "gate_up"] = (feed + "gate_proj.weight", feed + "up_proj.weight")
        names[ours + "down"] = (feed + "down_proj.weight",)
        if config.qkv_bias:
            names[ours + "qkv.bias"] = tuple(f"{attention}{part}_proj.bias" for part in "qkv")
        if config.qk_norm:
            names[ours + "q_norm"] = (attention + "q_norm.weight",)
            names[ours + "k_norm"] = (attention + "k_norm.weight",)
    return names
