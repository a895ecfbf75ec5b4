"""A2D: Llama, Qwen2 and Qwen3 turned into diffusion models by dllm; weights under their AR names.

Source: ZHZisZZ/dllm.
"""

from collections.abc import Mapping
from typing import Any

from unmask.models.config import AttentionPattern, ModelConfig, Traits
from unmask.models.facts import mask_id, read_traits

ARCHITECTURES = (
    "A2DLlamaLMHeadModel",
    "A2DQwen2LMHeadModel",
    "A2DQwen3LMHeadModel",
)

# `<|mask|>` is added as the first free id; Llama's depends on the tokenizer
_MASKS = {"A2DQwen2LMHeadModel": 151665, "A2DQwen3LMHeadModel": 151669}
_BLOCK = 32  # the default of dllm's samplers


def build_traits(raw: Mapping[str, Any], config: ModelConfig) -> Traits:
    """Fully bidirectional and aligned unless config.json says otherwise.

    Checkpoints trained block by block (dllm's BD3LM) have the same config: say attention "block_causal" and their
    block_size under "unmask".
    """
    return read_traits(
        raw,
        config,
        attention=AttentionPattern.BIDIRECTIONAL,
        block_size=_BLOCK,
        logit_shift=int(bool(raw.get("right_shift_logits", False))),
        mask_token_id=mask_id(raw, config, _MASKS.get(raw["architectures"][0])),
    )
