"""Named tensors of a checkpoint, read on demand: from safetensors files, relaid, or with an adapter merged."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from unmask.core.errors import CheckpointError

INDEX = "model.safetensors.index.json"
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class TensorSource(Protocol):
    """Named tensors of a checkpoint, read on demand."""

    def names(self) -> set[str]:
        """All tensor names in official spelling."""
        ...

    def read(self, name: str) -> Tensor:
        """Returns one tensor as float32."""
        ...


class SafetensorsSource:
    """`*.safetensors` files of one folder (or one file), memory-mapped.

    Raises:
        CheckpointError: no such file, a damaged or missing one, or a pickle checkpoint.
    """

    def __init__(self, path: Path) -> None:
        files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
        if not files:
            pickles = [*path.glob("*.bin"), *path.glob("*.pt"), *path.glob("*.pth")]
            hint = "; pickle files are refused, convert them to safetensors" if pickles else ""
            raise CheckpointError(f"no .safetensors file in {path}{hint}")
        self._handles: dict[str, Any] = {}
        homes: dict[str, str] = {}
        for file in files:
            try:
                handle = safe_open(file, framework="pt")
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"cannot read {file}: {error}; download it again") from error
            for name in handle.keys():  # noqa: SIM118 - safe_open has no __iter__
                if name in self._handles:
                    raise CheckpointError(f"tensor {name!r} is in more than one file of {path}; remove the stale files")
                self._handles[name] = handle
                homes[name] = file.name
        if (path / INDEX).is_file():
            _check_index(path / INDEX, homes, {file.name for file in files})

    def names(self) -> set[str]:
        """All tensor names."""
        return set(self._handles)

    def read(self, name: str) -> Tensor:
        """Returns one tensor as float32.

        Raises:
            CheckpointError: no such tensor, a dtype that is not plain floating point, or NaN or infinity inside.
        """
        return self._checked(name, lambda handle: handle.get_tensor(name))

    def read_entry(self, name: str, index: int) -> Tensor:
        """Returns entry `index` along the first axis as float32, without reading the rest."""
        return self._checked(name, lambda handle: handle.get_slice(name)[index])

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor, without reading it."""
        return tuple(self._handles[name].get_slice(name).get_shape())

    def value_bytes(self, name: str) -> int:
        """Bytes that one value of a tensor takes in its file.

        Raises:
            CheckpointError: a dtype that this version does not know.
        """
        kind = self._handles[name].get_slice(name).get_dtype()
        digits = "".join(char for char in kind.partition("_")[0] if char.isdigit())
        if kind != "BOOL" and not digits:
            raise CheckpointError(f"tensor {name!r} has the unknown dtype {kind}")
        return 1 if kind == "BOOL" else max(int(digits) // 8, 1)

    def _checked(self, name: str, take: Callable[[Any], Tensor]) -> Tensor:
        if name not in self._handles:
            raise CheckpointError(f"the checkpoint has no tensor {name!r}")
        try:
            tensor = take(self._handles[name])
        except (SafetensorError, OSError, IndexError) as error:
            raise CheckpointError(f"cannot read tensor {name!r}: {error}; download the checkpoint again") from error
        if tensor.dtype not in _FLOATS:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise CheckpointError(f"tensor {name!r} is {kind}; take a checkpoint in bfloat16, float16 or float32")
        tensor = tensor.float()
        # NaN and infinity survive a sum, which is ten times cheaper than looking at every value; a sum that merely
        # overflowed is looked at
        if not tensor.sum().isfinite() and not tensor.isfinite().all():
            raise CheckpointError(f"tensor {name!r} holds NaN or infinity; the checkpoint is damaged")
        return tensor


def _check_index(index: Path, homes: Mapping[str, str], files: set[str]) -> None:
    """Compares the index of a sharded checkpoint with the files that are there."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError(f"{index} has no object 'weight_map'; download it again")
    lost = sorted({str(file) for file in weight_map.values()} - files)
    if lost:
        raise CheckpointError(f"{len(lost)} files named in {index} are not there, first {lost[0]!r}; download them")
    astray = sorted(name for name, file in weight_map.items() if homes.get(name) != file)
    if astray:
        raise CheckpointError(f"{index} places {astray[0]!r} in a file that does not hold it; download both again")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an official tensor lies in files of another layout.

    Attributes:
        name: the stored tensor.
        entry: its entry along the first axis; None for the whole tensor.
        half: 0 or 1 for the first or second half of the rows that `entry` leaves; None for all.
    """

    name: str
    entry: int | None = None
    half: int | None = None


class RelaidSource:
    """Official names over files in another layout; tensors that no place mentions keep their own name.

    Args:
        base: the files.
        places: official name -> where it lies.
    """

    def __init__(self, base: SafetensorsSource, places: Mapping[str, Place]) -> None:
        self._base = base
        self._places = places
        self._own = base.names() - {place.name for place in places.values()}

    def names(self) -> set[str]:
        """All tensor names in official spelling, and what no place accounts for."""
        return self._own | set(self._places)

    def read(self, name: str) -> Tensor:
        """Returns one tensor as float32."""
        place = self._places.get(name, Place(name=name))
        tensor = self._base.read(place.name) if place.entry is None else self._base.read_entry(place.name, place.entry)
        return tensor if place.half is None else tensor.chunk(2)[place.half]


class LoraSource:
    """A base source with a LoRA adapter merged on the fly: W + (alpha / r) * B @ A.

    Adapter files use the PEFT layout (`adapter_config.json`, `adapter_model.safetensors`). Beside PEFT's tensors
    ours may hold `unmask.mask_embedding` [D], the trained input embedding of the mask token.
    Source: LoRA, arXiv 2106.09685 section 4.1.

    Raises:
        CheckpointError: damaged adapter, or one that does not fit the base.
    """

    _PREFIX = "base_model.model."
    _MASK_ROW = "unmask.mask_embedding"

    def __init__(
        self,
        base: TensorSource,
        folder: Path,
        mask_token_id: int | None,
        embedding: str = "model.embed_tokens.weight",
    ) -> None:
        self._base = base
        self._embedding = embedding
        self._mask_token_id = mask_token_id
        self._scale = _lora_scale(folder)
        self._adapter = SafetensorsSource(folder / "adapter_model.safetensors")
        factors = {name for name in self._adapter.names() if name.endswith((".lora_A.weight", ".lora_B.weight"))}
        self._stems = stems = {name.rsplit(".lora_", 1)[0] for name in factors}
        halves = sorted(f"{stem}.lora_{part}.weight" for stem in stems for part in "AB")
        halves = [name for name in halves if name not in factors]
        if halves:
            raise CheckpointError(f"the adapter in {folder} has no {halves[0]!r}")
        odd = sorted(self._adapter.names() - factors - {self._MASK_ROW})
        if odd or (mask_token_id is None and self._MASK_ROW in self._adapter.names()):
            raise CheckpointError(
                f"the adapter in {folder} holds {(odd or [self._MASK_ROW])[0]!r}, which has no use here"
            )
        lost = sorted(stem for stem in stems if f"{stem.removeprefix(self._PREFIX)}.weight" not in base.names())
        if lost:
            raise CheckpointError(f"the adapter in {folder} targets {lost[0]!r}, which the base model does not have")

    def names(self) -> set[str]:
        """All tensor names of the base."""
        return self._base.names()

    def read(self, name: str) -> Tensor:
        """Returns one merged tensor as float32."""
        weight = self._base.read(name)
        stem = self._PREFIX + name.removesuffix(".weight")
        if stem in self._stems:
            down, up = (self._adapter.read(f"{stem}.lora_{part}.weight") for part in "AB")
            fits = up.dim() == down.dim() == weight.dim() == 2 and up.shape[1] == down.shape[0]
            if not fits or (up.shape[0], down.shape[1]) != weight.shape:
                raise CheckpointError(f"the adapter's shapes do not fit {name!r} {tuple(weight.shape)}")
            weight = torch.addmm(weight, up, down, alpha=self._scale)
        if name == self._embedding and self._MASK_ROW in self._adapter.names():
            assert self._mask_token_id is not None, "checked at the start"
            row = self._adapter.read(self._MASK_ROW)
            if row.shape != weight.shape[1:] or self._mask_token_id >= weight.shape[0]:
                raise CheckpointError(f"the adapter's {self._MASK_ROW} does not fit {name!r} {tuple(weight.shape)}")
            weight[self._mask_token_id] = row
        return weight


def _lora_scale(folder: Path) -> float:
    """Reads alpha / r; refuses variants of LoRA that change what the factors mean."""
    config = read_json(folder / "adapter_config.json")
    for name in ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "fan_in_fan_out", "lora_bias"):
        if config.get(name):
            raise CheckpointError(f"{folder / 'adapter_config.json'}: {name} is not supported; only plain LoRA is")
    try:
        return float(config["lora_alpha"]) / float(config["r"])
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise CheckpointError(f"{folder / 'adapter_config.json'} needs numbers r > 0 and lora_alpha") from error


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        CheckpointError: no such file, or not a JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist; a checkpoint folder needs it") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return value
