"""Damaged, incomplete and foreign files are refused in one line that names the tensor or the file."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from unmask.core.errors import CheckpointError
from unmask.models.source import INDEX, LoraSource, Place, RelaidSource, SafetensorsSource


def write_shards(folder: Path, **weight_map: Any) -> Path:
    """Two shards and an index; `weight_map` overrides its entries."""
    save_file({"a": torch.ones(2), "b": torch.zeros(3)}, folder / "one.safetensors")
    save_file({"c": torch.ones(4)}, folder / "two.safetensors")
    places = {"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"} | weight_map
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 36}, "weight_map": places}))
    return folder


def refused(folder: Path, match: str) -> None:
    with pytest.raises(CheckpointError, match=match) as caught:
        SafetensorsSource(folder)
    assert "\n" not in str(caught.value)


def unreadable(tensor: Tensor, folder: Path, match: str) -> None:
    save_file({"fine": torch.ones(3), "odd": tensor}, folder / "x.safetensors")
    source = SafetensorsSource(folder)
    assert torch.equal(source.read("fine"), torch.ones(3))
    with pytest.raises(CheckpointError, match=match) as caught:
        source.read("odd")
    assert "'odd'" in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_are_refused(value: float, dtype: torch.dtype, tmp_path: Path) -> None:
    tensor = torch.ones(5, 7)
    tensor[3, 2] = value
    unreadable(tensor.to(dtype), tmp_path, "holds NaN or infinity; the checkpoint is damaged")


def test_both_infinities_do_not_cancel(tmp_path: Path) -> None:
    unreadable(torch.tensor([float("inf"), -float("inf")]), tmp_path, "NaN or infinity")


def test_large_values_are_fine(tmp_path: Path) -> None:
    """Their sum overflows; they themselves do not."""
    save_file({"large": torch.full((64,), 3e38)}, tmp_path / "x.safetensors")
    assert SafetensorsSource(tmp_path).read("large").isfinite().all()


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.bool, torch.float8_e4m3fn])
def test_quantised_weights_are_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    kind = str(dtype).removeprefix("torch.")
    unreadable(torch.ones(4).to(dtype), tmp_path, f"is {kind}; take a checkpoint in bfloat16, float16 or float32")


def test_shards_under_an_index(tmp_path: Path) -> None:
    source = SafetensorsSource(write_shards(tmp_path))
    assert source.names() == {"a", "b", "c"}
    assert torch.equal(source.read("c"), torch.ones(4))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    (write_shards(tmp_path) / "two.safetensors").unlink()
    refused(tmp_path, r"1 files named in .*index\.json are not there, first 'two\.safetensors'; download them")


def test_a_truncated_shard_is_named(tmp_path: Path) -> None:
    file = write_shards(tmp_path) / "two.safetensors"
    file.write_bytes(file.read_bytes()[:-3])
    refused(tmp_path, r"cannot read .*two\.safetensors.*download it again")


def test_an_index_that_contradicts_its_files(tmp_path: Path) -> None:
    refused(write_shards(tmp_path, d="two.safetensors"), "places 'd' in a file that does not hold it")
    refused(write_shards(tmp_path, b="two.safetensors"), "places 'b' in a file that does not hold it")


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": 3}'])
def test_a_damaged_index(text: str, tmp_path: Path) -> None:
    (write_shards(tmp_path) / INDEX).write_text(text)
    refused(tmp_path, r"index\.json")


@pytest.mark.parametrize("file", [3, None, ["one.safetensors"]])
def test_an_index_with_odd_entries(file: Any, tmp_path: Path) -> None:
    refused(write_shards(tmp_path, a=file), "files named in")


def test_a_tensor_that_is_not_there(tmp_path: Path) -> None:
    source = SafetensorsSource(write_shards(tmp_path))
    with pytest.raises(CheckpointError, match="the checkpoint has no tensor 'z'"):
        source.read("z")


def test_relaid_tensors(tmp_path: Path) -> None:
    stack = torch.arange(24.0).view(3, 4, 2)
    save_file({"stack": stack, "plain": torch.ones(2), "other": torch.zeros(1)}, tmp_path / "x.safetensors")
    places = {
        "first": Place(name="stack", entry=0),
        "last.lower": Place(name="stack", entry=2, half=1),
        "renamed": Place(name="plain"),
    }
    source = RelaidSource(SafetensorsSource(tmp_path), places)
    assert source.names() == {"first", "last.lower", "renamed", "other"}
    assert torch.equal(source.read("first"), stack[0])
    assert torch.equal(source.read("last.lower"), stack[2, 2:])
    assert torch.equal(source.read("renamed"), torch.ones(2))
    assert torch.equal(source.read("other"), torch.zeros(1))


def test_relaid_tensors_are_checked_entry_by_entry(tmp_path: Path) -> None:
    stack = torch.ones(2, 3, 3)
    stack[1, 0, 0] = float("nan")
    save_file({"stack": stack}, tmp_path / "x.safetensors")
    source = RelaidSource(
        SafetensorsSource(tmp_path), {f"part{entry}": Place(name="stack", entry=entry) for entry in range(3)}
    )
    assert torch.equal(source.read("part0"), torch.ones(3, 3))
    for name, match in (("part1", "NaN"), ("part2", "cannot read tensor 'stack'")):
        with pytest.raises(CheckpointError, match=match):
            source.read(name)


@pytest.mark.parametrize(
    ("tensors", "name", "match"),
    [
        ({"unmask.mask_embedding": torch.ones(5)}, "table", "does not fit 'table'"),
        ({"unmask.mask_embedding": torch.ones(1)}, "table", "does not fit 'table'"),
        (
            {
                "base_model.model.table.lora_A.weight": torch.ones(4),
                "base_model.model.table.lora_B.weight": torch.ones(6),
            },
            "table.weight",
            "shapes do not fit",
        ),
    ],
)
def test_adapters_of_another_shape(tensors: dict[str, Tensor], name: str, match: str, tmp_path: Path) -> None:
    base = tmp_path / "base.safetensors"
    save_file({"table": torch.zeros(6, 4), "table.weight": torch.zeros(6, 4)}, base)
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps({"r": 1, "lora_alpha": 1}))
    save_file(tensors, tmp_path / "adapter" / "adapter_model.safetensors")
    source = LoraSource(SafetensorsSource(base), tmp_path / "adapter", 2, "table")
    with pytest.raises(CheckpointError, match=match):
        source.read(name)
