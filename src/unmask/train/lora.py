"""Low-rank adapters on the fused projections, exported in the PEFT layout.

Source: LoRA, arXiv 2106.09685 section 4.1. Departs from the source: q/k/v (and gate/up) share one fused matrix here;
each still has its own pair of factors, so the export fits PEFT's names.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from unmask.core.errors import ConfigError
from unmask.models.config import ModelConfig
from unmask.models.linear import Int8Product
from unmask.models.transformer import Block, Transformer

# Shape legend: N rows, I input width, O output width of one section, r rank.


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """How adapters are trained.

    Attributes:
        rank: r, columns of the factors.
        alpha: numerator of the scale alpha / r.
        int8: run the frozen products in int8, forward and backward: about half the time on a CPU, and the adapter
            learns on the weights that the CPU serves. Gradients of the factors stay float32.
    """

    rank: int = 16
    alpha: float = 32.0
    int8: bool = False


Product = Callable[[Tensor], Tensor]
"""[N, I] -> [N, O] by a constant matrix."""


class _Frozen(torch.autograd.Function):
    """x -> x @ W^T by a product without gradient for W; the way back is another product."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, ahead: Product, back: Product) -> Tensor:
        """Applies `ahead`."""
        ctx.back = back
        return ahead(x_NI)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        """Applies `back` to the gradient."""
        return ctx.back(grads[0]), None, None


class FrozenHead(nn.Module):
    """The frozen output head in int8, forward and backward: it is the largest matrix of a small model."""

    def __init__(self, weight_OI: Tensor) -> None:
        super().__init__()
        self.products: tuple[Product, Product] = (Int8Product(weight_OI), Int8Product(weight_OI.T.contiguous()))

    def forward(self, x_NI: Tensor) -> Tensor:
        """Maps [N, I] to [N, O]."""
        return cast(Tensor, _Frozen.apply(x_NI, *self.products))


class LoraLinear(nn.Module):
    """A frozen linear layer plus one low-rank update per section of its output.

    Args:
        weight_OI: float32 weight [sum of sections, I]; kept only as `products`.
        bias_O: bias or None; frozen.
        sections: output widths, in the order in which they were fused.
        settings: rank, scale, and whether the frozen products run in int8.
        generator: draws the A factors (uniform, Kaiming as in PEFT); B starts at zero.
    """

    def __init__(
        self,
        weight_OI: Tensor,
        bias_O: Tensor | None,
        sections: tuple[int, ...],
        settings: LoraSettings,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.scale, self.rank = settings.alpha / settings.rank, settings.rank
        self.bias = bias_O
        if settings.int8:
            self.products: tuple[Product, Product] = (Int8Product(weight_OI), Int8Product(weight_OI.T.contiguous()))
        else:
            self.products = (partial(_multiply, weight_OI.T), partial(_multiply, weight_OI))
        width = weight_OI.shape[1]
        bound = math.sqrt(1.0 / width)
        down = torch.empty(len(sections) * settings.rank, width).uniform_(-bound, bound, generator=generator)
        self.down = nn.Parameter(down)
        self.ups = nn.ParameterList(nn.Parameter(torch.zeros(rows, settings.rank)) for rows in sections)

    def forward(self, x_NI: Tensor) -> Tensor:
        """Maps [N, I] to [N, sum of sections]."""
        y_NO = cast(Tensor, _Frozen.apply(x_NI, *self.products))
        low = functional.linear(x_NI, self.down)
        up = torch.block_diag(*self.ups) if len(self.ups) > 1 else self.ups[0]
        y_NO = torch.addmm(y_NO, low, up.T, alpha=self.scale)
        return y_NO if self.bias is None else y_NO + self.bias


def _multiply(right: Tensor, left: Tensor) -> Tensor:
    return left @ right


def _targets(config: ModelConfig) -> dict[str, tuple[tuple[str, int], ...]]:
    """Attribute of `Block` -> (official module name, output width) of each section."""
    hidden, feed = config.hidden_size, config.intermediate_size
    kv = config.kv_size
    return {
        "qkv": (("self_attn.q_proj", config.q_size), ("self_attn.k_proj", kv), ("self_attn.v_proj", kv)),
        "out": (("self_attn.o_proj", hidden),),
        "gate_up": (("mlp.gate_proj", feed), ("mlp.up_proj", feed)),
        "down": (("mlp.down_proj", hidden),),
    }


def attach(model: Transformer, settings: LoraSettings, seed: int) -> list[nn.Parameter]:
    """Freezes the model and wraps every projection in a `LoraLinear`; with int8 the head runs in int8 too.

    Returns:
        The trainable parameters.
    """
    model.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    trainable: list[nn.Parameter] = []
    for block in model.layers:
        for name, sections in _targets(model.config).items():
            base = getattr(block, name)
            widths = tuple(rows for _, rows in sections)
            wrapped = LoraLinear(base.weight.detach(), base.bias, widths, settings, generator)
            setattr(block, name, wrapped)
            trainable += [wrapped.down, *wrapped.ups]
    if settings.int8:
        model.lm_head = FrozenHead(cast(Tensor, model.lm_head.weight).detach())
    return trainable


_STEM = "base_model.model.model.layers."


def adapter_tensors(model: Transformer) -> dict[str, Tensor]:
    """The factors under PEFT's names, float32."""
    tensors: dict[str, Tensor] = {}
    for index, block in enumerate(model.layers):
        assert isinstance(block, Block)
        for name, sections in _targets(model.config).items():
            wrapped = getattr(block, name)
            for part, (official, _) in enumerate(sections):
                stem = f"{_STEM}{index}.{official}.lora_"
                rows = slice(part * wrapped.rank, (part + 1) * wrapped.rank)
                tensors[f"{stem}A.weight"] = wrapped.down.detach()[rows].clone()
                tensors[f"{stem}B.weight"] = wrapped.ups[part].detach().clone()
    return tensors


def restore_adapter(model: Transformer, tensors: Mapping[str, Tensor]) -> None:
    """Fills attached factors from tensors under PEFT's names (the reverse of `adapter_tensors`).

    Raises:
        ConfigError: a factor is missing or of another shape.
    """
    own = adapter_tensors(model)
    for name, tensor in own.items():
        if name not in tensors or tensors[name].shape != tensor.shape:
            raise ConfigError(f"the adapter to start from has no {name!r} of shape {tuple(tensor.shape)}")
    with torch.no_grad():
        for index, block in enumerate(model.layers):
            for name, sections in _targets(model.config).items():
                wrapped = getattr(block, name)
                stems = [f"{_STEM}{index}.{official}.lora_" for official, _ in sections]
                wrapped.down.copy_(torch.cat([tensors[f"{stem}A.weight"] for stem in stems]))
                for up, stem in zip(wrapped.ups, stems, strict=True):
                    up.copy_(tensors[f"{stem}B.weight"])


def save_adapter(
    folder: Path,
    tensors: Mapping[str, Tensor],
    settings: LoraSettings,
    facts: Mapping[str, Any],
    dtype: torch.dtype = torch.float16,
) -> None:
    """Writes a PEFT folder; `facts` (traits of the converted model) go under "unmask" in its config."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = {name: tensor.to(dtype).contiguous() for name, tensor in tensors.items()}
    save_file(stored, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "target_modules": sorted({name.split(".lora_")[0].split(".")[-1] for name in tensors if ".lora_" in name}),
        "bias": "none",
        "unmask": dict(facts),
    }
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
