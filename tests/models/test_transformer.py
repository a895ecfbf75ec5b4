"""The stack computes what transformers' Llama, Qwen2 and Qwen3 compute, and what dllm's A2D checkpoints say."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.models.random_weights import config, random_model
from unmask.models.linear import Int8Linear, LinearFactory, PlainLinear, TiledLinear
from unmask.models.loading import load
from unmask.models.transformer import Transformer, masked_attention

GOLDENS = Path(__file__).parents[1] / "goldens" / "a2d"

SIZES: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "rope_theta": 50000.0,
    "eos_token_id": 2,
    "bos_token_id": 1,
}
HUB_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {"num_key_value_heads": 6, "tie_word_embeddings": False}),
    "llama-grouped-tied": ("Llama", {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "llama-wide-heads": ("Llama", {"num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": False}),
    "qwen2": ("Qwen2", {"num_key_value_heads": 3, "tie_word_embeddings": False}),
    "qwen2-tied": ("Qwen2", {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"num_key_value_heads": 2, "head_dim": 16, "tie_word_embeddings": False}),
    "qwen3-tied": ("Qwen3", {"num_key_value_heads": 3, "head_dim": 8, "tie_word_embeddings": True}),
}


def logits(model: Transformer, ids: list[int], visible: Tensor, positions: Tensor | None = None) -> Tensor:
    positions = torch.arange(len(ids)) if positions is None else positions
    with torch.inference_mode():
        return model.head(model(torch.tensor(ids), positions, masked_attention(visible)))


def causal(length: int) -> Tensor:
    return torch.ones(length, length).tril().bool()


def hub_model(name: str, **changes: Any) -> Any:
    """A model of transformers with every parameter random, biases and norms too."""
    import transformers

    family, facts = HUB_MODELS[name]
    settings = getattr(transformers, f"{family}Config")(**(SIZES | facts | changes))
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForCausalLM")(settings).eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in key else 0.0, 0.2)
    return model


def assert_parity(hub: Any, folder: Path, linear: LinearFactory = TiledLinear) -> None:
    ids = torch.randint(0, 96, (40,), generator=torch.Generator().manual_seed(1)).tolist()
    with torch.no_grad():
        wanted = hub(torch.tensor([ids])).logits[0]
    got = logits(load(folder, linear=linear).model, ids, causal(40))
    torch.testing.assert_close(got, wanted, atol=2e-4, rtol=0)
    assert wanted.std() > 0.5, "flat logits show nothing"


@pytest.mark.parametrize("name", sorted(HUB_MODELS))
def test_parity_with_transformers(name: str, tmp_path: Path) -> None:
    hub = hub_model(name)
    hub.save_pretrained(tmp_path)
    assert_parity(hub, tmp_path)


def test_parity_of_sharded_files(tmp_path: Path) -> None:
    hub = hub_model("qwen2")
    hub.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert_parity(hub, tmp_path, PlainLinear)


def test_parity_of_bfloat16_files(tmp_path: Path) -> None:
    hub = hub_model("llama-grouped-tied").to(torch.bfloat16)
    hub.save_pretrained(tmp_path)
    assert_parity(type(hub).from_pretrained(tmp_path, dtype=torch.float32), tmp_path)


def test_parity_with_the_old_spelling_of_the_rotary_base(tmp_path: Path) -> None:
    hub = hub_model("llama")
    hub.save_pretrained(tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    raw.pop("rope_parameters", None)
    raw |= {"rope_theta": 50000.0, "rope_scaling": None}
    (tmp_path / "config.json").write_text(json.dumps(raw))
    assert_parity(hub, tmp_path)


# --- checkpoints and logits of ZHZisZZ/dllm ----------------------------------------------------------------------


def golden(name: str, tmp_path: Path) -> tuple[Transformer, dict[str, Any], dict[str, Tensor]]:
    """The A2D names stand for the plain families with another attention mask."""
    raw = json.loads((GOLDENS / name / "config.json").read_text())
    raw["architectures"] = [raw["architectures"][0].removeprefix("A2D").replace("LMHeadModel", "ForCausalLM")]
    (tmp_path / "config.json").write_text(json.dumps(raw))
    (tmp_path / "model.safetensors").symlink_to(GOLDENS / name / "model.safetensors")
    cases = {case["name"]: case for case in json.loads((GOLDENS / name / "cases.json").read_text())["cases"]}
    return load(tmp_path, linear=TiledLinear).model, cases, load_file(GOLDENS / name / "logits.safetensors")


@pytest.mark.parametrize("name", ["llama", "qwen2-tied", "qwen3"])
def test_a2d_goldens_under_full_attention(name: str, tmp_path: Path) -> None:
    model, cases, tensors = golden(name, tmp_path)
    case = cases["logits-full"]
    for row, (ids, real) in enumerate(zip(case["input_ids"], case["attention_mask"], strict=True)):
        visible = torch.tensor(real, dtype=torch.bool).expand(len(ids), -1)
        got = logits(model, ids, visible)[case["positions"]]
        torch.testing.assert_close(got, tensors[case["tensor"]][row], atol=2e-4, rtol=0)


@pytest.mark.parametrize("name", ["llama", "qwen2-tied", "qwen3"])
def test_a2d_goldens_under_block_causal_attention(name: str, tmp_path: Path) -> None:
    model, cases, tensors = golden(name, tmp_path)
    case = cases["logits-block4"]
    (ids,) = case["input_ids"]
    block = torch.arange(len(ids)) // case["block_length"]
    got = logits(model, ids, block[None] <= block[:, None])[case["positions"]]
    torch.testing.assert_close(got, tensors[case["tensor"]][0], atol=2e-4, rtol=0)


# --- the stack by itself -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:torch.quantize_per")
@pytest.mark.parametrize("linear", [TiledLinear, Int8Linear])
@pytest.mark.parametrize("changes", [{}, {"qk_norm": True, "qkv_bias": True, "tied": False}])
def test_rows_of_different_sequences_do_not_mix(linear: LinearFactory, changes: dict[str, Any]) -> None:
    """Everything but attention is row by row, bit for bit: two sequences in one call equal two calls."""
    model = random_model(config(**changes), linear=linear)
    first, second = list(range(8, 27)), list(range(40, 9, -1))

    def own_rows(lengths: list[int]) -> Any:
        def attend(_layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            parts = zip(*(x.split(lengths) for x in (q, k, v)), strict=True)
            return torch.cat([masked_attention(causal(part[0].shape[0]))(0, *part) for part in parts])

        return attend

    with torch.inference_mode():
        positions = torch.cat((torch.arange(len(first)), torch.arange(len(second))))
        attend = own_rows([len(first), len(second)])
        both = model.head(model(torch.tensor(first + second), positions, attend))
        for ids, got in zip((first, second), both.split([len(first), len(second)]), strict=True):
            alone = model.head(model(torch.tensor(ids), torch.arange(len(ids)), own_rows([len(ids)])))
            assert torch.equal(got, alone)


def test_only_relative_positions_matter() -> None:
    model = random_model(config())
    ids = list(range(10, 30))
    near = logits(model, ids, causal(20))
    far = logits(model, ids, causal(20), torch.arange(20) + 400)
    torch.testing.assert_close(near, far, atol=1e-3, rtol=0)
    apart = logits(model, ids, causal(20), torch.arange(20) * 2)
    assert (near - apart).abs().max() > 0.1


def test_windows_may_hang_over_the_end_of_the_context() -> None:
    """By two windows of 256, the most that a rule lays out past the last position that can be asked for."""
    short, long = (random_model(config(max_positions=n)) for n in (16, 2000))
    ids = [5] * (16 + 512)
    assert torch.equal(logits(short, ids, causal(len(ids))), logits(long, ids, causal(len(ids))))


def test_head_only_where_read() -> None:
    model = random_model(config(tied=False))
    with torch.inference_mode():
        hidden = model(torch.arange(8), torch.arange(8), masked_attention(causal(8)))
        assert torch.equal(model.head(hidden)[[2, 5]], model.head(hidden[[2, 5]]))
        assert model.head(hidden[:0]).shape == (0, 48)
