"""A `Transformer` -> a checkpoint folder in the official layout: the family's key map, read backwards."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from unmask.models.families import FAMILIES, family_of
from unmask.models.loading import Loaded
from unmask.models.parts import parameter


def official_tensors(loaded: Loaded, raw: Mapping[str, Any]) -> dict[str, Tensor]:
    """Splits fused parameters back into the official tensors.

    Args:
        loaded: a model with plain float weights (`PlainLinear` or `TiledLinear`).
        raw: its config.json, which names the family.

    Raises:
        CheckpointError: the weights are kept in int8, which cannot be undone.
    """
    config, family = loaded.config, FAMILIES[family_of(raw)]
    if family.export is not None:
        return family.export(loaded.model)
    tensors: dict[str, Tensor] = {}
    for ours, names in family.key_map(config).items():
        value = parameter(loaded.model, ours)
        is_qkv = ours.removesuffix(".bias").endswith("qkv")
        widths = [config.q_size, config.kv_size, config.kv_size] if is_qkv else [value.shape[0] // 2] * 2
        parts = value.split(widths) if len(names) > 1 else [value]
        if ours.split(".")[-1] in family.transposed:
            parts = [part.T for part in parts]
        copies = [part.detach().clone(memory_format=torch.contiguous_format) for part in parts]
        tensors |= dict(zip(names, copies, strict=True))
    return tensors


def save_checkpoint(
    folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any], dtype: torch.dtype = torch.float16
) -> None:
    """Writes `config.json` and `model.safetensors`."""
    folder.mkdir(parents=True, exist_ok=True)
    stored = {name: tensor.to(dtype).contiguous() for name, tensor in tensors.items()}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(dict(config), indent=2) + "\n", encoding="utf-8")
