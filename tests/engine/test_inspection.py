"""What `unmask inspect` says of a checkpoint."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.tiny import EOS_ID, HEADS, HIDDEN, KV_HEADS, LAYERS, MASK_ID, byte_tokenizer, make_checkpoint
from unmask.cli.main import main
from unmask.engine.inspection import Inspection, inspect_model
from unmask.verify.folders import CaseFolder


def inspected(folder: Path) -> Inspection:
    return inspect_model(str(folder), cache_dir=folder)


def test_a_checkpoint(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "tiny")
    facts, tensors = inspected(folder), load_file(folder / "model.safetensors")
    assert (facts.model, facts.family, facts.architecture) == ("tiny", "llama", "LlamaForCausalLM")
    assert (facts.attention, facts.logit_shift, facts.block_size) == ("causal_context", 0, 4)
    assert (facts.mask_token_id, facts.eos_ids) == (MASK_ID, (EOS_ID,))
    assert facts.num_parameters == sum(tensor.numel() for tensor in tensors.values())
    assert facts.weights_bytes == 4 * facts.num_parameters
    assert facts.kv_bytes_per_token == 2 * 4 * LAYERS * HIDDEN // HEADS * KV_HEADS
    assert (facts.modes, facts.rule, facts.rules) == (("verified", "diffusion", "ar"), "unmask", ("unmask",))
    assert (facts.context_length, facts.embedding_rows, facts.special_tokens) == (512, 272, 5)
    assert (facts.chat_template, facts.tools) == (True, True)


def test_what_each_attention_pattern_can_do(tmp_path: Path) -> None:
    causal = inspected(make_checkpoint(tmp_path / "ar", attention="causal"))
    assert (causal.modes, causal.rule, causal.rules) == (("ar",), None, ())
    fixed = inspected(make_checkpoint(tmp_path / "full", attention="bidirectional"))
    assert (fixed.modes, fixed.rule, fixed.kv_bytes_per_token) == (("diffusion",), "parallel", 0)
    assert {"parallel", "low_confidence", "entropy"} <= set(fixed.rules)
    assert "approximate" in fixed.exactness
    blocks = inspected(make_checkpoint(tmp_path / "blocks", attention="block_causal"))
    assert "sdar_dynamic" in blocks.rules
    assert "edit" not in blocks.rules, "the checkpoint does not edit"


def test_a_model_of_uniform_noise(tmp_path: Path) -> None:
    folder = CaseFolder.read(Path(__file__).parents[1] / "goldens/diffusion_gemma/small").checkpoint(tmp_path)
    byte_tokenizer().save(str(folder / "tokenizer.json"))
    facts = inspected(folder)
    assert (facts.modes, facts.rule, facts.rules) == (("diffusion",), "renoise", ("renoise",))
    assert (facts.threshold, facts.mask_token_id, facts.block_size) == (None, None, 16)
    assert facts.kv_bytes_per_token == 2 * 4 * (2 * 2 * 16 + 1 * 32), "layers differ"
    assert "verified" not in facts.exactness


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(make_checkpoint(tmp_path / "tiny"))
    assert main(["inspect", folder, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["family"] == "llama"
    assert main(["inspect", folder]) == 0
    assert "causal_context" in capsys.readouterr().out
    (tmp_path / "tiny" / "config.json").write_text('{"architectures": ["Nobodys"]}')
    assert main(["inspect", folder]) == 2
    shown = capsys.readouterr().err
    assert "'Nobodys'" in shown
    assert shown.count("\n") == 1
    assert main(["inspect", "nope"]) == 2
