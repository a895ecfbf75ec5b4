"""DiffuLLaMA: a Llama checkpoint, by its config.json an ordinary one, trained to denoise under full attention.

Source: arXiv 2410.17891; HKUNLP/DiffuLLaMA.
"""

from collections.abc import Mapping
from typing import Any

from unmask.models.config import AttentionPattern, ModelConfig, Traits
from unmask.models.facts import mask_id, read_traits

ARCHITECTURES = ("LlamaForCausalLM",)

_MASK = 811  # an ordinary token of Llama-2, reused
_LONGEST_BLOCK = 256  # the model knows no blocks: it denoises the whole canvas at once


def recognises(raw: Mapping[str, Any]) -> bool:
    """A plain Llama names no mask token, so `mask_token_id` in config.json tells the two apart."""
    return raw.get("mask_token_id") is not None


def build_traits(raw: Mapping[str, Any], config: ModelConfig) -> Traits:
    """Fully bidirectional; the row before a masked position predicts it."""
    return read_traits(
        raw,
        config,
        attention=AttentionPattern.BIDIRECTIONAL,
        block_size=min(_LONGEST_BLOCK, config.max_positions),
        logit_shift=1,
        mask_token_id=mask_id(raw, config, _MASK),
    )
