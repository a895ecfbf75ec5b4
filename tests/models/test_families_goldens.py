"""Every family's logits equal those of its reference code, and its files come back bit for bit."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.models.dense_attention import block_causal, dense_attention, full
from tests.models.golden_checkpoints import FOLDERS, GOLDENS, checkpoint
from unmask.models.linear import PlainLinear, TiledLinear
from unmask.models.loading import load
from unmask.models.saving import official_tensors, save_checkpoint

CASES = [
    (folder, case["name"])
    for folder in FOLDERS
    for case in json.loads((GOLDENS / folder / "cases.json").read_text())["cases"]
    if case["kind"] == "logits"
]


def read_case(folder: str, name: str) -> dict[str, Any]:
    cases = json.loads((GOLDENS / folder / "cases.json").read_text())["cases"]
    return next(case for case in cases if case["name"] == name)


def visible_to(case: dict[str, Any], row: int) -> Tensor:
    """What the case says about attention: block-causal, or full with the padded keys of a batch hidden."""
    length = len(case["input_ids"][row])
    if "block_length" in case:
        assert case["attention"] == "block-causal"
        return block_causal(length, case["block_length"])
    is_real = case.get("attention_mask")
    return full(length, None if is_real is None else is_real[row])


def test_every_checkpoint_has_logits() -> None:
    assert {folder for folder, _ in CASES} == set(FOLDERS)
    assert len(FOLDERS) >= 19


@pytest.mark.parametrize(("folder", "name"), CASES)
def test_logits(folder: str, name: str, tmp_path: Path) -> None:
    """Padding on the left leaves the position ids as they are, for these cases (LLaDA); A2D pads on the right."""
    case = read_case(folder, name)
    wanted = load_file(GOLDENS / folder / "logits.safetensors")[case["tensor"]]
    model = load(checkpoint(folder, tmp_path), linear=TiledLinear).model
    assert wanted.std() > 0.5, "flat logits show nothing"
    for row, ids in enumerate(case["input_ids"]):
        with torch.inference_mode():
            attend = dense_attention(visible_to(case, row))
            hidden = model(torch.tensor(ids), torch.arange(len(ids)), attend)
            got = model.head(hidden[case["positions"]])
        torch.testing.assert_close(got, wanted[row], atol=2e-4, rtol=0)


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_come_back_bit_for_bit(folder: str, tmp_path: Path) -> None:
    """load -> save -> load -> save, official names and values."""
    original = load_file(GOLDENS / folder / "model.safetensors")
    source = checkpoint(folder, tmp_path)
    for copy in (tmp_path / "first", tmp_path / "second"):
        raw = json.loads((source / "config.json").read_text())
        save_checkpoint(copy, official_tensors(load(source, linear=PlainLinear), raw), raw, torch.float32)
        again = load_file(copy / "model.safetensors")
        assert again.keys() == original.keys()
        assert all(torch.equal(again[name], tensor) for name, tensor in original.items())
        assert json.loads((copy / "config.json").read_text()) == raw
        source = copy
