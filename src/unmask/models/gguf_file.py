"""Reading the GGUF container: metadata, and the raw bytes of each tensor, memory-mapped.

The `gguf` package has a reader too; it makes an array object for every string and needs seconds for a vocabulary.

Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
"""

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

from unmask.core.errors import CheckpointError

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_PLAIN_TYPES = {"F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"}
_MAX_DIMENSIONS = 4


@dataclass(frozen=True, kw_only=True)
class GgufTensor:
    """One tensor as it lies in the file.

    Attributes:
        shape: outermost axis first (GGUF itself writes the innermost first).
        kind: how values are packed.
        start: byte offset in the file.
        num_bytes: packed size.
    """

    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    start: int
    num_bytes: int


class GgufFile:
    """An open GGUF file.

    Attributes:
        path: of the file.
        tensors: by GGUF name.

    Raises:
        CheckpointError: not a GGUF file, cut short, damaged, or packed in a way we cannot read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"cannot read {path}: {error}") from error
        cursor = _Cursor(self._data)
        try:
            num_tensors, num_fields = _read_head(cursor)
            self._fields: Mapping[str, Any] = {cursor.string(): cursor.value() for _ in range(num_fields)}
            self.tensors = self._read_tensors(cursor, num_tensors)
        except (struct.error, ValueError, RecursionError) as error:
            raise CheckpointError(f"{path} is not a whole GGUF file ({error}); download it again") from error

    def field(self, name: str) -> Any:
        """Returns a metadata value.

        Raises:
            CheckpointError: the file has no such field.
        """
        if name not in self._fields:
            raise CheckpointError(f"{self.path} has no field {name!r}")
        return self._fields[name]

    def read(self, name: str) -> NDArray[np.float32]:
        """Returns one tensor, dequantised."""
        tensor = self.tensors[name]
        packed = np.frombuffer(self._data, np.uint8, tensor.num_bytes, tensor.start)
        return dequantize(packed.reshape(*tensor.shape[:-1], -1), tensor.kind).reshape(tensor.shape)

    def _read_tensors(self, cursor: "_Cursor", count: int) -> dict[str, GgufTensor]:
        """Reads the table of tensors and checks that each lies inside the file."""
        found: dict[str, tuple[tuple[int, ...], GGMLQuantizationType, int]] = {}
        for _ in range(count):
            name = cursor.string()
            num_dimensions = cursor.scalar("I")
            if name in found or not 1 <= num_dimensions <= _MAX_DIMENSIONS:
                raise ValueError(f"bad table entry for tensor {name!r}")
            shape = tuple(reversed(cursor.scalars("Q", num_dimensions)))
            found[name] = (shape, _kind(cursor.scalar("I"), name), cursor.scalar("Q"))
        alignment = self._fields.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"bad alignment {alignment!r}")
        data_start = -(-cursor.at // alignment) * alignment
        tensors: dict[str, GgufTensor] = {}
        for name, (shape, kind, offset) in found.items():
            per_block, block_bytes = GGML_QUANT_SIZES[kind]
            num_values = int(np.prod(shape, dtype=object))
            num_bytes = num_values // per_block * block_bytes
            start = data_start + offset
            if num_values < 1 or shape[-1] % per_block or start + num_bytes > len(self._data):
                raise ValueError(f"tensor {name!r} reaches past the end")
            tensors[name] = GgufTensor(shape=shape, kind=kind, start=start, num_bytes=num_bytes)
        return tensors


def _read_head(cursor: "_Cursor") -> tuple[int, int]:
    """Checks magic and version; returns the numbers of tensors and of metadata fields."""
    if cursor.take(4) != b"GGUF":
        raise ValueError("it does not start with 'GGUF'")
    version = cursor.scalar("I")
    if version not in (2, 3):
        raise ValueError(f"version {version}, expected 2 or 3")
    return cursor.scalar("Q"), cursor.scalar("Q")


def _kind(number: int, name: str) -> GGMLQuantizationType:
    known = {kind.value: kind for kind in GGMLQuantizationType if kind.name in _PLAIN_TYPES}
    if number not in known:
        raise ValueError(f"tensor {name!r} is packed as ggml type {number}; known: {', '.join(sorted(_PLAIN_TYPES))}")
    return known[number]


class _Cursor:
    """Reads little-endian values one after the other; struct.error or ValueError past the end."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.at = 0

    def take(self, count: int) -> bytes:
        if count > len(self._data) - self.at:
            raise ValueError("it ends too early")
        self.at += count
        return self._data[self.at - count : self.at]

    def scalar(self, code: str) -> Any:
        return self.scalars(code, 1)[0]

    def scalars(self, code: str, count: int) -> tuple[Any, ...]:
        size = struct.calcsize(f"<{code}")
        return struct.unpack(f"<{count}{code}", self.take(size * count))

    def string(self) -> str:
        return self.take(self.scalar("Q")).decode("utf-8")

    def value(self) -> Any:
        """A typed metadata value; arrays become lists."""
        return self._typed(self.scalar("I"))

    def _typed(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            inner, count = self.scalar("I"), self.scalar("Q")
            if inner in _SCALARS:
                return list(self.scalars(_SCALARS[inner], count))
            if inner not in (_STRING, _ARRAY) or count > len(self._data):
                raise ValueError("bad array in the metadata")
            return [self._typed(inner) for _ in range(count)]
        if kind not in _SCALARS:
            raise ValueError(f"unknown metadata type {kind}")
        return self.scalar(_SCALARS[kind])
