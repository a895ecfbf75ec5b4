import argparse
from pathlib import Path

import pytest

from unmask.cli.options import api_key, cache_dir, engine_settings, number
from unmask.core.errors import ConfigError
from unmask.core.request import Mode


def arguments(**given: object) -> argparse.Namespace:
    return argparse.Namespace(**{"mode": None, "threshold": None, "block_size": None, "threads": None, **given})


def test_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("UNMASK_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_dir() == tmp_path / ".cache" / "unmask"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "unmask"
    monkeypatch.setenv("UNMASK_CACHE", "~/models")
    assert cache_dir() == tmp_path / "models"


def test_api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNMASK_API_KEY", "from-outside")
    assert api_key(arguments(api_key=None)) == "from-outside"
    assert api_key(arguments(api_key="given")) == "given"
    monkeypatch.setenv("UNMASK_API_KEY", "")
    assert api_key(arguments(api_key=None)) is None
    with pytest.raises(ConfigError, match="must not be empty"):
        api_key(arguments(api_key=""))


@pytest.mark.parametrize("text", ["x", "", "0", "300", "nan", "1.5"])
def test_numbers_outside_the_range_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        number(1, 256)(text)


def test_engine_settings_take_what_is_given() -> None:
    settings = engine_settings(arguments(mode="diffusion", threshold=0.5, max_running=3))
    assert (settings.mode, settings.threshold, settings.max_running) == (Mode.DIFFUSION, 0.5, 3)
    assert engine_settings(arguments()).mode is None
    settings = engine_settings(arguments(draft_model="small", num_drafts=7), requests_choose=True)
    assert (settings.mode, settings.num_drafts) == (None, 7)


@pytest.mark.parametrize(
    "given",
    [
        {"mode": "ar", "threshold": 0.5},
        {"max_running": 0},
        {"max_cached_tokens": -1},
        {"threshold": 0.0},
        {"mode": "ar", "num_drafts": 4},
        {"draft_model": "small"},
        {"mode": "verified", "draft_model": "small"},
    ],
)
def test_engine_settings_refuse_what_makes_no_sense(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        engine_settings(arguments(**given))
