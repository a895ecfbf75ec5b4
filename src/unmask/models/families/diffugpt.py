"""DiffuGPT (S, M): GPT-2 under full attention, saved from a wrapper that gives its tensors other names.

Source: arXiv 2410.17891; HKUNLP/DiffuLLaMA.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unmask.models.config import AttentionPattern, ModelConfig, Traits
from unmask.models.facts import mask_id, read_traits
from unmask.models.families import gpt2
from unmask.models.source import Place, RelaidSource, SafetensorsSource

ARCHITECTURES = ("DiscreteDiffusionModel",)

_PREFIX = "denoise_model."
_ADDED_MASK = 50257  # of the medium model, one past GPT-2's vocabulary
_REUSED_MASK = 10541  # of the small model, an ordinary token
_LONGEST_BLOCK = 256  # the model knows no blocks: it denoises the whole canvas at once


def build_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the official `config.json`: the fields of GPT-2. The files hold the head apart from the embedding."""
    return replace(gpt2.build_config(raw), tied=False)


def build_traits(raw: Mapping[str, Any], config: ModelConfig) -> Traits:
    """Fully bidirectional; the row before a masked position predicts it."""
    usual = _ADDED_MASK if config.vocab_size > _ADDED_MASK else _REUSED_MASK
    return read_traits(
        raw,
        config,
        attention=AttentionPattern.BIDIRECTIONAL,
        block_size=min(_LONGEST_BLOCK, config.max_positions),
        logit_shift=1,
        mask_token_id=mask_id(raw, config, usual),
    )


def key_map(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """Our parameter name -> the official tensors."""
    ends = {"embedding": ("embed_tokens.weight",), "head": ("lm_head.weight",)}
    return ends | gpt2.stack_names(config, _PREFIX)


def redundant(config: ModelConfig) -> frozenset[str]:
    """Mask buffers, as in GPT-2."""
    return gpt2.redundant(config, _PREFIX)


def view(files: SafetensorsSource, _config: ModelConfig) -> RelaidSource:
    """The head is the embedding by training; files that share storage between the two hold it once."""
    places: dict[str, Place] = {}
    if "lm_head.weight" not in files.names() and "embed_tokens.weight" in files.names():
        places = {name: Place(name="embed_tokens.weight") for name in ("embed_tokens.weight", "lm_head.weight")}
    return RelaidSource(files, places)
