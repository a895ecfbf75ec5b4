"""SDAR (dense and MoE) and TraDo: Qwen3 that denoises short blocks, each seeing all earlier ones; logits aligned.

Source: arXiv 2510.06303; JetAstra/SDAR.
"""

from collections.abc import Mapping
from typing import Any

from unmask.models.config import AttentionPattern, ModelConfig, Traits
from unmask.models.facts import llama_shape, mask_id, read_traits
from unmask.models.families.llama import qwen3_experts

ARCHITECTURES = ("SDARForCausalLM", "SDARMoeForCausalLM")

_MASK = 151669
_BLOCK = 4  # of the checkpoints without a suffix; those with one (b8, b16, ...) say it in config.json


def build_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the official `config.json`: the fields of Qwen3 or Qwen3-MoE."""
    has_bias = bool(raw.get("attention_bias", False))
    moe = qwen3_experts(raw) if raw["architectures"][0] == "SDARMoeForCausalLM" else None
    return llama_shape(raw, qkv_bias=has_bias, qk_norm=True, out_bias=has_bias, moe=moe)


def build_traits(raw: Mapping[str, Any], config: ModelConfig) -> Traits:
    """Block-causal, blocks counted from position 0."""
    return read_traits(
        raw,
        config,
        attention=AttentionPattern.BLOCK_CAUSAL,
        block_size=int(raw.get("block_size") or _BLOCK),
        mask_token_id=mask_id(raw, config, _MASK),
    )
