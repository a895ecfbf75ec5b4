import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.models.random_weights import MemorySource, config, official_weights
from unmask.models.families.llama import key_map
from unmask.models.linear import PlainLinear
from unmask.models.loading import build, load
from unmask.models.saving import official_tensors, save_checkpoint

SHAPES = {
    "LlamaForCausalLM": config(),
    "Qwen2ForCausalLM": config(qkv_bias=True, tied=False),
    "Qwen3ForCausalLM": config(qk_norm=True, head_dim=16),
}


@pytest.mark.parametrize("architecture", sorted(SHAPES))
def test_save_and_load_round_trip(architecture: str, tmp_path: Path) -> None:
    shape = SHAPES[architecture]
    raw = {
        "architectures": [architecture],
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.rms_norm_eps,
        "rope_theta": shape.rope_theta,
        "max_position_embeddings": shape.max_positions,
        "tie_word_embeddings": shape.tied,
    }
    weights = official_weights(shape)
    (tmp_path / "config.json").write_text(json.dumps(raw))
    from safetensors.torch import save_file

    save_file(weights, tmp_path / "model.safetensors")
    loaded = load(tmp_path, linear=PlainLinear)
    assert loaded.config == shape
    tensors = official_tensors(loaded, raw)
    assert tensors.keys() == weights.keys()
    assert all(torch.equal(tensors[name], weight) for name, weight in weights.items())
    save_checkpoint(tmp_path / "saved", tensors, raw, torch.float32)
    again = load_file(tmp_path / "saved" / "model.safetensors")
    assert all(torch.equal(again[name], weight) for name, weight in weights.items())
    assert load(tmp_path / "saved", linear=PlainLinear).config == shape
    build(MemorySource(again), shape, key_map(shape), PlainLinear)
