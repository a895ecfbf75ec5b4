"""Modules made from official tensors through a family's key map, one at a time, and the way back."""

import math
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from unmask.core.errors import CheckpointError
from unmask.models.linear import LinearFactory
from unmask.models.source import TensorSource


def check_names(source: TensorSource, key_map: Mapping[str, Sequence[str]], redundant: Collection[str] = ()) -> None:
    """Compares the names of a checkpoint with those of its family.

    Raises:
        CheckpointError: tensors missing, or left over and not redundant.
    """
    wanted = {name for names in key_map.values() for name in names}
    missing, extra = sorted(wanted - source.names()), sorted(source.names() - wanted - set(redundant))
    if missing:
        raise CheckpointError(f"{len(missing)} tensors are missing from the checkpoint, first {_few(missing)}")
    if extra:
        raise CheckpointError(f"{len(extra)} tensors of the checkpoint are not of this family, first {_few(extra)}")


def _few(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:3])


class Parts:
    """Reads parameters by our names.

    Args:
        source: tensors under their official names.
        key_map: our parameter name -> official tensors stacked to make it.
        linear: how projections are kept.
        transposed: last parts of our names whose official weights are (in, out).
    """

    def __init__(
        self,
        source: TensorSource,
        key_map: Mapping[str, Sequence[str]],
        linear: LinearFactory,
        transposed: Collection[str] = (),
    ) -> None:
        self._source = source
        self._key_map = key_map
        self._linear = linear
        self._transposed = transposed

    def fetch(self, name: str, *shape: int) -> Tensor:
        """Reads our parameter `name`, which must have this shape.

        Raises:
            CheckpointError: it has another.
        """
        official = self._key_map[name]
        parts = [self._source.read(part) for part in official]
        if name.split(".")[-1] in self._transposed:
            parts = [part.T if part.dim() == 2 else part for part in parts]
        fits = all(part.dim() == len(shape) and part.shape[1:] == shape[1:] for part in parts)
        if not fits or sum(part.shape[:1].numel() for part in parts) != math.prod(shape[:1]):
            found = " + ".join(str(tuple(part.shape)) for part in parts)
            raise CheckpointError(f"{official[0]!r} makes a {found} tensor, expected {shape}")
        return parts[0].contiguous() if len(parts) == 1 else torch.cat(parts)

    def projection(self, name: str, rows: int, columns: int, linear: LinearFactory | None = None) -> nn.Module:
        """A linear layer, with a bias where the key map has one; `linear` keeps this one in another way."""
        bias = self.fetch(f"{name}.bias", rows) if f"{name}.bias" in self._key_map else None
        return (linear or self._linear)(self.fetch(name, rows, columns), bias)


def parameter(model: nn.Module, ours: str) -> Tensor:
    """Finds the parameter that a key map calls `ours`.

    Raises:
        CheckpointError: it is kept in int8, which cannot be undone.
    """
    path = "lm_head" if ours == "head" else ours
    for name in (path, f"{path}.weight"):
        owner, _, last = name.rpartition(".")
        try:
            value = getattr(model.get_submodule(owner), last, None)
        except AttributeError:  # no such submodule
            continue
        if isinstance(value, nn.Parameter):
            return value
    raise CheckpointError(f"{ours} is kept in a form that cannot be saved; load the model in float32")
