"""What each family reads from its official files, and what it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.models.dense_attention import full, logits
from tests.models.golden_checkpoints import FOLDERS, GOLDENS, checkpoint, config_of, rewrite
from unmask.core.errors import CheckpointError
from unmask.models.config import AttentionPattern, Traits
from unmask.models.families import FAMILIES, family_of
from unmask.models.linear import Int8Linear, LinearFactory, PlainLinear, TiledLinear
from unmask.models.loading import load
from unmask.models.saving import official_tensors
from unmask.models.transformer import masked_attention

FULL, BLOCKS = AttentionPattern.BIDIRECTIONAL, AttentionPattern.BLOCK_CAUSAL


def golden_weights(folder: str) -> dict[str, Tensor]:
    return load_file(GOLDENS / folder / "model.safetensors")


def refused(folder: Path, match: str) -> None:
    with pytest.raises(CheckpointError, match=match) as caught:
        load(folder, linear=PlainLinear)
    assert "\n" not in str(caught.value)


# --- facts for decoding ------------------------------------------------------------------------------------------

FACTS = {
    "a2d/llama": ("a2d", FULL, 32, 0),
    "a2d/qwen2-tied": ("a2d", FULL, 32, 0),
    "a2d/qwen3": ("a2d", FULL, 32, 0),
    "diffugpt/small": ("diffugpt", FULL, 128, 1),
    "diffullama/small": ("diffullama", FULL, 256, 1),
    "dream/base": ("dream", FULL, 32, 1),
    "fast_dllm_v2/bd8": ("fast_dllm_v2", BLOCKS, 8, 1),
    "llada/base": ("llada", FULL, 32, 0),
    "llada2/v2.0-eos": ("llada2", BLOCKS, 32, 0),
    "llada_moe/small": ("llada_moe", FULL, 64, 0),
    "sdar/block4": ("sdar", BLOCKS, 4, 0),
    "sdar/block8": ("sdar", BLOCKS, 8, 0),
}


def traits_of(raw: dict[str, Any]) -> Traits:
    family = FAMILIES[family_of(raw)]
    return family.build_traits(raw, family.build_config(raw))


@pytest.mark.parametrize("folder", sorted(FACTS))
def test_facts(folder: str) -> None:
    raw = config_of(folder)
    family, attention, block_size, logit_shift = FACTS[folder]
    assert family_of(raw) == family
    traits = traits_of(raw)
    assert (traits.attention, traits.block_size, traits.logit_shift) == (attention, block_size, logit_shift)
    assert traits.mask_token_id == 500
    assert traits.eos_ids == {raw["eos_token_id"]}
    assert traits.vocab_size == 512
    assert not traits.editable


@pytest.mark.parametrize("folder", sorted(FACTS))
def test_what_unmask_says_wins(folder: str) -> None:
    facts = {"mask_token_id": 77, "attention": "causal_context", "block_size": 5, "logit_shift": 1, "editable": True}
    traits = traits_of(config_of(folder) | {"unmask": facts})
    assert (traits.mask_token_id, traits.block_size, traits.logit_shift, traits.editable) == (77, 5, 1, True)
    assert traits.attention is AttentionPattern.CAUSAL_CONTEXT


PUBLISHED = {
    "llada/base": ("embedding_size", 126464, 126081, 126336, {126081, 126348}),
    "llada2/v2.0-eos": ("vocab_size", 157184, 156892, 156895, {156892}),
    "llada_moe/small": ("vocab_size", 157184, 156892, 156895, {156892}),
    "dream/base": ("vocab_size", 152064, 151643, 151666, {151643, 151645}),
    "fast_dllm_v2/bd8": ("vocab_size", 152064, 151645, 151665, {151645}),
    "sdar/block4": ("vocab_size", 151936, 151645, 151669, {151645}),
    "a2d/qwen3": ("vocab_size", 151936, 151645, 151669, {151645}),
    "a2d/qwen2-tied": ("vocab_size", 151936, 151645, 151665, {151645}),
    "diffugpt/small": ("vocab_size", 50257, 50256, 10541, {50256}),
}


@pytest.mark.parametrize("folder", sorted(PUBLISHED))
def test_ids_of_the_published_checkpoints(folder: str) -> None:
    """Several of their config files name no mask token."""
    field, vocab_size, eos, mask, eos_ids = PUBLISHED[folder]
    raw = config_of(folder) | {field: vocab_size, "eos_token_id": eos}
    raw = {name: value for name, value in raw.items() if name not in ("mask_token_id", "unmask")}
    traits = traits_of(raw)
    assert (traits.mask_token_id, traits.eos_ids) == (mask, eos_ids)


def test_the_medium_diffugpt_has_a_mask_of_its_own() -> None:
    raw = {name: value for name, value in config_of("diffugpt/small").items() if name != "mask_token_id"}
    assert traits_of(raw | {"vocab_size": 50258}).mask_token_id == 50257


def test_a_small_vocabulary_needs_a_named_mask(tmp_path: Path) -> None:
    refused(
        checkpoint("llada/base", tmp_path, mask_token_id=None), "needs a mask_token_id; add it to the object 'unmask'"
    )


def test_a2d_may_predict_the_next_token() -> None:
    assert traits_of(config_of("a2d/qwen3") | {"right_shift_logits": True}).logit_shift == 1


# --- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "changes", "match"),
    [
        ("llada2/v2.0-eos", {"expert_capacity": 48}, "this is LLaDA2.2 .expert_capacity in config.json.*use LLaDA2.1"),
        ("llada2/v2.0-eos", {"delete_token_id": 0}, "this is LLaDA2.2"),
        ("llada2/v2.0-eos", {"score_function": "softmax"}, "score_function 'softmax' is not supported"),
        ("llada2/v2.0-eos", {"norm_head": True}, "norm_head True is not supported; use a checkpoint without it"),
        ("llada2/v2.0-eos", {"n_group": 3}, "2 of 3 groups of 8 experts is no choice"),
        ("llada2/v2.0-eos", {"num_experts_per_tok": 5}, "5 experts cannot be chosen from 8"),
        ("llada2/v2.0-eos", {"num_experts": None}, "holds a value that makes no sense"),
        ("llada2/v2.0-eos", {"use_sliding_window": True}, "use_sliding_window is not supported"),
        ("llada2/v2.0-eos", {"partial_rotary_factor": 0.2}, "3 of 16 dims of a head cannot be rotated in pairs"),
        ("llada_moe/small", {"norm_topk_prob": True}, "norm_topk_prob True is not supported"),
        ("llada_moe/small", {"moe_router_score_function": "sigmoid"}, "'sigmoid' is not supported"),
        ("llada_moe/small", {"routed_scaling_factor": 2.5}, "routed_scaling_factor 2.5 is not supported"),
        ("llada_moe/small", {"shared_expert_intermediate_size": 32}, "shared_expert_intermediate_size 32"),
        ("llada/base", {"layer_norm_type": "default"}, "layer_norm_type 'default' is not supported"),
        ("llada/base", {"block_type": "sequential"}, "block_type 'sequential' is not supported"),
        ("llada/base", {"alibi": True}, "alibi True is not supported"),
        ("llada/base", {"include_bias": True}, "include_bias True is not supported"),
        ("llada/base", {"n_kv_heads": 3}, "4 query heads are not a multiple of 3 kv heads"),
        ("diffugpt/small", {"activation_function": "gelu"}, "activation_function 'gelu' is not supported"),
        ("diffugpt/small", {"scale_attn_weights": False}, "scale_attn_weights false is not supported"),
        ("dream/base", {"use_sliding_window": True}, "use_sliding_window is not supported"),
        ("sdar/block4", {"rope_scaling": {"rope_type": "yarn"}}, "rotary scaling 'yarn' is not supported"),
        ("sdar/block4", {"block_size": 1000}, "block_size must be between 1 and 256, got 1000"),
        ("sdar/block4", {"mask_token_id": "x"}, "mask_token_id in config.json must be an integer, got 'x'"),
        ("sdar/block4", {"unmask": {"editable": 1}}, "editable under 'unmask' .* must be true or false, got 1"),
        ("sdar/block4", {"hidden_size": 128}, r"makes a \(64,\) tensor, expected \(128,\)"),
    ],
)
def test_what_cannot_be_honoured_is_refused(folder: str, changes: dict[str, Any], match: str, tmp_path: Path) -> None:
    refused(checkpoint(folder, tmp_path, **changes), match)


@pytest.mark.parametrize("folder", sorted(FACTS))
def test_every_tensor_is_needed(folder: str, tmp_path: Path) -> None:
    """But a head that is the embedding by definition."""
    tensors = golden_weights(folder)
    copy = checkpoint(folder, tmp_path)
    for name in sorted(tensors)[:: max(1, len(tensors) // 6)]:
        if (folder, name) != ("diffugpt/small", "lm_head.weight"):
            rewrite(copy, {other: tensor for other, tensor in tensors.items() if other != name})
            refused(copy, f"1 tensors are missing from the checkpoint, first '{name}'")
    rewrite(copy, tensors | {"stray": torch.ones(2)})
    refused(copy, "1 tensors of the checkpoint are not of this family, first 'stray'")


# --- layouts in circulation --------------------------------------------------------------------------------------


def stacked(tensors: dict[str, Tensor], num_experts: int, *, fuse: bool, suffix: str) -> dict[str, Tensor]:
    """One 3-D tensor per projection instead of one tensor per expert."""
    kept = {name: tensor for name, tensor in tensors.items() if ".mlp.experts." not in name}
    stems = {name.split("experts.")[0] + "experts." for name in tensors if ".mlp.experts." in name}
    for stem in stems:
        whole = {
            part: torch.stack([tensors[f"{stem}{expert}.{part}.weight"] for expert in range(num_experts)])
            for part in ("gate_proj", "up_proj", "down_proj")
        }
        if fuse:
            whole["gate_up_proj"] = torch.cat((whole.pop("gate_proj"), whole.pop("up_proj")), dim=1)
        kept |= {stem + part + suffix: tensor for part, tensor in whole.items()}
    return kept


def below_language_model(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        "model.lm_head.weight"
        if name == "lm_head.weight"
        else name.replace("model.", "model.language_model.", 1): tensor
        for name, tensor in tensors.items()
    }


@pytest.mark.parametrize("prefixed", [False, True])
@pytest.mark.parametrize(("fuse", "suffix"), [(False, ""), (False, ".weight"), (True, "")])
def test_llada2_layouts(fuse: bool, suffix: str, prefixed: bool, tmp_path: Path) -> None:
    folder = "llada2/v2.1-joint"
    original = golden_weights(folder)
    other = stacked(original, 8, fuse=fuse, suffix=suffix)
    assert other.keys() != original.keys()
    copy = rewrite(checkpoint(folder, tmp_path), below_language_model(other) if prefixed else other)
    again = official_tensors(load(copy, linear=PlainLinear), config_of(folder))
    assert again.keys() == original.keys()
    assert all(torch.equal(again[name], tensor) for name, tensor in original.items())


def test_llada2_stacks_must_hold_every_expert(tmp_path: Path) -> None:
    other = stacked(golden_weights("llada2/v2.0-eos"), 7, fuse=False, suffix="")
    refused(rewrite(checkpoint("llada2/v2.0-eos", tmp_path), other), r"\(7, .*does not hold 8 experts")


def test_a_tied_llada(tmp_path: Path) -> None:
    tensors = golden_weights("llada/base")
    head, table = "model.transformer.ff_out.weight", "model.transformer.wte.weight"
    tensors[head] = tensors[table].clone()
    copy = rewrite(checkpoint("llada/base", tmp_path), tensors)
    ids = list(range(30, 50))
    untied = logits(load(copy, linear=TiledLinear).model, ids, full(20))
    (copy / "config.json").write_text(json.dumps(config_of("llada/base") | {"weight_tying": True}))
    for stored in (tensors, {name: tensor for name, tensor in tensors.items() if name != head}):
        loaded = load(rewrite(copy, stored), linear=TiledLinear)
        assert loaded.config.tied
        assert torch.equal(logits(loaded.model, ids, full(20)), untied)


def test_a_diffugpt_that_stores_its_table_once(tmp_path: Path) -> None:
    tensors = golden_weights("diffugpt/small")
    copy = checkpoint("diffugpt/small", tmp_path)
    wanted = logits(load(copy, linear=TiledLinear).model, list(range(20)), full(20))
    del tensors["lm_head.weight"]
    rewrite(copy, tensors)
    assert torch.equal(logits(load(copy, linear=TiledLinear).model, list(range(20)), full(20)), wanted)


def test_old_rotary_buffers_are_ignored(tmp_path: Path) -> None:
    tensors = golden_weights("diffullama/small") | {
        f"model.layers.{index}.self_attn.rotary_emb.inv_freq": torch.ones(8) for index in range(2)
    }
    load(rewrite(checkpoint("diffullama/small", tmp_path), tensors), linear=PlainLinear)


@pytest.mark.filterwarnings("ignore:torch.quantize_per")
def test_int8_weights_cannot_be_saved(tmp_path: Path) -> None:
    loaded = load(checkpoint("llada/base", tmp_path), linear=Int8Linear)
    with pytest.raises(CheckpointError, match="load the model in float32"):
        official_tensors(loaded, config_of("llada/base"))


def test_an_adapter_may_train_the_mask_of_any_family(tmp_path: Path) -> None:
    """The table's official name is the family's own."""
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"r": 1, "lora_alpha": 1}))
    save_file({"unmask.mask_embedding": torch.full((64,), 9.0)}, adapter / "adapter_model.safetensors")
    for folder in ("llada/base", "llada2/v2.0-eos", "diffugpt/small"):
        home = tmp_path / folder.replace("/", "-")
        home.mkdir()
        table = load(checkpoint(folder, home), linear=PlainLinear, adapter=adapter).model.embedding
        assert torch.equal(table[500], torch.full((64,), 9.0))
        assert not torch.equal(table[499], table[500])


# --- rows --------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:torch.quantize_per")
@pytest.mark.parametrize("linear", [TiledLinear, Int8Linear])
@pytest.mark.parametrize("folder", sorted(FACTS))
def test_rows_of_different_sequences_do_not_mix(folder: str, linear: LinearFactory, tmp_path: Path) -> None:
    """Everything but attention is row by row, bit for bit: three sequences in one call equal three calls."""
    model = load(checkpoint(folder, tmp_path), linear=linear).model
    sequences = [list(range(8, 27)), list(range(200, 160, -1)), [5]]
    lengths = [len(ids) for ids in sequences]

    def attend(_layer: int, *qkv: Tensor) -> Tensor:
        sizes = lengths if qkv[0].shape[0] == sum(lengths) else [qkv[0].shape[0]]
        parts = zip(*(x.split(sizes) for x in qkv), strict=True)
        return torch.cat([masked_attention(full(part[0].shape[0]))(0, *part) for part in parts])

    with torch.inference_mode():
        positions = torch.cat([torch.arange(length) for length in lengths])
        together = model.head(model(torch.tensor([i for ids in sequences for i in ids]), positions, attend))
        for ids, got in zip(sequences, together.split(lengths), strict=True):
            assert torch.equal(model.head(model(torch.tensor(ids), torch.arange(len(ids)), attend)), got)


def test_every_golden_family_is_covered() -> None:
    assert {folder.split("/")[0] for folder in FACTS} == {
        folder.split("/")[0] for folder in FOLDERS if not folder.startswith("fast_dllm_v1")
    }
