"""Training state on disk: safetensors and JSON only, replaced atomically, so a killed run resumes where it was."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from unmask.core.errors import ConfigError


def save_state(
    folder: Path, named: Mapping[str, Tensor], optimizer: torch.optim.Optimizer, progress: dict[str, Any]
) -> None:
    """Writes parameters, optimiser moments and progress into `folder`.

    Args:
        folder: created if absent.
        named: trainable parameters by name, in the optimiser's order.
        optimizer: an AdamW over exactly these.
        progress: JSON-ready facts (step, settings).
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {f"parameter.{name}": tensor.detach() for name, tensor in named.items()}
    for name, tensor in named.items():
        for key, value in optimizer.state.get(tensor, {}).items():
            tensors[f"{key}.{name}"] = value.detach().clone() if torch.is_tensor(value) else torch.tensor(value)
    partial = folder / "state.safetensors.partial"
    save_file({name: t.contiguous() for name, t in tensors.items()}, partial, {"progress": json.dumps(progress)})
    partial.replace(folder / "state.safetensors")


def load_state(folder: Path, named: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
    """Fills parameters and moments from `folder`; returns the progress, or None if there is no state.

    Raises:
        ConfigError: the state is of another model or run.
    """
    file = folder / "state.safetensors"
    if not file.is_file():
        return None
    try:
        with safe_open(file, framework="pt") as handle:
            progress = json.loads(handle.metadata()["progress"])
        tensors = load_file(file)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"cannot read {file}: {error}; delete it to start the run again") from error
    stored = {name.removeprefix("parameter.") for name in tensors if name.startswith("parameter.")}
    if stored != set(named):
        raise ConfigError(f"{file} belongs to a run with other trainable parameters; choose another --out")
    with torch.no_grad():
        for name, parameter in named.items():
            parameter.copy_(tensors[f"parameter.{name}"])
            moments = {
                key: tensors[f"{key}.{name}"] for key in ("step", "exp_avg", "exp_avg_sq") if f"{key}.{name}" in tensors
            }
            if moments:
                optimizer.state[parameter] = moments
    return progress
