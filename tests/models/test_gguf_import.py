import json
from pathlib import Path

import numpy as np
import pytest
from gguf import GGUFReader
from safetensors.numpy import load_file

from tests.models.tiny_gguf import official_weights, write_gguf
from unmask.core.errors import CheckpointError
from unmask.models.gguf_file import GgufFile
from unmask.models.gguf_import import import_gguf
from unmask.models.linear import TiledLinear
from unmask.models.loading import load
from unmask.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def test_the_folder_is_an_ordinary_checkpoint(gguf: Path, tmp_path: Path) -> None:
    import_gguf(gguf, tmp_path / "out")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["out"]
    loaded = load(tmp_path / "out", linear=TiledLinear)
    assert loaded.config.max_positions == 512
    assert loaded.traits.eos_ids == {2}
    template = (tmp_path / "out" / "chat_template.jinja").read_text()
    assert template == "{{ messages[0].content }}"


def test_weights_come_back_in_official_order(gguf: Path, tmp_path: Path) -> None:
    import_gguf(gguf, tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    expected = official_weights()
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values.astype(np.float16), err_msg=name)


def test_packed_weights_are_unpacked(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "q.gguf", quantized=True)
    import_gguf(file, tmp_path / "out")
    found = load_file(tmp_path / "out" / "model.safetensors")
    for name, values in official_weights().items():
        rows = values.reshape(-1, values.shape[-1])
        step = (rows.max() - rows.min()) / 15  # of Q4_1, at most, when a block spans the whole range
        assert np.abs(found[name].astype(np.float32) - values).max() <= step / 2 + 1e-3, name


def test_the_tokenizer_is_the_files_own(gguf: Path, tmp_path: Path) -> None:
    import_gguf(gguf, tmp_path / "out")
    tokenizer = Tokenizer.load(tmp_path / "out")
    assert [tokenizer.decode([i]) for i in tokenizer.encode("abcab 12<|im_end|>")] == ["abc", "ab", " ", "1", "2", ""]
    assert tokenizer.encode("<|im_end|>") == [2]


def test_the_reader_agrees_with_the_gguf_package(gguf: Path) -> None:
    ours, theirs = GgufFile(gguf), GGUFReader(gguf)
    for name, field in theirs.fields.items():
        if not name.startswith("GGUF."):
            assert ours.field(name) == field.contents(), name
    for tensor in theirs.tensors:
        assert ours.tensors[tensor.name].start == tensor.data_offset
        np.testing.assert_array_equal(ours.read(tensor.name).ravel(), np.asarray(tensor.data).ravel())


def test_any_cut_is_noticed(gguf: Path, tmp_path: Path) -> None:
    """Wherever a download stops, the file is refused and nothing is left behind."""
    whole = gguf.read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in [0, 3, 4, 10, 23, *range(24, len(whole), len(whole) // 60), len(whole) - 1]:
        cut.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=r"cut\.gguf"):
            import_gguf(cut, tmp_path / "out")
    assert [file.name for file in tmp_path.iterdir()] == ["cut.gguf"]


def test_flipped_bytes_never_crash(gguf: Path, tmp_path: Path) -> None:
    """A damaged head is refused or, where the damage is in a text, read; it never raises anything else."""
    whole = bytearray(gguf.read_bytes())
    odd = tmp_path / "odd.gguf"
    random = np.random.default_rng(0)
    for _ in range(150):
        at = int(random.integers(0, 2500))
        damaged = whole.copy()
        damaged[at] ^= int(random.integers(1, 256))
        odd.write_bytes(damaged)
        try:
            GgufFile(odd)
        except CheckpointError as error:
            assert "odd.gguf" in str(error)  # noqa: PT017 - that nothing is raised is fine too


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"architecture": "mamba"}, "architecture 'mamba'"), ({"pre": "llama-bpe"}, "tokenizer .* is not supported")],
)
def test_other_kinds_are_named(changes: dict[str, str], says: str, tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "other.gguf", **changes)  # pyright: ignore[reportArgumentType]
    with pytest.raises(CheckpointError, match=says):
        import_gguf(file, tmp_path / "out")


def test_files_that_are_not_there_or_not_gguf(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot read"):
        import_gguf(tmp_path / "none.gguf", tmp_path / "out")
    (tmp_path / "text.gguf").write_text("hello, world")
    with pytest.raises(CheckpointError, match="does not start with 'GGUF'"):
        import_gguf(tmp_path / "text.gguf", tmp_path / "out")


def test_a_folder_that_cannot_be_written_is_one_line(gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="cannot write"):
        import_gguf(gguf, tmp_path / "file" / "out")


def test_config_holds_what_the_file_says(gguf: Path, tmp_path: Path) -> None:
    import_gguf(gguf, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["tie_word_embeddings"] is True
    assert (config["bos_token_id"], config["eos_token_id"]) == (1, 2)
