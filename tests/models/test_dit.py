"""MDLM and BD3-LM compute what the official code computes, and their files come back bit for bit."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.models.dense_attention import block_causal, dense_attention, full
from unmask.core.errors import CheckpointError
from unmask.models.config import AttentionPattern
from unmask.models.dit import build_dit, subs_log_probs
from unmask.models.families import mdlm
from unmask.models.linear import Int8Linear, LinearFactory, PlainLinear, TiledLinear
from unmask.models.loading import Loaded, load
from unmask.models.saving import official_tensors, save_checkpoint
from unmask.models.source import SafetensorsSource
from unmask.models.transformer import Attend, Transformer
from unmask.verify.logits import two_streams

GOLDENS = Path(__file__).parents[1] / "goldens"
FOLDERS = ("mdlm/small", "bd3lm/block4")
MASK = 257
Files = tuple[dict[str, Any], dict[str, Tensor]]


def files(folder: str) -> Files:
    raw = json.loads((GOLDENS / folder / "config.json").read_text())
    return raw, load_file(GOLDENS / folder / "model.safetensors")


def write(folder: Path, files: Files, **changes: Any) -> Path:
    """A checkpoint folder; a change of None removes the field."""
    raw = {name: value for name, value in (files[0] | changes).items() if value is not None}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw))
    save_file(files[1], folder / "model.safetensors")
    return folder


def opened(folder: str, tmp_path: Path, linear: LinearFactory = TiledLinear) -> Loaded:
    return load(write(tmp_path / "checkpoint", files(folder)), linear=linear)


def golden_cases(folder: str) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    cases = json.loads((GOLDENS / folder / "cases.json").read_text())["cases"]
    return cases, load_file(GOLDENS / folder / "logits.safetensors")


def logits(model: Transformer, ids: Tensor, visible: Tensor, positions: Tensor | None = None) -> Tensor:
    positions = torch.arange(ids.shape[0]) if positions is None else positions
    with torch.inference_mode():
        return model.head(model(ids, positions, dense_attention(visible)))


def close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, atol=2e-4, rtol=0)


def check_log_probs(logits_RV: Tensor, ids_R: Tensor, wanted_RV: Tensor) -> None:
    """The reference has about -1e6 where we have -inf."""
    got = subs_log_probs(logits_RV, ids_R, MASK)
    possible = wanted_RV > -1e5
    assert torch.equal(possible, got > -torch.inf)
    close(got[possible], wanted_RV[possible])
    torch.testing.assert_close(got.exp().sum(-1), torch.ones(ids_R.shape[0]))


# --- parity ------------------------------------------------------------------------------------------------------


def test_mdlm_goldens(tmp_path: Path) -> None:
    model = opened("mdlm/small", tmp_path).model
    cases, tensors = golden_cases("mdlm/small")
    checked = 0
    for case in cases:
        if case.get("time_conditioning"):
            continue
        for row, ids in enumerate(torch.tensor(case["input_ids"])):
            positions = case["positions"]
            got = logits(model, ids, full(ids.shape[0]))[positions]
            close(got, tensors[case["tensor"]][row])
            check_log_probs(got, ids[positions], tensors[case["logprobs"]["tensor"]][row])
            checked += 1
    assert checked == 4


def test_the_noise_level_reaches_every_block() -> None:
    """A model told another noise level than 0, as the raw backbone of the reference was in this case."""
    cases, tensors = golden_cases("mdlm/small")
    (case,) = (case for case in cases if case.get("time_conditioning"))
    raw, _ = files("mdlm/small")
    config = mdlm.build_config(raw)
    source = SafetensorsSource(GOLDENS / "mdlm/small" / "model.safetensors")
    ids = torch.tensor(case["input_ids"][0])
    told, at_rest = (
        logits(build_dit(source, config, mdlm.key_map(config), TiledLinear, sigma=sigma), ids, full(len(ids)))
        for sigma in (case["sigma"][0], 0.0)
    )
    close(told[case["positions"]], tensors[case["tensor"]][0])
    assert (told - at_rest).abs().max() > 0.01, "sigma makes a difference"


def test_bd3lm_goldens(tmp_path: Path) -> None:
    model = opened("bd3lm/block4", tmp_path).model
    cases, tensors = golden_cases("bd3lm/block4")
    assert len(cases) == 4
    for case in cases:
        ids, size = torch.tensor(case["input_ids"][0]), case["block_size"]
        visible, positions, length = block_causal(ids.shape[0], size), torch.arange(ids.shape[0]), ids.shape[0]
        if case["name"] == "train":
            length = ids.shape[0] // 2
            visible, positions = two_streams(length, size), torch.arange(length).repeat(2)
        got = logits(model, ids, visible, positions)
        close(got[case["positions"]], tensors[case["tensor"]][0])
        rows = case["logprobs"]["positions"]
        rows = list(range(length - size, length)) if rows == "last block" else rows
        check_log_probs(got[rows], ids[rows], tensors[case["logprobs"]["tensor"]][0])


def test_noisy_rows_see_what_decoding_would_show_them() -> None:
    """The hand-worked rows of two blocks of two."""
    wanted = {0: "11000000", 2: "00111100", 4: "00001100", 6: "00001111"}
    visible = two_streams(4, 2).int()
    assert {row: "".join(map(str, visible[row].tolist())) for row in wanted} == wanted


# --- facts, files ------------------------------------------------------------------------------------------------


def test_facts(tmp_path: Path) -> None:
    traits = opened("mdlm/small", tmp_path).traits
    assert (traits.attention, traits.block_size) == (AttentionPattern.BIDIRECTIONAL, 32)
    assert (traits.mask_token_id, traits.eos_ids, traits.logit_shift) == (257, {256}, 0)
    assert (traits.max_positions, traits.vocab_size) == (32, 258)
    traits = opened("bd3lm/block4", tmp_path).traits
    assert (traits.attention, traits.block_size) == (AttentionPattern.BLOCK_CAUSAL, 4)
    whole = load(write(tmp_path / "whole", files("bd3lm/block4"), block_size=32), linear=TiledLinear).traits
    assert (whole.attention, whole.block_size) == (AttentionPattern.BIDIRECTIONAL, 32)


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("linear", [PlainLinear, TiledLinear])
def test_save_and_load_round_trip(folder: str, linear: LinearFactory, tmp_path: Path) -> None:
    raw, weights = files(folder)
    loaded = opened(folder, tmp_path, linear)
    tensors = official_tensors(loaded, raw)
    assert tensors.keys() == weights.keys()
    assert all(torch.equal(tensors[name], weight) for name, weight in weights.items())
    save_checkpoint(tmp_path / "saved", tensors, raw, torch.float32)
    again = load_file(tmp_path / "saved" / "model.safetensors")
    assert again.keys() == weights.keys()
    assert all(torch.equal(again[name], weight) for name, weight in weights.items())
    assert load(tmp_path / "saved", linear=linear).config == loaded.config


def test_a_checkpoint_without_the_clipped_schedule_comes_back_without_it(tmp_path: Path) -> None:
    raw, weights = files("bd3lm/block4")
    plain = {name: weight for name, weight in weights.items() if not name.startswith("sampling_eps")}
    loaded = load(write(tmp_path / "checkpoint", (raw, plain)), linear=TiledLinear)
    assert official_tensors(loaded, raw).keys() == plain.keys()


@pytest.mark.filterwarnings("ignore:torch.quantize_per")
def test_int8_weights_are_not_saved_as_if_they_were_whole(tmp_path: Path) -> None:
    loaded = opened("mdlm/small", tmp_path, Int8Linear)
    with pytest.raises(CheckpointError, match="fp32"):
        official_tensors(loaded, files("mdlm/small")[0])


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"n_blocks": None}, "n_blocks"),
        ({"n_heads": 5}, "n_heads 5"),
        ({"model_length": 0}, "model_length"),
        ({"time_conditioning": True}, "time_conditioning"),
        ({"causal": True}, "autoregressive"),
        ({"adaln": False}, "autoregressive"),
        ({"block_size": 0}, "block_size"),
        ({"n_blocks": 3}, "missing"),
        ({"n_blocks": 1}, "not of this family"),
        ({"vocab_size": 300}, "expected"),
        ({"n_heads": 8}, "inv_freq"),
    ],
)
def test_configs_that_do_not_fit_are_refused(changes: dict[str, Any], match: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=match) as caught:
        load(write(tmp_path / "checkpoint", files("bd3lm/block4"), **changes), linear=TiledLinear)
    assert "\n" not in str(caught.value)


def test_other_rotary_frequencies_are_refused(tmp_path: Path) -> None:
    raw, weights = files("mdlm/small")
    weights["backbone.rotary_emb.inv_freq"][1] *= 1.1
    with pytest.raises(CheckpointError, match="rotary frequencies"):
        load(write(tmp_path / "checkpoint", (raw, weights)), linear=TiledLinear)


# --- rows --------------------------------------------------------------------------------------------------------


def own_rows(lengths: list[int]) -> Attend:
    """Sequences side by side, each under its own full attention."""

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        parts = zip(*(x.split(lengths) for x in (q, k, v)), strict=True)
        return torch.cat([dense_attention(full(part[0].shape[0]))(layer, *part) for part in parts])

    return attend


@pytest.mark.filterwarnings("ignore:torch.quantize_per")
@pytest.mark.parametrize("linear", [TiledLinear, Int8Linear])
def test_rows_of_different_sequences_do_not_mix(linear: LinearFactory, tmp_path: Path) -> None:
    """Everything but attention is row by row, bit for bit: sequences in one call equal a call for each."""
    model = opened("mdlm/small", tmp_path, linear).model
    sequences = [torch.arange(8, 27), torch.tensor([256, MASK, MASK]), torch.tensor([5])]
    lengths = [ids.shape[0] for ids in sequences]
    with torch.inference_mode():
        positions = torch.cat([torch.arange(length) for length in lengths])
        together = model.head(model(torch.cat(sequences), positions, own_rows(lengths)))
        for ids, got in zip(sequences, together.split(lengths), strict=True):
            alone = model.head(model(ids, torch.arange(len(ids)), own_rows([len(ids)])))
            assert torch.equal(got, alone)


@pytest.mark.filterwarnings("ignore:torch.quantize_per")
def test_int8_is_close(tmp_path: Path) -> None:
    ids = torch.tensor([256, 90, MASK, MASK, 230, 9])
    exact, rough = (logits(opened("mdlm/small", tmp_path, x).model, ids, full(6)) for x in (TiledLinear, Int8Linear))
    assert (exact - rough).std() < 0.06 * exact.std()
    assert not torch.equal(exact, rough)


def test_subs_by_hand() -> None:
    got = subs_log_probs(torch.tensor([[0.0, 0.0, 7.0], [5.0, 0.0, 0.0]]), torch.tensor([2, 1]), 2)
    half = torch.tensor(0.5).log()
    torch.testing.assert_close(got, torch.tensor([[half, half, -torch.inf], [-torch.inf, 0.0, -torch.inf]]))
