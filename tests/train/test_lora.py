"""Adapters: gradients against explicit algebra, and what is trained equals what is served."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from tests.models.random_weights import MASK, MemorySource, config, official_weights, random_model
from unmask.models.config import ModelConfig
from unmask.models.families.llama import key_map
from unmask.models.linear import PlainLinear
from unmask.models.loading import LoraSource, build
from unmask.models.transformer import Transformer, masked_attention
from unmask.train.lora import LoraLinear, LoraSettings, adapter_tensors, attach, save_adapter

pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per")  # of torch, once a process

SECTIONS = [(12,), (8, 4, 4), (16, 16)]
SHAPES = {"llama": config(), "qwen2": config(qkv_bias=True, tied=False), "qwen3": config(qk_norm=True, head_dim=16)}


def layer(
    sections: tuple[int, ...], *, int8: bool = False, bias: bool = True, width: int = 20
) -> tuple[LoraLinear, Tensor]:
    """A layer whose factors are all random, and its weight."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(sum(sections), width, generator=generator)
    bias_O = torch.randn(sum(sections), generator=generator) if bias else None
    made = LoraLinear(weight, bias_O, sections, LoraSettings(rank=3, alpha=6.0, int8=int8), generator)
    with torch.no_grad():
        for up in made.ups:
            up.normal_(generator=generator)
    return made, weight


def explicit(made: LoraLinear, weight: Tensor, down: Tensor, ups: list[Tensor]) -> Tensor:
    """W + s B A, section by section."""
    parts = [up @ down[i * made.rank : (i + 1) * made.rank] for i, up in enumerate(ups)]
    return weight + made.scale * torch.cat(parts)


@pytest.mark.parametrize("sections", SECTIONS)
@pytest.mark.parametrize("bias", [False, True])
def test_forward_and_gradients_equal_the_explicit_product(sections: tuple[int, ...], bias: bool) -> None:
    made, weight = layer(sections, bias=bias)
    x = torch.randn(9, 20, generator=torch.Generator().manual_seed(1)).requires_grad_()
    loss_weights = torch.randn(9, sum(sections), generator=torch.Generator().manual_seed(2))
    got = made(x)
    (got * loss_weights).sum().backward()

    x64 = x.detach().double().requires_grad_()
    down = made.down.detach().double().requires_grad_()
    ups = [up.detach().double().requires_grad_() for up in made.ups]
    bias64 = None if made.bias is None else made.bias.double()
    wanted = functional.linear(x64, explicit(made, weight.double(), down, ups), bias64)
    (wanted * loss_weights.double()).sum().backward()

    torch.testing.assert_close(got.double(), wanted, atol=1e-4, rtol=1e-5)
    for leaf, twin in [(x, x64), (made.down, down), *zip(made.ups, ups, strict=True)]:
        assert leaf.grad is not None
        assert twin.grad is not None
        torch.testing.assert_close(leaf.grad.double(), twin.grad, atol=1e-4, rtol=1e-5)
    assert made.bias is None or made.bias.grad is None


@pytest.mark.parametrize("sections", SECTIONS)
def test_int8_gradients_point_the_same_way(sections: tuple[int, ...]) -> None:
    gradients: list[list[Tensor]] = []
    for int8 in (False, True):
        made, _ = layer(sections, int8=int8, width=96)
        x = (torch.randn(64, 96, generator=torch.Generator().manual_seed(1)) * 0.05).requires_grad_()
        loss_weights = torch.randn(64, sum(sections), generator=torch.Generator().manual_seed(2))
        (made(x).tanh() * loss_weights).sum().backward()
        gradients.append([leaf.grad for leaf in (x, made.down, *made.ups) if leaf.grad is not None])
    assert len(gradients[0]) == 2 + len(sections)
    for exact, rough in zip(*gradients, strict=True):
        assert functional.cosine_similarity(exact.flatten(), rough.flatten(), dim=0) > 0.99
        assert 0.9 < (rough.norm() / exact.norm()).item() < 1.1


def test_a_fresh_adapter_changes_nothing() -> None:
    plain, adapted = (random_model(config(), linear=PlainLinear) for _ in "ab")
    attach(adapted, LoraSettings(rank=2), seed=0)
    torch.testing.assert_close(logits(adapted), logits(plain), atol=1e-5, rtol=0)


def logits(model: Transformer) -> Tensor:
    ids = torch.arange(8, 30)
    with torch.no_grad():
        attend = masked_attention(torch.ones(22, 22).tril().bool())
        return model.head(model(ids, torch.arange(22), attend))


def adapted(shape: ModelConfig, seed: int = 3) -> tuple[Transformer, list[nn.Parameter]]:
    model = random_model(shape, linear=PlainLinear)
    trainable = attach(model, LoraSettings(rank=4, alpha=6.0), seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in trainable:
            parameter.normal_(0.0, 0.2, generator=generator)
    return model, trainable


def test_only_the_factors_are_trainable() -> None:
    model, trainable = adapted(config())
    assert {id(p) for p in model.parameters() if p.requires_grad} == {id(p) for p in trainable}
    assert len(trainable) == 2 * (4 + 3 + 1 + 2 + 1)  # A for each of 4 projections; B for q k v, o, gate up, down


def test_seeds_decide_the_factors() -> None:
    def first_factor(seed: int) -> Tensor:
        return attach(random_model(config(), linear=PlainLinear), LoraSettings(), seed)[0]

    assert torch.equal(first_factor(1), first_factor(1))
    assert not torch.equal(first_factor(1), first_factor(2))


@pytest.mark.parametrize("name", sorted(SHAPES))
@pytest.mark.parametrize(("dtype", "atol"), [(torch.float32, 1e-4), (torch.float16, 3e-2)])
def test_what_is_trained_is_what_is_served(name: str, tmp_path: Path, dtype: torch.dtype, atol: float) -> None:
    shape = SHAPES[name]
    model, _ = adapted(shape)
    settings = LoraSettings(rank=4, alpha=6.0)
    save_adapter(tmp_path, adapter_tensors(model), settings, {"mask_token_id": MASK}, dtype)
    source = LoraSource(MemorySource(official_weights(shape)), tmp_path, MASK)
    merged = build(source, shape, key_map(shape), PlainLinear)
    got, wanted = logits(merged), logits(model)
    torch.testing.assert_close(got, wanted, atol=atol, rtol=0)
    plain = random_model(shape, linear=PlainLinear)
    assert (wanted - logits(plain)).abs().max() > 0.5, "the adapter must matter"


def test_the_folder_is_in_pefts_layout(tmp_path: Path) -> None:
    model, _ = adapted(config())
    tensors = adapter_tensors(model)
    save_adapter(tmp_path, tensors, LoraSettings(rank=4, alpha=6.0), {"mask_token_id": MASK, "block_size": 8})
    facts = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (facts["peft_type"], facts["r"], facts["lora_alpha"], facts["bias"]) == ("LORA", 4, 6.0, "none")
    projections = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
    assert facts["target_modules"] == projections
    assert facts["unmask"] == {"mask_token_id": MASK, "block_size": 8}
    stored = load_file(tmp_path / "adapter_model.safetensors")
    assert stored.keys() == tensors.keys()
    wanted = {
        f"base_model.model.model.layers.{layer}.{module}.lora_{factor}.weight"
        for layer in range(2)
        for module in [f"self_attn.{x}_proj" for x in "qkvo"] + [f"mlp.{x}_proj" for x in ("gate", "up", "down")]
        for factor in "AB"
    }
    assert set(stored) == wanted
    for name, tensor in stored.items():
        assert tensor.dtype == torch.float16
        assert tensor.shape[0 if "lora_A" in name else 1] == 4
        torch.testing.assert_close(tensor.float(), tensors[name], atol=1e-3, rtol=1e-3)


def test_peft_reads_the_folder(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model, _ = adapted(config())
    save_adapter(tmp_path, adapter_tensors(model), LoraSettings(rank=4, alpha=6.0), {})
    assert peft.PeftConfig.from_pretrained(str(tmp_path)).r == 4
