"""Fast-dLLM v2: Qwen2.5 that denoises blocks, each seeing all earlier ones; logits shifted inside the block.

Source: arXiv 2509.26328; modelling file of Efficient-Large-Model/Fast_dLLM_v2_7B.
"""

from collections.abc import Mapping
from typing import Any

from unmask.models.config import AttentionPattern, ModelConfig, Traits
from unmask.models.facts import llama_shape, mask_id, read_traits

ARCHITECTURES = ("Fast_dLLM_QwenForCausalLM",)

_MASK = 151665  # `|<MASK>|`; not in config.json
_BLOCK = 32


def build_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the official `config.json`: the fields of Qwen2."""
    return llama_shape(raw, qkv_bias=True, qk_norm=False)


def build_traits(raw: Mapping[str, Any], config: ModelConfig) -> Traits:
    """Block-causal, blocks counted from position 0; the row before a masked position predicts it."""
    return read_traits(
        raw,
        config,
        attention=AttentionPattern.BLOCK_CAUSAL,
        block_size=int(raw.get("bd_size") or _BLOCK),
        logit_shift=1,
        mask_token_id=mask_id(raw, config, _MASK),
    )
