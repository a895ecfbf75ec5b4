"""Checkpoints are read strictly: nothing missing, nothing left over, nothing guessed."""

import json
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.models.random_weights import MemorySource, config, official_weights
from unmask.core.errors import CheckpointError
from unmask.models.config import AttentionPattern, ModelConfig
from unmask.models.families.llama import key_map
from unmask.models.linear import Int8Linear, LinearFactory, PlainLinear, TiledLinear
from unmask.models.loading import LoraSource, SafetensorsSource, build, load

RAW: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 7,
    "tie_word_embeddings": True,
}
FACTS = {"mask_token_id": 3, "attention": "causal_context", "block_size": 4, "logit_shift": 1}


def write(folder: Path, raw: dict[str, Any] | None = None, tensors: dict[str, Tensor] | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(RAW if raw is None else raw))
    save_file(official_weights(config()) if tensors is None else tensors, folder / "model.safetensors")
    return folder


def refused(folder: Path, match: str, **facts: Any) -> None:
    with pytest.raises(CheckpointError, match=match) as caught:
        load(folder, linear=PlainLinear, **facts)
    assert "\n" not in str(caught.value)


# --- the files ---------------------------------------------------------------------------------------------------


def test_a_good_folder(tmp_path: Path) -> None:
    loaded = load(write(tmp_path, RAW | {"unmask": FACTS}), linear=PlainLinear)
    assert loaded.config == config()
    traits = loaded.traits
    assert (traits.mask_token_id, traits.attention) == (3, AttentionPattern.CAUSAL_CONTEXT)
    assert (traits.block_size, traits.logit_shift, traits.eos_ids) == (4, 1, frozenset([7]))
    assert (traits.max_positions, traits.vocab_size) == (512, 48)
    assert not loaded.model.training


def test_a_plain_model_is_autoregressive(tmp_path: Path) -> None:
    traits = load(write(tmp_path, RAW | {"eos_token_id": [7, 9]}), linear=PlainLinear).traits
    assert (traits.mask_token_id, traits.attention) == (None, AttentionPattern.CAUSAL)
    assert traits.eos_ids == {7, 9}


def test_no_folder_no_config_no_weights(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "no checkpoint folder at")
    refused(tmp_path, r"config\.json does not exist")
    (tmp_path / "config.json").write_text(json.dumps(RAW))
    refused(tmp_path, r"no \.safetensors file in")


def test_pickles_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(RAW))
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04")
    refused(tmp_path, "pickle files are refused, convert them to safetensors")


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", '"llama"', b"\xff\xfe\x00"])
def test_a_config_that_is_no_json_object(tmp_path: Path, text: str | bytes) -> None:
    write(tmp_path)
    (tmp_path / "config.json").write_bytes(text.encode() if isinstance(text, str) else text)
    refused(tmp_path, r"cannot read|not a JSON object")


@pytest.mark.parametrize("keep", [0, 4, 100, 5000, -1])
def test_a_truncated_file(tmp_path: Path, keep: int) -> None:
    write(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    refused(tmp_path, "cannot read")


def test_a_tensor_in_two_files(tmp_path: Path) -> None:
    write(tmp_path)
    save_file({"model.norm.weight": torch.ones(32)}, tmp_path / "other.safetensors")
    refused(tmp_path, r"'model\.norm\.weight' is in more than one file")


# --- the key map -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", sorted(official_weights(config(tied=False, qkv_bias=True, qk_norm=True, num_layers=1)))
)
def test_every_tensor_is_needed_and_must_fit(name: str) -> None:
    shape = config(tied=False, qkv_bias=True, qk_norm=True, num_layers=1)
    whole = official_weights(shape)

    def make(tensors: dict[str, Tensor]) -> None:
        build(MemorySource(tensors), shape, key_map(shape), PlainLinear)

    make(whole)
    with pytest.raises(CheckpointError, match=f"1 tensors are missing from the checkpoint, first '{name}'"):
        make({key: tensor for key, tensor in whole.items() if key != name})
    with pytest.raises(CheckpointError, match="makes a"):
        make(whole | {name: torch.cat((whole[name], whole[name][:1]))})


def test_a_swapped_shape_is_refused_though_the_size_fits(tmp_path: Path) -> None:
    tensors = official_weights(config())
    tensors["model.layers.0.mlp.down_proj.weight"] = tensors["model.layers.0.mlp.down_proj.weight"].T.contiguous()
    refused(write(tmp_path, tensors=tensors), r"makes a \(48, 32\) tensor, expected \(32, 48\)")


@pytest.mark.parametrize(
    "extra", ["model.layers.2.input_layernorm.weight", "model.layers.0.self_attn.q_proj.bias", "x"]
)
def test_left_over_tensors_are_refused(tmp_path: Path, extra: str) -> None:
    refused(write(tmp_path, tensors=official_weights(config()) | {extra: torch.ones(32)}), f"first '{extra}'")


def test_a_tied_head_may_be_stored_twice(tmp_path: Path) -> None:
    """Older files hold it; it is the embedding by definition."""
    tensors = official_weights(config())
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    load(write(tmp_path, tensors=tensors), linear=PlainLinear)


def test_an_untied_head_is_needed(tmp_path: Path) -> None:
    refused(
        write(tmp_path, RAW | {"tie_word_embeddings": False}), r"missing from the checkpoint, first 'lm_head\.weight'"
    )


# --- the config --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "'MambaForCausalLM' is not supported .known: LlamaForCausalLM"),
        ({"architectures": []}, "has no 'architectures'"),
        ({"architectures": None}, "has no 'architectures'"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "rotary scaling 'linear' is not supported"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rotary scaling 'llama3' is not supported"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}}, "rotary scaling 'yarn' is not supported"),
        ({"mlp_bias": True}, "mlp_bias is not supported"),
        ({"use_sliding_window": True}, "use_sliding_window is not supported"),
        ({"num_key_value_heads": 3}, "4 query heads are not a multiple of 3 kv heads"),
        ({"unmask": FACTS | {"mask_token_id": 48}}, "mask_token_id 48 is outside the vocabulary of 48"),
        ({"unmask": FACTS | {"mask_token_id": -1}}, "mask_token_id -1 is outside"),
        ({"unmask": FACTS | {"mask_token_id": 7}}, "mask_token_id 7 is also an end-of-sequence id"),
        ({"unmask": FACTS | {"logit_shift": 2}}, "logit_shift must be 0 or 1, got 2"),
    ],
)
def test_configs_that_cannot_be_honoured(tmp_path: Path, changes: dict[str, Any], match: str) -> None:
    refused(write(tmp_path, RAW | changes), match)


@pytest.mark.parametrize(
    "field", ["hidden_size", "vocab_size", "num_hidden_layers", "intermediate_size", "rms_norm_eps"]
)
def test_a_missing_field_is_named(tmp_path: Path, field: str) -> None:
    refused(write(tmp_path, {key: value for key, value in RAW.items() if key != field}), f"no field '{field}'")


# --- adapters ----------------------------------------------------------------------------------------------------

STEM = "base_model.model."


def write_adapter(folder: Path, tensors: dict[str, Tensor], **facts: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"r": 3, "lora_alpha": 12.0} | facts))
    save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def factors(shape: ModelConfig, seed: int = 5) -> dict[str, Tensor]:
    """Rank-3 factors for every projection under PEFT's names."""
    generator = torch.Generator().manual_seed(seed)
    made: dict[str, Tensor] = {}
    for name, weight in official_weights(shape).items():
        if name.endswith("_proj.weight"):
            stem = STEM + name.removesuffix("weight")
            made[stem + "lora_A.weight"] = torch.randn(3, weight.shape[1], generator=generator)
            made[stem + "lora_B.weight"] = torch.randn(weight.shape[0], 3, generator=generator)
    return made


def test_merging_is_w_plus_scale_b_a(tmp_path: Path) -> None:
    shape = config()
    tensors = factors(shape)
    del tensors[STEM + "model.layers.1.self_attn.k_proj.lora_A.weight"]
    del tensors[STEM + "model.layers.1.self_attn.k_proj.lora_B.weight"]
    base = official_weights(shape)
    source = LoraSource(MemorySource(base), write_adapter(tmp_path, tensors), 3)
    assert source.names() == set(base)
    for name, weight in base.items():
        stem = STEM + name.removesuffix("weight")
        wanted = weight
        if stem + "lora_A.weight" in tensors:
            wanted = weight + 12.0 / 3 * tensors[stem + "lora_B.weight"] @ tensors[stem + "lora_A.weight"]
        torch.testing.assert_close(source.read(name), wanted, atol=1e-5, rtol=1e-5)
    assert torch.equal(
        source.read("model.layers.1.self_attn.k_proj.weight"), base["model.layers.1.self_attn.k_proj.weight"]
    )


def test_the_masks_own_embedding_replaces_its_row_only(tmp_path: Path) -> None:
    shape = config()
    base = official_weights(shape)
    source = LoraSource(
        MemorySource(base), write_adapter(tmp_path, {"unmask.mask_embedding": torch.full((32,), 9.0)}), 3
    )
    table = source.read("model.embed_tokens.weight")
    assert torch.equal(table[3], torch.full((32,), 9.0))
    others = torch.arange(48) != 3
    assert torch.equal(table[others], base["model.embed_tokens.weight"][others])


def test_an_adapter_brings_its_traits(tmp_path: Path) -> None:
    base = write(tmp_path / "base")
    adapter = write_adapter(tmp_path / "adapter", factors(config()), unmask=FACTS | {"block_size": 16})
    loaded = load(base, linear=TiledLinear, adapter=adapter)
    assert (loaded.traits.mask_token_id, loaded.traits.block_size) == (3, 16)
    assert loaded.traits.attention is AttentionPattern.CAUSAL_CONTEXT


@pytest.mark.parametrize("target", ["model.layers.9.mlp.up_proj", "model.layers.0.mlp.sideways_proj"])
def test_an_adapter_of_another_model(tmp_path: Path, target: str) -> None:
    base = write(tmp_path / "base")
    tensors = {f"{STEM}{target}.lora_A.weight": torch.ones(3, 32), f"{STEM}{target}.lora_B.weight": torch.ones(48, 3)}
    refused(base, "which the base model does not have", adapter=write_adapter(tmp_path / "adapter", tensors))


def test_an_adapter_of_another_size(tmp_path: Path) -> None:
    base = write(tmp_path / "base")
    wider = factors(config(hidden_size=40, head_dim=10))
    refused(base, "shapes do not fit", adapter=write_adapter(tmp_path / "adapter", wider))


def test_a_folder_without_adapter(tmp_path: Path) -> None:
    base = write(tmp_path / "base")
    refused(base, r"adapter_config\.json does not exist", adapter=tmp_path)


# --- memory ------------------------------------------------------------------------------------------------------


class WatchedSource(MemorySource):
    """Knows which of the tensors it handed out still live."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        super().__init__(tensors)
        self.handed: dict[str, weakref.ref[Tensor]] = {}
        self.most_alive = 0

    def read(self, name: str) -> Tensor:
        self.most_alive = max(self.most_alive, sum(ref() is not None for ref in self.handed.values()))
        tensor = super().read(name)
        self.handed[name] = weakref.ref(tensor)
        return tensor


@pytest.mark.filterwarnings("ignore:torch.quantize_per")
def test_parts_are_released_before_the_next_are_read() -> None:
    shape = config(num_layers=6)
    source = WatchedSource(official_weights(shape))
    model = build(source, shape, key_map(shape), Int8Linear)
    assert len(list(model.layers)) == 6
    assert source.most_alive <= 3, "q, k and v at most; everything before is quantised and gone"


PROBE = """
    import sys, threading, time
    from pathlib import Path
    import torch
    from unmask.models.linear import Int8Linear, TiledLinear
    from unmask.models.loading import load
    torch.set_num_threads(1)

    def anonymous():
        line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith("RssAnon"))
        return int(line.split()[1]) * 1024

    peak, stop = 0, threading.Event()
    def watch():
        global peak
        while not stop.is_set():
            peak = max(peak, anonymous())
            time.sleep(0.0005)

    torch.ones(64, 64) @ torch.ones(64, 64)
    baseline = anonymous()
    watcher = threading.Thread(target=watch)
    watcher.start()
    loaded = load(Path(sys.argv[1]), linear=TiledLinear)
    stop.set()
    watcher.join()
    weights = sum(p.numel() * p.element_size() for p in loaded.model.parameters())
    print(baseline, max(peak, anonymous()), weights)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_peak_memory_is_the_model_and_little_more(tmp_path: Path) -> None:
    """Anonymous memory (RssAnon, sampled twice a millisecond) while a bfloat16 file becomes fp32 weights.

    Pages of the memory-mapped file are left out: the kernel drops them at will, so they are no demand.
    """
    shape = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 5, "vocab_size": 3000}
    shape |= {"num_attention_heads": 8, "num_key_value_heads": 4}
    sizes = config(
        hidden_size=512, intermediate_size=1024, num_layers=5, vocab_size=3000, num_heads=8, num_kv_heads=4, head_dim=64
    )
    write(tmp_path, RAW | shape, {name: t.bfloat16() for name, t in official_weights(sizes).items()})
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(PROBE), str(tmp_path)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    baseline, peak, weights = map(int, answer.split())
    assert 50e6 < weights < 80e6
    assert peak - baseline <= 1.15 * weights + 4e6


def test_sources_are_read_as_float32(tmp_path: Path) -> None:
    save_file(
        {"a": torch.ones(3, dtype=torch.float16), "b": torch.ones(2, dtype=torch.bfloat16)}, tmp_path / "x.safetensors"
    )
    for path in (tmp_path, tmp_path / "x.safetensors"):
        source = SafetensorsSource(path)
        assert source.names() == {"a", "b"}
        assert source.read("a").dtype == source.read("b").dtype == torch.float32


@pytest.mark.filterwarnings("ignore:torch.quantize_per")
@pytest.mark.parametrize("linear", [TiledLinear, Int8Linear, PlainLinear])
def test_loading_twice_gives_the_same_model(tmp_path: Path, linear: LinearFactory) -> None:
    from unmask.models.transformer import masked_attention

    folder = write(tmp_path)
    seen = masked_attention(torch.ones(9, 9, dtype=torch.bool))
    with torch.no_grad():
        first, second = (load(folder, linear=linear).model(torch.arange(9), torch.arange(9), seen) for _ in "ab")
    assert torch.equal(first, second)
