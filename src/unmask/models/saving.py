"""A `Transformer` -> a checkpoint folder in the official layout: the family's key map, read backwards."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from unmask.models.families import FAMILIES, family_of
from unmask.models.loading import Loaded


def official_tensors(loaded: Loaded, raw: Mapping[str, Any]) -> dict[str, Tensor]:
    """Splits fused parameters back into the official tensors.

    Args:
        loaded: a model with plain float weights (`PlainLinear` or `TiledLinear`).
        raw: its config.json, which names the family.
    """
    config = loaded.config
    feed = config.intermediate_size
    widths = {
        "qkv": [config.q_size, config.kv_size, config.kv_size],
        "gate_up": [feed, feed],
    }
    key_map = FAMILIES[family_of(raw)].key_map(config)
    tensors: dict[str, Tensor] = {}
    for ours, names in key_map.items():
        value = _parameter(loaded.model, ours)
        kind = ours.removesuffix(".bias").split(".")[-1]
        parts = value.split(widths[kind]) if len(names) > 1 else [value]
        tensors |= {name: part.detach().clone() for name, part in zip(names, parts, strict=True)}
    return tensors


def _parameter(model: nn.Module, ours: str) -> Tensor:
    """Finds the parameter that the key map calls `ours`."""
    if ours == "embedding":
        return model.get_parameter("embedding")
    path = "lm_head" if ours == "head" else ours
    return model.get_parameter(path if path.endswith(".bias") else f"{path}.weight")


def save_checkpoint(
    folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any], dtype: torch.dtype = torch.float16
) -> None:
    """Writes `config.json` and `model.safetensors`."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = {name: tensor.to(dtype).contiguous() for name, tensor in tensors.items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(dict(config), indent=2) + "\n", encoding="utf-8")
