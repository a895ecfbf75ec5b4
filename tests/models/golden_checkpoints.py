"""The golden checkpoints as folders that load by themselves."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

GOLDENS = Path(__file__).parents[1] / "goldens"
ELSEWHERE = {"bd3lm", "mdlm", "diffusion_gemma"}
"""Families whose blocks are not the shared ones; their tests stand in files of their own."""

FOLDERS = sorted(
    str(path.parent.relative_to(GOLDENS)) for path in GOLDENS.glob("*/*/config.json") if path.parts[-3] not in ELSEWHERE
)


def config_of(folder: str) -> dict[str, Any]:
    """config.json, with the mask id of the cases where the official one names none."""
    raw: dict[str, Any] = json.loads((GOLDENS / folder / "config.json").read_text())
    tokens = json.loads((GOLDENS / folder / "cases.json").read_text())["special_tokens"]
    if "mask_token_id" not in raw and "mask_token_id" in tokens:
        raw["unmask"] = {"mask_token_id": tokens["mask_token_id"]}
    return raw


def checkpoint(folder: str, tmp_path: Path, **changes: Any) -> Path:
    """Config and weights alone: the expected logits beside them are a safetensors file too.

    Args:
        folder: `<family>/<checkpoint>`.
        tmp_path: where to make it.
        changes: fields of config.json to set; the weights stay.
    """
    copy = tmp_path / "checkpoint"
    copy.mkdir()
    (copy / "config.json").write_text(json.dumps(config_of(folder) | changes))
    (copy / "model.safetensors").symlink_to(GOLDENS / folder / "model.safetensors")
    return copy


def rewrite(folder: Path, tensors: dict[str, Tensor]) -> Path:
    """Puts other weights into a checkpoint folder."""
    (folder / "model.safetensors").unlink()
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder
