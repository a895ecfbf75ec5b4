"""Folders of recorded cases: found, read, checked, and opened as checkpoints.

The format stands in tests/goldens/README.md: `config.json`, `model.safetensors`, `cases.json`, `logits.safetensors`.
"""

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from unmask.core.errors import CheckpointError, ConfigError
from unmask.models.linear import LinearFactory, TiledLinear
from unmask.models.loading import Loaded, load, read_json

CASES, LOGITS, WEIGHTS = "cases.json", "logits.safetensors", "model.safetensors"
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "logits": ("input_ids", "positions", "tensor"),
    "generate": ("function", "parameters", "output_ids"),
}
"""Kind of a case -> what it must hold."""

Case = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class CaseFolder:
    """One folder of cases, read and checked.

    Attributes:
        path: the folder.
        family: as its cases.json names it.
        cases: in the order of the file.
        special: ids by name, such as "mask_token_id".
        raw: everything else in cases.json.
    """

    path: Path
    family: str
    cases: tuple[Case, ...]
    special: Mapping[str, int]
    raw: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path) -> "CaseFolder":
        """Reads and checks `cases.json`.

        Raises:
            CheckpointError: no such file, or not in the format; one line.
        """
        file = path / CASES
        raw = read_json(file)
        cases, family, special = raw.get("cases"), raw.get("family"), raw.get("special_tokens", {})
        if raw.get("format") != 1:
            raise CheckpointError(f"{file} has format {raw.get('format')!r}; this version reads format 1")
        if not isinstance(cases, list) or not cases or not isinstance(family, str):
            raise CheckpointError(f"{file} needs a list 'cases' and a name 'family'; record it again")
        if not isinstance(special, dict) or not all(isinstance(value, int) for value in special.values()):
            raise CheckpointError(f"special_tokens in {file} must be an object of ids")
        seen: set[str] = set()
        for index, case in enumerate(cases):
            _check_case(file, index, case)
            if case["name"] in seen:
                raise CheckpointError(f"{file} holds two cases named {case['name']!r}")
            seen.add(case["name"])
        return cls(path=path, family=family, cases=tuple(cases), special=special, raw=raw)

    def case(self, name: str) -> Case:
        """The case of that name.

        Raises:
            KeyError: there is none.
        """
        return {case["name"]: case for case in self.cases}[name]

    def tensors(self) -> dict[str, Tensor]:
        """The recorded logits by name.

        Raises:
            CheckpointError: no such file, damaged, or a tensor that a case names is not there.
        """
        file = self.path / LOGITS
        try:
            tensors = load_file(file)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"cannot read {file}: {error}") from error
        wanted = [case["tensor"] for case in self.cases if "tensor" in case]
        wanted += [case["logprobs"]["tensor"] for case in self.cases if "logprobs" in case]
        lost = [name for name in wanted if name not in tensors]
        if lost:
            raise CheckpointError(f"{file} has no tensor {lost[0]!r}, which {CASES} names")
        return tensors

    def config(self) -> dict[str, Any]:
        """config.json, with the mask id of the cases where it names none."""
        raw = read_json(self.path / "config.json")
        if raw.get("mask_token_id") is None and "mask_token_id" in self.special:
            raw["unmask"] = {"mask_token_id": self.special["mask_token_id"], **raw.get("unmask", {})}
        return raw

    def checkpoint(self, where: Path, **changes: Any) -> Path:
        """Writes config and weights alone into `where`: the recorded logits beside them are a safetensors file too.

        Args:
            where: an existing folder.
            changes: fields of config.json to set; the weights stay.
        """
        if not (self.path / WEIGHTS).is_file():
            raise CheckpointError(f"{self.path / WEIGHTS} does not exist; the cases need their weights")
        (where / "config.json").write_text(json.dumps(self.config() | changes))
        (where / WEIGHTS).symlink_to((self.path / WEIGHTS).resolve())
        return where

    def load(self, linear: LinearFactory = TiledLinear) -> Loaded:
        """Opens the checkpoint with our loader, by default as the engine's fp32 reference.

        Raises:
            CheckpointError: unsupported, incomplete or damaged.
        """
        with tempfile.TemporaryDirectory() as where:
            return load(self.checkpoint(Path(where)), linear=linear)


def find_folders(paths: Iterable[Path]) -> Iterator[Path]:
    """Every folder of cases at or below the given ones, in order.

    Raises:
        ConfigError: no such folder, or no cases in it.
    """
    for path in paths:
        if not path.is_dir():
            raise ConfigError(f"no folder at {path}; give one that holds {CASES}, or a tree of such")
        found = sorted(file.parent for file in path.rglob(CASES))
        if not found:
            raise ConfigError(f"there is no {CASES} in {path} or below; docs/verify.md describes the format")
        yield from found


def _check_case(file: Path, index: int, case: object) -> None:
    if not isinstance(case, dict) or not isinstance(case.get("name"), str):
        raise CheckpointError(f"case {index} of {file} has no name")
    kind, name = case.get("kind"), case["name"]
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise CheckpointError(f"case {name!r} of {file} has the unknown kind {kind!r} (known: {', '.join(_FIELDS)})")
    lost = [field for field in _FIELDS[kind] if field not in case]
    if kind == "generate" and "input_ids" not in case and "inputs" not in case:
        lost.append("input_ids")
    if lost:
        raise CheckpointError(f"case {name!r} of {file} has no {lost[0]!r}")
