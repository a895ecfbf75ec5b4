"""Hub names against a small hub that runs in this process."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.tiny import make_checkpoint
from unmask.core.errors import CheckpointError
from unmask.models.hub import fetch_checkpoint, is_hub_name

COMMIT = "a" * 40


class Hub(BaseHTTPRequestHandler):
    """The routes that a snapshot needs, over the folders in `repositories`."""

    repositories: dict[str, Path]

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        path = self.path.split("?")[0].lstrip("/")
        for name, folder in self.repositories.items():
            listed = f"api/models/{name}"
            if path.startswith(listed):
                wanted = path.removeprefix(listed).strip("/").split("/")[-1] or "main"
                if wanted not in ("main", COMMIT):
                    return self._send(404, b"", {"X-Error-Code": "RevisionNotFound"}, body=body)
                files = [(file.name, file.stat().st_size) for file in folder.iterdir()]
                reply: object = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file, _ in files]}
                if "/tree/" in path:
                    reply = [{"type": "file", "path": file, "size": size, "oid": file} for file, size in files]
                return self._send(200, json.dumps(reply).encode(), {"Content-Type": "application/json"}, body=body)
            if path.startswith(f"{name}/resolve/"):
                file = folder / path.split("/")[-1]
                if file.exists():
                    headers = {"ETag": f'"{file.name}"', "X-Repo-Commit": COMMIT}
                    return self._send(200, file.read_bytes(), headers, body=body)
        return self._send(401, b"", {"X-Error-Code": "RepoNotFound"}, body=body)

    def _send(self, status: int, content: bytes, headers: dict[str, str], *, body: bool) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    from huggingface_hub import constants

    checkpoint = make_checkpoint(tmp_path / "tiny")
    (checkpoint / "pytorch_model.bin").write_bytes(b"never fetched")
    Hub.repositories = {"org/tiny": checkpoint}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # the gate is offline; this hub is on the loopback
    monkeypatch.setattr(constants, "ENDPOINT", endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", endpoint + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield endpoint
    server.shutdown()
    thread.join()
    server.server_close()


def test_spelling() -> None:
    assert is_hub_name("GSAI-ML/LLaDA-8B-Instruct")
    assert is_hub_name("org/name.v2@refs/pr/1")
    assert not any(is_hub_name(name) for name in ("smol-agent", "./org/name", "/org/name", "org/name/x", "org/", "~/x"))


@pytest.mark.usefixtures("hub")
def test_a_checkpoint_is_fetched_without_its_pickles() -> None:
    folder = fetch_checkpoint("org/tiny")
    names = {file.name for file in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert "pytorch_model.bin" not in names
    assert fetch_checkpoint(f"org/tiny@{COMMIT}") == folder


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    ("name", "message"), [("org/absent", "no org/absent on the hub"), ("org/tiny@v9", "no revision 'v9'")]
)
def test_what_is_not_there_is_one_line(name: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        fetch_checkpoint(name)
    assert "\n" not in str(caught.value)


def test_an_unreachable_hub_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(CheckpointError, match="neither in the Hugging Face cache"):
        fetch_checkpoint("org/elsewhere")
