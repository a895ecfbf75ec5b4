"""Dream, Dream-Coder and DiffuCoder: Qwen2.5 under full attention, logits still shifted by one.

Source: arXiv 2508.15487; config.json and modelling file of Dream-org/Dream-v0-Instruct-7B.
"""

from collections.abc import Mapping
from typing import Any

from unmask.models.config import AttentionPattern, ModelConfig, Traits
from unmask.models.facts import llama_shape, mask_id, read_traits

ARCHITECTURES = ("DreamModel",)

_MASK = 151666  # `<|mask|>`
_ENDS = {151643: 151645}  # `<|endoftext|>` pads an answer, `<|im_end|>` closes a turn
_BLOCK = 32  # the model knows no blocks; this is Fast-dLLM's (arXiv 2505.22618)


def build_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the official `config.json`: the fields of Qwen2."""
    return llama_shape(raw, qkv_bias=True, qk_norm=False)


def build_traits(raw: Mapping[str, Any], config: ModelConfig) -> Traits:
    """Fully bidirectional; the row before a masked position predicts it."""
    return read_traits(
        raw,
        config,
        attention=AttentionPattern.BIDIRECTIONAL,
        block_size=_BLOCK,
        logit_shift=1,
        mask_token_id=mask_id(raw, config, _MASK),
        more_eos=_ENDS,
    )
