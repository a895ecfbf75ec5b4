"""Every recorded case of every family through the code of `unmask verify`."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from unmask.cli.main import main
from unmask.verify.folders import CaseFolder, find_folders
from unmask.verify.report import Finding, Status, check_folder, verify

GOLDENS = Path(__file__).parents[1] / "goldens"
FOLDERS = [str(path.relative_to(GOLDENS)) for path in find_folders([GOLDENS])]
SKIPPED = {
    "sdar/block4:p3-static-d2": "overwrote a prompt token",
    "mdlm/small:sigma0.45": "noise level 0",
    **{f"fast_dllm_v2/bd8:p8-{name}": "exactly one block" for name in ("seq", "thr0.6")},
    **{f"fast_dllm_v2/bd8:p{length}-thr0.6-bc": "use_block_cache" for length in (5, 8, 9, 16, 19)},
}


@pytest.mark.parametrize("folder", FOLDERS)
def test_everything_recorded_is_reproduced(folder: str) -> None:
    found = list(check_folder(CaseFolder.read(GOLDENS / folder)))
    assert {finding.kind for finding in found} <= {"logits", "generate"}
    for finding in found:
        reason = SKIPPED.get(f"{folder}:{finding.case}")
        assert finding.status is (Status.OK if reason is None else Status.SKIPPED), finding
        assert reason is None or reason in finding.note


def test_nothing_recorded_is_left_out() -> None:
    assert len(FOLDERS) >= 24
    names = {f"{folder}:{case['name']}" for folder in FOLDERS for case in CaseFolder.read(GOLDENS / folder).cases}
    assert names >= SKIPPED.keys()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(GOLDENS / "sdar/block4", tmp_path / "sdar" / "block4"))


def edit(folder: Path, name: str, **changes: object) -> None:
    raw = json.loads((folder / "cases.json").read_text())
    next(case for case in raw["cases"] if case["name"] == name).update(changes)
    (folder / "cases.json").write_text(json.dumps(raw))


def finding_of(folder: Path, name: str) -> Finding:
    return next(finding for finding in verify([folder]) if finding.case == name)


def test_other_ids_logits_and_forwards_are_found(folder: Path) -> None:
    case = CaseFolder.read(folder).case("p5-static")
    other = [*case["output_ids"][0]]
    other[9] += 1
    edit(folder, "p5-static", output_ids=[other])
    edit(folder, "p8-static", nfe=CaseFolder.read(folder).case("p8-static")["nfe"] + 1)
    states = CaseFolder.read(folder).case("p8-dynamic")["states_before_each_forward"]
    edit(folder, "p8-dynamic", states_before_each_forward=states[:-1])
    tensors = load_file(folder / "logits.safetensors")
    tensors["logits-block4"][0, 0, 0] += 1e-3
    save_file(tensors, folder / "logits.safetensors")
    found = {finding.case: finding for finding in verify([folder])}
    assert found["p5-static"].ids == f"at 4: {other[9] - 1}, recorded {other[9]}"
    assert found["logits-block4"].difference == pytest.approx(1e-3, rel=0.2)
    assert "trace" in found["p8-dynamic"].note
    changed = {"p5-static", "p8-static", "p8-dynamic", "logits-block4"}
    assert {name for name, finding in found.items() if finding.status is Status.DIFFERS} == changed


def test_other_noise_guesses_and_kept_tokens_are_found(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDENS / "diffusion_gemma/small", tmp_path / "diffusion_gemma" / "small"))
    for name, fields in {"early-stop": "accepted", "two-canvases": "argmax_canvas"}.items():
        steps = CaseFolder.read(folder).case(name)["steps"]
        steps[1][fields] = steps[1][fields][1:]
        edit(folder, name, steps=steps)
    edit(folder, "defaults-12-steps", decoder_forwards=11)
    edit(folder, "logits-self-conditioning", self_conditioning="divided by 0.8")
    found = {finding.case: finding for finding in verify([folder])}
    assert "trace: at 1" in found["early-stop"].note
    assert "trace: at 1" in found["two-canvases"].note
    assert (found["defaults-12-steps"].nfe, found["defaults-12-steps"].recorded_nfe) == (12, 11)
    assert (found["logits-self-conditioning"].difference or 0) > 1e-3
    assert {name for name, finding in found.items() if finding.status is Status.OK} == {"logits"}


def test_weights_that_changed_are_found(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] *= 1.01
    save_file(tensors, folder / "model.safetensors")
    assert finding_of(folder, "logits-block4").status is Status.DIFFERS


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"function": "generat"}, "known: sdar.block_diffusion_generate"),
        ({"parameters": {"temperature": 0.3}}, "temperature=0.3"),
        ({"parameters": 3}, "makes no sense"),
        ({"output_ids": [[1]]}, "no longer than its prompt"),
    ],
)
def test_odd_cases_are_named_and_the_others_run(folder: Path, changes: dict[str, object], shown: str) -> None:
    edit(folder, "p5-static", **changes)
    finding = finding_of(folder, "p5-static")
    assert finding.status in (Status.REFUSED, Status.SKIPPED)
    assert shown in finding.note
    assert "\n" not in finding.note
    assert finding_of(folder, "p5-dynamic").status is Status.OK


def test_damaged_folders_are_refused_in_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (folder / "cases.json").read_text()
    (folder / "cases.json").write_text(text[:500])
    assert main(["verify", str(folder), "--json"]) == 1
    assert "cannot read" in json.loads(capsys.readouterr().out)["note"]
    (folder / "cases.json").write_text(text)
    (folder / "logits.safetensors").write_bytes(b"")
    (finding,) = verify([folder])
    assert "logits.safetensors" in finding.note
    save_file({"another": load_file(folder / "model.safetensors")["model.norm.weight"]}, folder / "logits.safetensors")
    (finding,) = verify([folder])
    assert "'logits-block4'" in finding.note
    (folder / "model.safetensors").unlink()
    (finding,) = verify([folder])
    assert finding.status is Status.REFUSED


def test_wrong_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, shown in ((tmp_path / "nowhere", "no folder"), (tmp_path, "no cases.json")):
        assert main(["verify", str(path)]) == 2
        shown_line = capsys.readouterr().err
        assert shown in shown_line
        assert shown_line.count("\n") == 1


def test_the_table(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert "logits-block4" in shown
    assert "skipped: the official code overwrote a prompt token" in shown
    assert "13 cases: 12 ok, 1 skipped" in shown


def test_an_unsupported_family_is_refused_by_name(tmp_path: Path, folder: Path) -> None:
    raw = json.loads((folder / "config.json").read_text()) | {"architectures": ["NobodysModel"]}
    (folder / "config.json").write_text(json.dumps(raw))
    (finding,) = verify([tmp_path])
    assert finding.status is Status.REFUSED
    assert "NobodysModel" in finding.note
