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

_FILE = "state.safetensors"


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
    partial = folder / f"{_FILE}.partial"
    save_file({name: t.contiguous() for name, t in tensors.items()}, partial, {"progress": json.dumps(progress)})
    partial.replace(folder / _FILE)


def read_progress(folder: Path) -> dict[str, Any] | None:
    """Returns the progress stored in `folder`, None if there is none.

    Raises:
        ConfigError: the state cannot be read.
    """
    file = folder / _FILE
    if not file.is_file():
        return None
    try:
        with safe_open(file, framework="pt") as handle:
            return json.loads(handle.metadata()["progress"])
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"cannot read {file}: {error}; delete it to start the run again") from error


def load_state(folder: Path, named: Mapping[str, Tensor], optimizer: torch.optim.Optimizer) -> None:
    """Fills parameters and moments from the state in `folder`.

    Raises:
        ConfigError: the state cannot be read, or is of another model.
    """
    file = folder / _FILE
    try:
        tensors = load_file(file)
    except (SafetensorError, OSError) as error:
        raise ConfigError(f"cannot read {file}: {error}; delete it to start the run again") from error
    shapes = {name: tensors[f"parameter.{name}"].shape for name in named if f"parameter.{name}" in tensors}
    if shapes != {name: parameter.shape for name, parameter in named.items()}:
        raise ConfigError(f"{file} belongs to a run with other trainable parameters; choose another --out")
    with torch.no_grad():
        for name, parameter in named.items():
            parameter.copy_(tensors[f"parameter.{name}"])
            keys = ("step", "exp_avg", "exp_avg_sq")
            moments = {key: tensors[f"{key}.{name}"] for key in keys if f"{key}.{name}" in tensors}
            if moments:
                optimizer.state[parameter] = moments


def append_log(file: Path, row: Mapping[str, float]) -> None:
    """Adds a line to a run's log."""
    with file.open("a", encoding="utf-8") as log:
        log.write(json.dumps(row) + "\n")


def cut_log(file: Path, step: int) -> None:
    """Drops the log's lines after `step` (steps that were taken and lost), and a last line cut short by a kill."""
    if not file.exists():
        return
    kept: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError):
            continue
    partial = file.with_suffix(".partial")
    partial.write_text("".join(kept), encoding="utf-8")
    partial.replace(file)
