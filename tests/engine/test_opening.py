"""Odd checkpoints: each is refused with one line that says what is wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tiny import EOS_ID, MASK_ID, make_checkpoint
from unmask.core.errors import CheckpointError, ConfigError, UnmaskError
from unmask.engine.opening import OpenModel, Precision, open_model
from unmask.models.linear import Int8Linear, TiledLinear


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "tiny")


def opened(name: Path | str, precision: Precision = "fp32") -> OpenModel:
    return open_model(str(name), cache_dir=Path("/nowhere"), precision=precision)


def edit(file: Path, **changes: Any) -> None:
    """Changes fields of a JSON file; `...` removes one."""
    fields = {**(json.loads(file.read_text()) if file.exists() else {}), **changes}
    file.write_text(json.dumps({name: value for name, value in fields.items() if value is not ...}))


def config(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "config.json", **changes)


def unmask_facts(**changes: Any) -> Callable[[Path], None]:
    facts = {"mask_token_id": MASK_ID, "attention": "causal_context", "block_size": 4, "logit_shift": 0}
    return config(unmask={**facts, **changes})


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def holding(name: str, content: bytes) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return write


def truncated(name: str) -> Callable[[Path], None]:
    def cut(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:-100])

    return cut


def only_pickles(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def file_instead_of_folder(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()


ODD: dict[str, tuple[Callable[[Path], None], str]] = {
    "no config": (without("config.json"), "config.json does not exist"),
    "config is no JSON": (holding("config.json", b"{"), "cannot read .*config.json"),
    "config is no text": (holding("config.json", b"\xff\xfe\x00"), "cannot read .*config.json"),
    "config is no object": (holding("config.json", b"[]"), "is not a JSON object"),
    "config is a folder": (file_instead_of_folder, "config.json"),
    "no architecture": (config(architectures=...), "no 'architectures'"),
    "unknown architecture": (config(architectures=["MambaForCausalLM"]), "'MambaForCausalLM' is not supported"),
    "field missing": (config(hidden_size=...), "no field 'hidden_size'"),
    "field of a wrong type": (config(hidden_size="wide"), "makes no sense"),
    "field of zero": (config(num_attention_heads=0), "makes no sense"),
    "unmask is no object": (config(unmask=[1]), "makes no sense"),
    "unknown attention": (unmask_facts(attention="sideways"), "makes no sense"),
    "mask outside": (unmask_facts(mask_token_id=5000), "mask_token_id 5000 is outside"),
    "mask is eos": (unmask_facts(mask_token_id=EOS_ID), "also an end-of-sequence id"),
    "odd shift": (unmask_facts(logit_shift=2), "logit_shift must be 0 or 1"),
    "no eos": (config(eos_token_id=None), "names no eos_token_id"),
    "eos outside": (config(eos_token_id=5000), "eos_token_id 5000 .* outside"),
    "eos is text": (config(eos_token_id="</s>"), "eos_token_id '</s>' .* outside"),
    "scaled rotary": (config(rope_scaling={"rope_type": "yarn"}), "rotary scaling 'yarn'"),
    "no tokenizer": (without("tokenizer.json"), "tokenizer.json does not exist"),
    "tokenizer is no JSON": (holding("tokenizer.json", b"{"), "cannot read .*tokenizer.json"),
    "tokenizer of another kind": (holding("tokenizer.json", b'{"decoder": null}'), "not a byte-level tokenizer"),
    "tokenizer is damaged": (
        lambda folder: edit(folder / "tokenizer.json", model={"type": "BPE", "vocab": {}, "merges": [["a", "b"]]}),
        "cannot read .*tokenizer.json",
    ),
    "tokenizer too large": (
        lambda folder: edit(make_checkpoint(folder, vocab_size=100) / "config.json", eos_token_id=2),
        "has 261 ids, but the model only 100",
    ),
    "template does not compile": (holding("chat_template.jinja", b"{% if"), "template does not compile"),
    "template is no text": (holding("chat_template.jinja", b"\xff\xff"), "chat_template.jinja"),
    "no weights": (without("model.safetensors"), "no .safetensors file"),
    "pickles": (only_pickles, "pickle files are refused"),
    "weights cut short": (truncated("model.safetensors"), "cannot read .*model.safetensors"),
    "weights are no safetensors": (holding("model.safetensors", b"hello"), "cannot read .*model.safetensors"),
    "layers missing": (config(num_hidden_layers=3), "tensors are missing"),
    "layers left over": (config(num_hidden_layers=1), "not of this family"),
    "other shapes": (config(intermediate_size=40), "expected"),
    "weights twice": (
        lambda folder: (folder / "b.safetensors").write_bytes((folder / "model.safetensors").read_bytes()) and None,
        "more than one file",
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_checkpoints_are_refused_in_one_line(name: str, folder: Path) -> None:
    spoil, says = ODD[name]
    spoil(folder)
    with pytest.raises(CheckpointError, match=says) as refused:
        opened(folder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "kind", "says"),
    [
        ("smol-agnet", ConfigError, "did you mean 'smol-agent'.*path of a checkpoint folder and a hub name"),
        ("./smol", CheckpointError, "no checkpoint folder at ./smol"),
        ("/etc/hostname", CheckpointError, "is a file"),
        ("/etc/hostname/x", CheckpointError, "no checkpoint folder"),
        ("~nobody-has-this-name/x", CheckpointError, "cannot read ~nobody"),
        ("x" * 300, UnmaskError, "x"),
        ("a\0b", UnmaskError, "a"),
    ],
)
def test_unknown_names(name: str, kind: type[UnmaskError], says: str) -> None:
    with pytest.raises(kind, match=says):
        opened(name)


def test_unknown_precision(folder: Path) -> None:
    with pytest.raises(ConfigError, match="known: auto, fp32, int8"):
        opened(folder, "fp8")  # pyright: ignore[reportArgumentType]


def test_a_folder_opens(folder: Path) -> None:
    model = opened(folder)
    assert model.model_id == "tiny"
    assert model.precision == "fp32"
    assert model.loaded.traits.eos_ids == model.tokenizer.eos_ids == {EOS_ID}
    assert isinstance(model.loaded.model.layers[0].qkv, TiledLinear)
    assert "hi" in model.chat_template().render([{"role": "user", "content": "hi"}])


@pytest.mark.filterwarnings("ignore:torch.quantize_per")
def test_auto_is_int8(folder: Path) -> None:
    model = opened(folder, "auto")
    assert model.precision == "int8"
    assert isinstance(model.loaded.model.layers[0].qkv, Int8Linear)


def test_the_folder_name_is_the_id_however_it_is_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert opened(".").model_id == "tiny"


def test_eos_ids_of_both_files_count(folder: Path) -> None:
    edit(folder / "generation_config.json", eos_token_id=[0, EOS_ID])
    model = opened(folder)
    assert model.loaded.traits.eos_ids == model.tokenizer.eos_ids == {0, EOS_ID}


def test_templates_in_the_tokenizer_config_count(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()
    file = folder / "tokenizer_config.json"
    edit(file, bos_token={"content": "<s>"}, chat_template="{{ bos_token }}{{ messages[0].content }}")
    assert opened(folder).chat_template().render([{"role": "user", "content": "hi"}]) == "<s>hi"
    named = [{"name": "rag", "template": "rag"}, {"name": "default", "template": "plain"}]
    edit(file, chat_template=named)
    assert opened(folder).chat_template().render([]) == "plain"
    edit(file, chat_template=7)
    with pytest.raises(CheckpointError, match=r"chat_template in .* is 7"):
        opened(folder)


def test_plain_ar_checkpoints_open(tmp_path: Path) -> None:
    model = opened(make_checkpoint(tmp_path / "ar", attention="causal"))
    assert model.loaded.traits.mask_token_id is None
