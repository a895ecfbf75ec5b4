"""Llama, SmolLM2, Qwen2, Qwen2.5, Qwen3 and Qwen3-MoE: same stack, a few switches (biases, q/k norm, experts)."""

from collections.abc import Mapping
from typing import Any

from unmask.models.config import AttentionPattern, ModelConfig, MoEConfig, Traits
from unmask.models.facts import llama_shape, naming_lost_fields, read_traits

ARCHITECTURES = (
    "LlamaForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
)


def build_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the official `config.json`.

    Raises:
        CheckpointError: a needed field is absent, or the checkpoint uses a feature the stack does not have.
    """
    architecture = raw["architectures"][0]
    is_qwen2 = "Qwen2" in architecture
    return llama_shape(
        raw,
        qkv_bias=is_qwen2 or bool(raw.get("attention_bias", False)),
        qk_norm="Qwen3" in architecture,
        out_bias=not is_qwen2 and bool(raw.get("attention_bias", False)),
        moe=qwen3_experts(raw) if architecture == "Qwen3MoeForCausalLM" else None,
    )


def qwen3_experts(raw: Mapping[str, Any]) -> MoEConfig:
    """Reads the fields of Qwen3-MoE: softmax scores, no shared expert.

    Raises:
        CheckpointError: a needed field is absent.
    """
    with naming_lost_fields(raw):
        step, kept_dense = int(raw.get("decoder_sparse_step", 1)), set(raw.get("mlp_only_layers") or ())
        layers = range(int(raw["num_hidden_layers"]))
        return MoEConfig(
            num_experts=int(raw.get("num_local_experts") or raw["num_experts"]),  # the newer spelling first
            num_chosen=int(raw["num_experts_per_tok"]),
            expert_size=int(raw["moe_intermediate_size"]),
            dense_layers=frozenset(index for index in layers if index in kept_dense or (index + 1) % step),
            normalise=bool(raw.get("norm_topk_prob", False)),
        )


def build_traits(raw: Mapping[str, Any], config: ModelConfig) -> Traits:
    """A plain AR model; a converted checkpoint carries its facts in `config.json` under "unmask"."""
    return read_traits(raw, config, attention=AttentionPattern.CAUSAL, block_size=1)


def redundant(config: ModelConfig) -> frozenset[str]:
    """Rotary frequencies that files of old versions of transformers hold."""
    return frozenset(f"model.layers.{index}.self_attn.rotary_emb.inv_freq" for index in range(config.num_layers))


def key_map(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """Our parameter name -> the official tensors stacked along the output axis to make it. Strict both ways."""
    names: dict[str, tuple[str, ...]] = {"embedding": ("model.embed_tokens.weight",), "norm": ("model.norm.weight",)}
    if not config.tied:
        names["head"] = ("lm_head.weight",)
    for index in range(config.num_layers):
        ours, official = f"layers.{index}.", f"model.layers.{index}."
        attention = official + "self_attn."
        names[ours + "input_norm"] = (official + "input_layernorm.weight",)
        names[ours + "post_norm"] = (official + "post_attention_layernorm.weight",)
        names[ours + "qkv"] = tuple(f"{attention}{part}_proj.weight" for part in "qkv")
        names[ours + "out"] = (attention + "o_proj.weight",)
        if config.qkv_bias:
            names[ours + "qkv.bias"] = tuple(f"{attention}{part}_proj.bias" for part in "qkv")
        if config.out_bias:
            names[ours + "out.bias"] = (attention + "o_proj.bias",)
        if config.qk_norm:
            names[ours + "q_norm"] = (attention + "q_norm.weight",)
            names[ours + "k_norm"] = (attention + "k_norm.weight",)
        if config.moe is None or index in config.moe.dense_layers:
            names |= feed_forward_names(ours, official + "mlp.")
        else:
            names |= expert_names(ours + "moe.", official + "mlp.", config.moe)
    return names


def feed_forward_names(ours: str, official: str) -> dict[str, tuple[str, ...]]:
    """Names of one gated feed-forward under two prefixes."""
    return {
        ours + "gate_up": (official + "gate_proj.weight", official + "up_proj.weight"),
        ours + "down": (official + "down_proj.weight",),
    }


def expert_names(ours: str, official: str, moe: MoEConfig) -> dict[str, tuple[str, ...]]:
    """Names of a router and its experts under two prefixes, in the spelling that most families share."""
    names: dict[str, tuple[str, ...]] = {ours + "router.gate": (official + "gate.weight",)}
    if moe.has_choice_bias:
        names[ours + "router.choice_bias"] = (official + "gate.expert_bias",)
    for index in range(moe.num_experts):
        names |= feed_forward_names(f"{ours}experts.{index}.", f"{official}experts.{index}.")
    if moe.shared_size:
        names |= feed_forward_names(ours + "shared.", official + "shared_experts.")
    return names
