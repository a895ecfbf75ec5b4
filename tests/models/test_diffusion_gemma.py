"""DiffusionGemma computes what transformers computes, and its files come back bit for bit."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.models.golden_checkpoints import GOLDENS, checkpoint, rewrite
from unmask.core.errors import CheckpointError
from unmask.models.config import AttentionPattern, AttentionShape, NoiseKind
from unmask.models.diffusion_gemma import DiffusionGemma
from unmask.models.families import diffusion_gemma as family
from unmask.models.linear import Int8Linear, LinearFactory, TiledLinear
from unmask.models.loading import Loaded, load
from unmask.models.saving import official_tensors, save_checkpoint
from unmask.models.transformer import Attend, Undecided

NAME = "diffusion_gemma/small"
GOLDEN = GOLDENS / NAME
LAYER = "model.decoder.layers.0."


def opened(tmp_path: Path, linear: LinearFactory = TiledLinear) -> Loaded:
    return load(checkpoint(NAME, tmp_path), linear=linear)


def dense_attention(layers: tuple[AttentionShape, ...], num_context: int) -> Attend:
    """By the definition: context rows are causal within reach, window rows see the reach's end and one another."""

    def attend(layer: int, q_NHK: Tensor, k_NGK: Tensor, v_NGK: Tensor) -> Tensor:
        row, column = torch.arange(q_NHK.shape[0])[:, None], torch.arange(q_NHK.shape[0])[None]
        visible = (column <= row) | (row >= num_context)
        reach = layers[layer].reach
        if reach is not None:
            visible &= column > row.clamp_max(num_context) - reach
        repeats = q_NHK.shape[1] // k_NGK.shape[1]
        k_NHK, v_NHK = (x.repeat_interleave(repeats, 1) for x in (k_NGK, v_NGK))
        scores = torch.einsum("nhk,mhk->hnm", q_NHK, k_NHK).masked_fill(~visible, -torch.inf)
        return torch.einsum("hnm,mhk->nhk", scores.softmax(-1), v_NHK)

    return attend


def forward(loaded: Loaded, context: list[int], canvas: list[int], said: Tensor | None) -> tuple[Tensor, Tensor]:
    """Hidden states of the context and logits of the canvas."""
    ids, start = torch.tensor(context + canvas), len(context)
    positions = torch.arange(ids.shape[0])
    undecided = Undecided(is_open_N=positions >= start, said=() if said is None else ((start, said),))
    with torch.inference_mode():
        hidden = loaded.model(ids, positions, dense_attention(loaded.config.layers, start), undecided)
        return hidden[:start], loaded.model.head(hidden[start:])


def close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, atol=2e-4, rtol=0)


def test_goldens(tmp_path: Path) -> None:
    loaded, tensors = opened(tmp_path), load_file(GOLDEN / "logits.safetensors")
    cases = [c for c in json.loads((GOLDEN / "cases.json").read_text())["cases"] if c["kind"] == "logits"]
    assert len(cases) == 2
    for case in cases:
        context, canvas = case["input_ids"][0], case["decoder_input_ids"][0]
        hidden, logits = forward(loaded, context, canvas, None)
        if "self_conditioning" in case:
            unconditioned = logits
            hidden, logits = forward(loaded, context, canvas, unconditioned / 0.7)
            assert (logits - unconditioned).abs().max() > 0.1, "conditioning makes a difference"
        close(logits[case["positions"]], tensors[case["tensor"]][0])
        encoder = case["encoder_last_hidden_state"]
        close(hidden[encoder["positions"]], tensors[encoder["tensor"]][0])


def test_the_facts(tmp_path: Path) -> None:
    loaded = opened(tmp_path)
    traits, config = loaded.traits, loaded.config
    assert (traits.noise, traits.mask_token_id) == (NoiseKind.UNIFORM, None)
    assert (traits.attention, traits.block_size) == (AttentionPattern.CAUSAL_CONTEXT, 16)
    assert (traits.eos_ids, traits.max_positions) == ({1}, 512)
    assert [(one.num_kv_heads, one.head_dim, one.reach) for one in config.layers] == [
        (2, 16, 8),
        (2, 16, 8),
        (1, 32, None),
    ]
    assert [(one.rotary_dim, one.has_values) for one in config.layers] == [(16, True), (16, True), (8, False)]


def test_rows_without_undecided_are_decided_ones(tmp_path: Path) -> None:
    loaded, ids = opened(tmp_path), torch.arange(20, 40)
    attend = dense_attention(loaded.config.layers, 20)
    with torch.inference_mode():
        bare = loaded.model(ids, torch.arange(20), attend)
        told = loaded.model(ids, torch.arange(20), attend, Undecided(is_open_N=torch.zeros(20, dtype=torch.bool)))
    assert torch.equal(bare, told)


@pytest.mark.filterwarnings("ignore:torch.quantize_per")
def test_int8_is_close(tmp_path: Path) -> None:
    (tmp_path / "exact").mkdir()
    exact, quantised = opened(tmp_path / "exact"), opened(tmp_path, Int8Linear)
    context, canvas = list(range(30, 50)), list(range(100, 116))
    wanted, got = (forward(loaded, context, canvas, None)[1] for loaded in (exact, quantised))
    correlation = np.corrcoef(wanted.flatten().numpy(), got.flatten().numpy())[0, 1]
    assert 0.98 < correlation < 1
    with pytest.raises(CheckpointError, match="load the model in float32"):
        official_tensors(quantised, json.loads((GOLDEN / "config.json").read_text()))


def test_save_and_reload(tmp_path: Path) -> None:
    raw, loaded = json.loads((GOLDEN / "config.json").read_text()), opened(tmp_path)
    tensors = official_tensors(loaded, raw)
    official = load_file(GOLDEN / "model.safetensors")
    assert set(tensors) == set(official)
    assert all(torch.equal(tensors[name], official[name]) for name in official)
    save_checkpoint(tmp_path / "saved", tensors, raw, dtype=torch.float32)
    again = load(tmp_path / "saved", linear=TiledLinear)
    context, canvas = list(range(30, 50)), list(range(100, 116))
    wanted, got = (forward(one, context, canvas, None)[1] for one in (loaded, again))
    assert torch.equal(got, wanted)


def test_the_vision_tower_is_left_in_the_files(tmp_path: Path) -> None:
    model = opened(tmp_path).model
    assert isinstance(model, DiffusionGemma)
    assert len(model.unused) == 16
    assert all(name.startswith(("model.encoder.vision_tower.", "model.encoder.embed_vision.")) for name in model.unused)


def test_copies_of_tied_weights_are_not_read(tmp_path: Path) -> None:
    folder, tensors = checkpoint(NAME, tmp_path), load_file(GOLDEN / "model.safetensors")
    for name in (f"{LAYER}mlp.up_proj.weight", f"{LAYER}experts.down_proj", "model.decoder.embed_tokens.weight"):
        tensors[name.replace("decoder", "encoder.language_model")] = tensors[name].clone()
    tensors["lm_head.weight"] = tensors["model.decoder.embed_tokens.weight"].clone()
    assert load(rewrite(folder, tensors), linear=TiledLinear).config.tied


def test_the_older_spelling_of_full_layers() -> None:
    raw = json.loads((GOLDEN / "config.json").read_text())
    wanted = family.build_config(raw)
    del raw["text_config"]["per_layer_config"]
    raw["text_config"] |= {"global_head_dim": 32, "num_global_key_value_heads": 1}
    assert family.build_config(raw) == wanted


Files = dict[str, Tensor]


def without(name: str) -> Callable[[Files], object]:
    return lambda tensors: tensors.pop(name)


def with_tensor(name: str, *shape: int) -> Callable[[Files], object]:
    return lambda tensors: tensors.update({name: torch.zeros(shape)})


ODD_FILES = {
    "missing": (without(f"{LAYER}router.scale"), rf"1 tensors are missing .*'{LAYER}router.scale'"),
    "no experts": (without(f"{LAYER}experts.down_proj"), "8 tensors are missing"),
    "encoder scalar": (without("model.encoder.language_model.layers.0.layer_scalar"), "1 tensors are missing"),
    "left over": (with_tensor(f"{LAYER}ple.weight", 3), "1 tensors of the checkpoint are not of this family"),
    "values": (with_tensor("model.decoder.layers.2.self_attn.v_proj.weight", 32, 64), "not of this family"),
    "conditioning twice": (
        with_tensor("model.encoder.language_model.self_conditioning.pre_norm.weight", 64),
        "not of this family",
    ),
    "expert count": (with_tensor(f"{LAYER}experts.gate_up_proj", 9, 64, 64), "does not hold 8 experts"),
    "shape": (
        with_tensor(f"{LAYER}experts.gate_up_proj", 8, 62, 64),
        r"makes a \(62, 64\) tensor, expected \(64, 64\)",
    ),
}


@pytest.mark.parametrize("kind", sorted(ODD_FILES))
def test_odd_files(kind: str, tmp_path: Path) -> None:
    change, message = ODD_FILES[kind]
    folder, tensors = checkpoint(NAME, tmp_path), load_file(GOLDEN / "model.safetensors")
    change(tensors)
    with pytest.raises(CheckpointError, match=message):
        load(rewrite(folder, tensors), linear=TiledLinear)


ODD_CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "untied": ({"tie_word_embeddings": False}, "tie_word_embeddings false is not supported"),
    "bidirectional": ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention 'all' is not supported"),
    "activation": ({"hidden_activation": "relu"}, "hidden_activation 'relu' is not supported"),
    "bias": ({"attention_bias": True}, "attention_bias True is not supported"),
    "layer type": ({"layer_types": ["chunked_attention"] * 3}, "layer type 'chunked_attention' is not supported"),
    "layer count": ({"num_hidden_layers": 4}, "layer_types has 3 entries, but num_hidden_layers is 4"),
    "no experts": ({"num_experts": 0}, "makes no sense"),
    "heads": ({"num_key_value_heads": 3}, "not a multiple of 3 kv heads"),
    "window": ({"sliding_window": 0}, "sliding_window 0 makes no sense"),
    "rotary": (
        {"rope_parameters": {kind: {"rope_type": "yarn", "rope_theta": 1.0} for kind in ("sliding_attention",)}},
        "rotary scaling 'yarn' is not supported",
    ),
}


@pytest.mark.parametrize("kind", sorted(ODD_CONFIGS))
def test_odd_configs(kind: str, tmp_path: Path) -> None:
    changes, message = ODD_CONFIGS[kind]
    text = json.loads((GOLDEN / "config.json").read_text())["text_config"] | changes
    with pytest.raises(CheckpointError, match=message):
        load(checkpoint(NAME, tmp_path, text_config=text), linear=TiledLinear)


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    text = json.loads((GOLDEN / "config.json").read_text())["text_config"]
    del text["sliding_window"]
    with pytest.raises(CheckpointError, match="no field 'sliding_window', which DiffusionGemmaForBlockDiffusion needs"):
        load(checkpoint(NAME, tmp_path, text_config=text), linear=TiledLinear)
