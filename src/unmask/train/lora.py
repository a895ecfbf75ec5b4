"""Low-rank adapters on the fused projections, exported in the PEFT layout.

Source: LoRA, arXiv 2106.09685 section 4.1. Departs from the source: q/k/v (and gate/up) share one fused matrix here;
each still has its own pair of factors, so the export fits PEFT's names.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from unmask.models.config import ModelConfig
from unmask.models.transformer import Block, Transformer

# Shape legend: N rows, I input width, O output width of one section, r rank.


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """Rank r and numerator alpha of the scale alpha / r."""

    rank: int = 16
    alpha: float = 32.0


class LoraLinear(nn.Module):
    """A frozen linear layer plus one low-rank update per section of its output.

    Args:
        base: module with a float32 `weight` [sum of sections, I].
        sections: output widths, in the order in which they were fused.
        settings: rank and scale.
        generator: draws the A factors (uniform, Kaiming as in PEFT); B starts at zero.
    """

    def __init__(
        self, base: nn.Module, sections: tuple[int, ...], settings: LoraSettings, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.scale = settings.alpha / settings.rank
        self.rank = settings.rank
        width = base.get_parameter("weight").shape[1]
        bound = math.sqrt(1.0 / width)
        down = torch.empty(len(sections) * settings.rank, width).uniform_(-bound, bound, generator=generator)
        self.down = nn.Parameter(down)
        self.ups = nn.ParameterList(nn.Parameter(torch.zeros(rows, settings.rank)) for rows in sections)

    def forward(self, x_NI: Tensor) -> Tensor:
        """Maps [N, I] to [N, sum of sections]."""
        low = functional.linear(x_NI, self.down).split(self.rank, dim=-1)
        update = torch.cat([functional.linear(part, up) for part, up in zip(low, self.ups, strict=True)], dim=-1)
        return torch.add(self.base(x_NI), update, alpha=self.scale)


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
    """Freezes the model, puts a `LoraLinear` around every projection and returns the trainable parameters."""
    model.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    trainable: list[nn.Parameter] = []
    for block in model.layers:
        for name, sections in _targets(model.config).items():
            wrapped = LoraLinear(getattr(block, name), tuple(rows for _, rows in sections), settings, generator)
            setattr(block, name, wrapped)
            trainable += [wrapped.down, *wrapped.ups]
    return trainable


def adapter_tensors(model: Transformer) -> dict[str, Tensor]:
    """The factors under PEFT's names, float32."""
    tensors: dict[str, Tensor] = {}
    for index, block in enumerate(model.layers):
        assert isinstance(block, Block)
        for name, sections in _targets(model.config).items():
            wrapped = getattr(block, name)
            for part, (official, _) in enumerate(sections):
                stem = f"base_model.model.model.layers.{index}.{official}.lora_"
                rows = slice(part * wrapped.rank, (part + 1) * wrapped.rank)
                tensors[f"{stem}A.weight"] = wrapped.down.detach()[rows].clone()
                tensors[f"{stem}B.weight"] = wrapped.ups[part].detach().clone()
    return tensors


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
