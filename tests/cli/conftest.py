from pathlib import Path

import pytest

from tests.tiny import make_checkpoint


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny model; its answers are noise, but always the same noise."""
    folder: Path = tmp_path_factory.mktemp("checkpoints") / "tiny"
    return str(make_checkpoint(folder, max_positions=2048))
