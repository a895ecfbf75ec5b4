"""LLaDA-MoE-7B-A1B (Base, Instruct): LLaDA with OLMoE's experts; its model_type is "llada" too.

Source: arXiv 2509.24389; modelling file of inclusionAI/LLaDA-MoE-7B-A1B-Instruct.
"""

from collections.abc import Mapping
from typing import Any

from unmask.models.config import AttentionPattern, ModelConfig, MoEConfig, RouterScore, Traits
from unmask.models.facts import llama_shape, mask_id, naming_lost_fields, read_traits, refuse

ARCHITECTURES = ("LLaDAMoEModelLM",)

_MASK = 156895  # `<|mask|>`
_BLOCK = 64  # of inclusionAI/dInfer; the sampler's own default is one block of 128


def build_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the official `config.json`.

    Raises:
        CheckpointError: a needed field is absent, or the checkpoint uses a switch that no published one does.
    """
    # the reference never divides the chosen weights by their sum, whatever config.json says
    for field in ("clip_qkv", "norm_topk_prob", "moe_router_enable_expert_bias", "shared_expert_intermediate_size"):
        refuse(raw, field, instead="without it")
    refuse(raw, "moe_router_score_function", "softmax", instead="with 'softmax'")
    for field in ("router_num_group", "router_topk_group", "routed_scaling_factor"):
        refuse(raw, field, 1, instead="with 1")
    with naming_lost_fields(raw):
        num_layers = int(raw["num_hidden_layers"])
        frequency = raw.get("moe_layer_freq", 1)
        has_experts = frequency if isinstance(frequency, list) else [frequency] * num_layers
        moe = MoEConfig(
            num_experts=int(raw["num_experts"]),
            num_chosen=int(raw["num_experts_per_tok"]),
            expert_size=int(raw["expert_intermediate_size"]),
            dense_layers=frozenset(i for i, wanted in enumerate(has_experts) if not wanted),
            score=RouterScore.SOFTMAX,
        )
        dense_size = raw.get("dense_intermediate_size") or raw["intermediate_size"]
    return llama_shape(
        {**raw, "intermediate_size": dense_size},
        qkv_bias=bool(raw.get("attention_bias", False)),
        qk_norm=bool(raw.get("qk_layernorm", True)),
        out_bias=bool(raw.get("attention_bias", False)),
        rotary_share=float(raw.get("partial_rotary_factor") or 1),
        moe=moe,
    )


def build_traits(raw: Mapping[str, Any], config: ModelConfig) -> Traits:
    """Fully bidirectional; blocks only order the commits."""
    return read_traits(
        raw,
        config,
        attention=AttentionPattern.BIDIRECTIONAL,
        block_size=_BLOCK,
        mask_token_id=mask_id(raw, config, _MASK),
    )
