"""Random models in memory, in every shape the stack has, for tests of all floors."""

from typing import Any

import torch
from torch import Tensor

from unmask.models.config import AttentionPattern, ModelConfig, Traits
from unmask.models.families.llama import key_map
from unmask.models.linear import LinearFactory, TiledLinear
from unmask.models.loading import Loaded, build
from unmask.models.transformer import Transformer

MASK, EOS = 3, 7


def config(**changes: Any) -> ModelConfig:
    """Two layers, four heads over two, vocabulary 48: small enough for EOS and near ties to turn up by themselves."""
    facts: dict[str, Any] = {
        "vocab_size": 48,
        "hidden_size": 32,
        "num_layers": 2,
        "num_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "intermediate_size": 48,
        "rope_theta": 10000.0,
        "rms_norm_eps": 1e-5,
        "tied": True,
        "qkv_bias": False,
        "qk_norm": False,
        "max_positions": 512,
    }
    return ModelConfig(**(facts | changes))


def official_weights(shape: ModelConfig, seed: int = 0, scale: float = 0.4) -> dict[str, Tensor]:
    """Every tensor of the family's key map under its official name."""
    generator = torch.Generator().manual_seed(seed)
    rows = {
        "q_proj": shape.q_size,
        "k_proj": shape.kv_size,
        "v_proj": shape.kv_size,
        "o_proj": shape.hidden_size,
        "gate_proj": shape.intermediate_size,
        "up_proj": shape.intermediate_size,
        "down_proj": shape.hidden_size,
        "embed_tokens": shape.vocab_size,
        "lm_head": shape.vocab_size,
    }
    columns = {"o_proj": shape.q_size, "down_proj": shape.intermediate_size}
    tensors: dict[str, Tensor] = {}
    for name in sorted({name for names in key_map(shape).values() for name in names}):
        part, kind = name.split(".")[-2:]
        if part.endswith("norm") or part.endswith("layernorm"):
            width = shape.head_dim if part in ("q_norm", "k_norm") else shape.hidden_size
            tensors[name] = 1.0 + 0.2 * torch.randn(width, generator=generator)
        elif kind == "bias":
            tensors[name] = torch.randn(rows[part], generator=generator) * scale
        else:
            size = (rows[part], columns.get(part, shape.hidden_size))
            tensors[name] = torch.randn(size, generator=generator) * scale
    return tensors


class MemorySource:
    """A `TensorSource` over a dict."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self.tensors = tensors

    def names(self) -> set[str]:
        return set(self.tensors)

    def read(self, name: str) -> Tensor:
        return self.tensors[name].clone()


def random_model(shape: ModelConfig, seed: int = 0, linear: LinearFactory = TiledLinear) -> Transformer:
    return build(MemorySource(official_weights(shape, seed)), shape, key_map(shape), linear)


def random_loaded(
    *,
    attention: AttentionPattern = AttentionPattern.CAUSAL_CONTEXT,
    block_size: int = 4,
    logit_shift: int = 0,
    linear: LinearFactory = TiledLinear,
    seed: int = 0,
    **changes: Any,
) -> Loaded:
    """A random model with traits; `changes` go to its config."""
    shape = config(**changes)
    traits = Traits(
        mask_token_id=None if attention is AttentionPattern.CAUSAL else MASK,
        attention=attention,
        block_size=block_size,
        logit_shift=logit_shift,
        eos_ids=frozenset([EOS]),
        max_positions=shape.max_positions,
        vocab_size=shape.vocab_size,
    )
    return Loaded(model=random_model(shape, seed, linear), config=shape, traits=traits)
