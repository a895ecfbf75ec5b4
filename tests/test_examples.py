"""Every example, and every Python block of the README and the quickstart, runs on a tiny model."""

import re
import runpy
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from tests.tiny import make_checkpoint
from unmask.engine.backend import EngineBackend
from unmask.engine.loop import EngineLoop
from unmask.engine.opening import open_model
from unmask.engine.settings import EngineSettings
from unmask.server.app import create_app
from unmask.server.settings import ServerSettings

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.py"))
OFFLINE = {"offline.py", "seeds.py"}

pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("examples") / "tiny", max_positions=2048)


@pytest.fixture(scope="module")
def url(checkpoint: Path) -> Iterator[str]:
    model = open_model(str(checkpoint), cache_dir=checkpoint, precision="fp32")
    loop = EngineLoop(model.loaded, EngineSettings(threads=1))
    settings = ServerSettings(model_id="tiny", context_length=2000, created=0, max_tokens_default=32)
    app = create_app(
        backend=EngineBackend(loop), tokenizer=model.tokenizer, template=model.chat_template(), settings=settings
    )
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/v1"
    server.should_exit = True
    thread.join()
    loop.close()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_it_runs(
    example: Path,
    checkpoint: Path,
    url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", [str(example), str(checkpoint) if example.name in OFFLINE else url])
    runpy.run_path(str(example), run_name="__main__")
    assert capsys.readouterr().out


def test_they_are_few_and_short() -> None:
    assert len(EXAMPLES) <= 5
    assert all(len(example.read_text().splitlines()) <= 60 for example in EXAMPLES)


ROOT = Path(__file__).resolve().parents[1]
BLOCKS = [
    (page.name, number, code)
    for page in (ROOT / "README.md", ROOT / "docs" / "quickstart.md")
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block[0]}-{block[1]}")
def test_blocks_of_the_docs_run(block: tuple[str, int, str], checkpoint: Path, url: str) -> None:
    """As printed, but against the tiny model: on its port and by its folder."""
    code = block[2].replace("http://127.0.0.1:8000/v1", url).replace('LLM("smol-agent")', f'LLM("{checkpoint}")')
    code = code.replace("smol-agent", "tiny")
    exec(compile(code, block[0], "exec"), {"__name__": "__main__"})  # the project's own pages, not a model's output


def test_the_docs_have_blocks() -> None:
    assert {page for page, _, _ in BLOCKS} == {"README.md", "quickstart.md"}
