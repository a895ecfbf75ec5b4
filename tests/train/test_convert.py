import json
import multiprocessing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.tiny import EOS_ID, MASK_ID, make_checkpoint
from unmask.core.errors import ConfigError, EngineError, UnmaskError
from unmask.models.config import AttentionPattern
from unmask.models.linear import TiledLinear
from unmask.models.loading import load
from unmask.train.convert import ConvertSettings, StepReport, _prepare, convert
from unmask.train.lora import LoraSettings, adapter_tensors
from unmask.train.packing import pack


def conversations(folder: Path, count: int = 5) -> Path:
    file = folder / "chats.jsonl"
    rows = [
        {"messages": [{"role": "user", "content": f"say {i}"}, {"role": "assistant", "content": f"word {i}"}]}
        for i in range(count)
    ]
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return file


def settings(folder: Path, **changes: object) -> ConvertSettings:
    base = make_checkpoint(folder / "base", attention="causal")
    start = ConvertSettings(
        base=base,
        out=folder / "run",
        data=str(conversations(folder)),
        steps=6,
        conversations=2,
        lr=3e-3,
        warmup=2,
        mask_token_id=MASK_ID,
        block_sizes=(4,),
        lora=LoraSettings(rank=2, alpha=4.0),
        save_every=2,
    )
    return replace(start, **changes)  # pyright: ignore[reportArgumentType]


def ignore(_: StepReport) -> None:
    pass


def test_the_result_is_a_checkpoint_with_traits(tmp_path: Path) -> None:
    seen: list[int] = []
    out = convert(settings(tmp_path), lambda report: seen.append(report.step))
    assert seen == [1, 2, 3, 4, 5, 6]
    loaded = load(out, linear=TiledLinear)
    assert loaded.traits.mask_token_id == MASK_ID
    assert loaded.traits.attention is AttentionPattern.CAUSAL_CONTEXT
    assert loaded.traits.eos_ids == frozenset([EOS_ID])
    assert {path.name for path in out.iterdir()} >= {"config.json", "model.safetensors", "tokenizer.json"}
    lines = [json.loads(line) for line in (tmp_path / "run/log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == seen
    assert lines[-1]["loss"] < lines[0]["loss"]


def test_resuming_equals_going_straight_through(tmp_path: Path) -> None:
    whole = convert(settings(tmp_path / "a", steps=6), ignore)

    def stop_at_five(report: StepReport) -> None:
        if report.step == 5:  # after the state of step 4 was saved
            raise KeyboardInterrupt

    broken = settings(tmp_path / "b", steps=6)
    with pytest.raises(KeyboardInterrupt):
        convert(broken, stop_at_five)
    resumed = convert(broken, ignore)
    first, second = (load_file(out / "model.safetensors") for out in (whole, resumed))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_folder_refuses_other_settings(tmp_path: Path) -> None:
    convert(settings(tmp_path, steps=2), ignore)
    with pytest.raises(ConfigError, match="lr"):
        convert(settings(tmp_path, steps=4, lr=1e-2), ignore)


def test_the_merged_model_equals_base_and_adapter(tmp_path: Path) -> None:
    given = settings(tmp_path, steps=3)
    out = convert(given, ignore)
    merged = load(given.base, linear=TiledLinear, adapter=given.out / "adapter").model
    saved = load(out, linear=TiledLinear).model
    for mine, theirs in zip(merged.parameters(), saved.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-3, rtol=2e-3)  # the checkpoint is stored as float16


def test_an_adapter_can_be_continued(tmp_path: Path) -> None:
    first = settings(tmp_path, steps=3)
    convert(first, ignore)
    again = replace(first, out=tmp_path / "more", adapter=first.out / "adapter", steps=1, lr=1e-9)
    convert(again, ignore)
    before, after = (load_file(s.out / "adapter/adapter_model.safetensors") for s in (first, again))
    assert all(torch.allclose(before[name], after[name], atol=1e-4) for name in before)
    with pytest.raises(ConfigError, match="mask token"):
        convert(replace(again, out=tmp_path / "other", mask_token_id=3), ignore)


def test_all_weights_can_be_trained(tmp_path: Path) -> None:
    given = settings(tmp_path, full=True, steps=2)
    out = convert(given, ignore)
    base, trained = (load_file(folder / "model.safetensors") for folder in (given.base, out))
    changed = {name for name in base if not torch.equal(base[name].half(), trained[name])}
    assert all(("proj" in name) or name == "model.embed_tokens.weight" for name in changed)
    assert any("proj" in name for name in changed)
    rows = (base["model.embed_tokens.weight"].half() != trained["model.embed_tokens.weight"]).any(1).nonzero()
    assert rows.flatten().tolist() == [MASK_ID]


def test_ar_only_training_has_no_noisy_rows(tmp_path: Path) -> None:
    metrics: list[dict[str, float]] = []
    convert(settings(tmp_path, diffusion_weight=0.0, steps=1), lambda report: metrics.append(report.metrics))
    assert "ar_loss" in metrics[0]
    assert "diffusion_loss" not in metrics[0]


@pytest.mark.parametrize(
    "changes", [{"attention": AttentionPattern.BLOCK_CAUSAL, "logit_shift": 0, "ar_weight": 0.0}, {"logit_shift": 1}]
)
def test_other_layouts_train(tmp_path: Path, changes: dict[str, object]) -> None:
    out = convert(settings(tmp_path, steps=1, **changes), ignore)
    traits = load(out, linear=TiledLinear).traits
    assert traits.logit_shift == changes["logit_shift"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no conversation"),
        ("{", "line 1"),
        ('{"messages": []}', "line 1"),
        ('{"messages": [{"role": "user", "content": "hi"}]}', "line 1"),
        ("[]", "line 1"),
    ],
)
def test_bad_data_names_its_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=message):
        convert(settings(tmp_path, data=str(file)), ignore)


def test_the_mask_token_is_an_unused_special_one(tmp_path: Path) -> None:
    out = convert(settings(tmp_path, mask_token_id=None, steps=1), ignore)
    assert load(out, linear=TiledLinear).traits.mask_token_id == 3  # <unused>
    for bad in (EOS_ID, -1, 10**6):
        with pytest.raises(ConfigError, match="mask_token_id"):
            convert(settings(tmp_path / str(bad), mask_token_id=bad, steps=1), ignore)


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": 0},
        {"lr": 0.0},
        {"ar_weight": 0.0, "diffusion_weight": 0.0},
        {"conversations": 0},
        {"attention": AttentionPattern.BLOCK_CAUSAL},
    ],
)
def test_impossible_settings_are_refused(tmp_path: Path, changes: dict[str, object]) -> None:
    with pytest.raises(UnmaskError):
        settings(tmp_path, **changes)


def test_two_workers_take_the_mean_of_their_gradients(tmp_path: Path) -> None:
    reports: list[StepReport] = []
    pair = settings(tmp_path, workers=2, steps=1, threads=1)
    out = convert(pair, reports.append)
    run, _ = _prepare(replace(pair, workers=1))
    rows = 0
    for draw in (0, 1):  # by hand: both workers' batches, one after the other
        data = run.source.step(pair.seed, draw)
        rng = np.random.default_rng([pair.seed, draw])
        batch = pack(data.prefix_ids, data.samples, run.recipe, rng)
        (run.objective(run.denoise, batch).value / 2).backward()
        rows += len(batch.ids_N)
    for group in run.optimizer.param_groups:
        group["lr"] = pair.rate(0)
    torch.nn.utils.clip_grad_norm_(list(run.named.values()), 1.0)
    run.optimizer.step()
    by_hand = adapter_tensors(run.loaded.model)
    stored = load_file(out.parent / "adapter/adapter_model.safetensors")
    assert rows == reports[0].rows
    for name, tensor in by_hand.items():
        torch.testing.assert_close(stored[name].float(), tensor, atol=1e-3, rtol=1e-2)


def test_a_lost_worker_ends_the_run_with_one_line(tmp_path: Path) -> None:
    def lose_the_other(report: StepReport) -> None:
        if report.step == 1:
            for child in multiprocessing.active_children():
                child.kill()
                child.join()

    with pytest.raises(EngineError, match="another training worker has gone"):
        convert(settings(tmp_path, workers=2, steps=50, threads=1), lose_the_other)


def test_resuming_drops_log_lines_of_steps_that_were_lost(tmp_path: Path) -> None:
    def stop_at_five(report: StepReport) -> None:
        if report.step == 5:  # after the state of step 4 was saved
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(settings(tmp_path), stop_at_five)
    log = tmp_path / "run/log.jsonl"
    log.write_text(log.read_text() + '{"step": 6, "lo')  # cut short by a kill
    convert(settings(tmp_path), ignore)
    assert [json.loads(line)["step"] for line in log.read_text().splitlines()] == [1, 2, 3, 4, 5, 6]


def test_other_families_are_refused(tmp_path: Path) -> None:
    given = settings(tmp_path)
    config = given.base / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"architectures": ["DreamModel"]}))
    with pytest.raises(ConfigError, match="DreamModel; conversion starts from a Llama"):
        convert(given, ignore)
