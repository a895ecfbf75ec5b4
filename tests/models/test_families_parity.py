"""Families that transformers has too compute what it computes: GPT-2, Qwen3-MoE (hence SDAR-MoE), attention biases."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.models.dense_attention import causal, logits
from tests.models.golden_checkpoints import rewrite
from unmask.models.config import AttentionPattern
from unmask.models.linear import PlainLinear, TiledLinear
from unmask.models.loading import load
from unmask.models.saving import official_tensors


def hub_model(name: str, **facts: Any) -> Any:
    """A model of transformers with every parameter random, biases and norms too."""
    import transformers

    settings = getattr(transformers, f"{name}Config")(eos_token_id=2, bos_token_id=1, **facts)
    torch.manual_seed(0)
    kind = f"{name}LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM"
    model = getattr(transformers, kind)(settings).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in key or "ln_" in key else 0.0, 0.2)
    return model


def assert_parity(hub: Any, folder: Path) -> None:
    ids = torch.randint(0, 96, (40,), generator=torch.Generator().manual_seed(1)).tolist()
    with torch.no_grad():
        wanted = hub(torch.tensor([ids])).logits[0]
    torch.testing.assert_close(
        logits(load(folder, linear=TiledLinear).model, ids, causal(40)), wanted, atol=2e-4, rtol=0
    )
    assert wanted.std() > 0.5, "flat logits show nothing"


GPT2 = {"vocab_size": 96, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 64}
QWEN3_MOE = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 64,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "norm_topk_prob": True,
    "mlp_only_layers": [1],
    "max_position_embeddings": 128,
}


@pytest.mark.parametrize("changes", [{}, {"n_inner": 96, "tie_word_embeddings": False}])
def test_gpt2(changes: dict[str, Any], tmp_path: Path) -> None:
    hub = hub_model("GPT2", **(GPT2 | changes))
    hub.save_pretrained(tmp_path)
    assert_parity(hub, tmp_path)
    loaded, raw = load(tmp_path, linear=PlainLinear), json.loads((tmp_path / "config.json").read_text())
    assert (loaded.traits.attention, loaded.traits.mask_token_id) == (AttentionPattern.CAUSAL, None)
    original, again = load_file(tmp_path / "model.safetensors"), official_tensors(loaded, raw)
    assert again.keys() == original.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in original.items())


def test_gpt2_as_first_published(tmp_path: Path) -> None:
    """Without prefix, with the causal mask among the weights."""
    hub = hub_model("GPT2", **GPT2)
    hub.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    bare = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    bare |= {f"h.{index}.attn.bias": torch.ones(1, 1, 64, 64).tril() for index in range(2)}
    assert_parity(hub, rewrite(tmp_path, bare))


def test_gpt2_windows_may_hang_over_the_end_of_the_context(tmp_path: Path) -> None:
    hub_model("GPT2", **GPT2).save_pretrained(tmp_path)
    model = load(tmp_path, linear=TiledLinear).model
    inside = logits(model, [5] * 64, causal(64))
    assert torch.equal(logits(model, [5] * (64 + 512), causal(64 + 512))[:64], inside)


@pytest.mark.parametrize("changes", [{}, {"norm_topk_prob": False, "decoder_sparse_step": 2, "mlp_only_layers": []}])
def test_qwen3_moe(changes: dict[str, Any], tmp_path: Path) -> None:
    hub = hub_model("Qwen3Moe", **(QWEN3_MOE | changes))
    hub.save_pretrained(tmp_path)
    assert_parity(hub, tmp_path)


def test_sdar_moe_is_qwen3_moe_in_blocks(tmp_path: Path) -> None:
    hub = hub_model("Qwen3Moe", **QWEN3_MOE)
    hub.save_pretrained(tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    raw |= {"architectures": ["SDARMoeForCausalLM"], "model_type": "sdar_moe", "mask_token_id": 90, "block_size": 8}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    assert_parity(hub, tmp_path)
    traits = load(tmp_path, linear=PlainLinear).traits
    assert (traits.attention, traits.block_size, traits.mask_token_id) == (AttentionPattern.BLOCK_CAUSAL, 8, 90)


@pytest.mark.parametrize("name", ["Llama", "Qwen3"])
def test_attention_biases(name: str, tmp_path: Path) -> None:
    dense = {key: value for key, value in QWEN3_MOE.items() if "expert" not in key and "moe" not in key}
    del dense["norm_topk_prob"], dense["mlp_only_layers"]
    hub = hub_model(name, attention_bias=True, **dense)
    hub.save_pretrained(tmp_path)
    assert_parity(hub, tmp_path)
