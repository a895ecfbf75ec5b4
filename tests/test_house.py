"""Fitness tests: the rules of the house that no linter knows (CONTRIBUTING.md, docs/adr/001-floors.md)."""

import ast
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import unmask

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "unmask"
MODULES = sorted(SRC.rglob("*.py"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
VAGUE_NAMES = {"util", "utils", "common", "helper", "helpers", "misc"}
# The three places that may catch everything, by floor; one handler each.
BROAD_EXCEPTS = {"engine": "the engine loop", "train": "the rollout boundary", "cli": "the CLI's top"}
UNSAFE_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
UNSAFE_CALLS = {"eval", "exec", "__import__", "torch.load", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load"}
UNSAFE_SWITCHES = {"allow_pickle", "trust_remote_code", "shell"}
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


def label(path: Path) -> str:
    return str(path.relative_to(SRC))


def floor_of(path: Path) -> str:
    return path.relative_to(SRC).parts[0]


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


def every_node() -> Iterator[tuple[Path, ast.AST]]:
    for path in MODULES:
        for node in ast.walk(parse(path)):
            yield path, node


def dotted(node: ast.AST | None) -> str:
    """`torch.load` for the expression torch.load; empty for what is not a plain dotted name."""
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return node.id if isinstance(node, ast.Name) else ""


def may_be_long(path: Path) -> bool:
    """Whether a comment above the first statement says `house: long because <reason>`."""
    tree = parse(path)
    statements = tree.body[1:] if ast.get_docstring(tree) is not None else tree.body
    head = path.read_text().splitlines()[: statements[0].lineno - 1 if statements else None]
    return any(re.match(r"#\s*house: long because \S+ \S+", line) for line in head)


# --- sizes and names ---------------------------------------------------------------------------------------------


def test_files_are_short() -> None:
    lengths = {label(path): len(path.read_text().splitlines()) for path in MODULES if not may_be_long(path)}
    too_long = {name: num_lines for name, num_lines in lengths.items() if num_lines > MAX_FILE_LINES}
    assert not too_long, f"over {MAX_FILE_LINES} lines: split, or say `# house: long because ...` at the head"


def num_code_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The docstring does not count: contracts may be as long as they need to be."""
    first = function.body[0]
    has_docstring = ast.get_docstring(function, clean=False) is not None
    num_docstring_lines = (first.end_lineno or 0) - first.lineno + 1 if has_docstring else 0
    return (function.end_lineno or 0) - function.lineno + 1 - num_docstring_lines


def test_functions_are_short() -> None:
    too_long = {
        f"{label(path)}:{node.name}": num_code_lines(node)
        for path, node in every_node()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and num_code_lines(node) > MAX_FUNCTION_LINES
        and not may_be_long(path)
    }
    assert not too_long, (
        f"over {MAX_FUNCTION_LINES} lines: split, or say `# house: long because ...` at the file's head"
    )


def test_names_say_something() -> None:
    vague = [
        label(path)
        for path in MODULES
        if {part.strip("_") for part in path.relative_to(SRC).with_suffix("").parts} & VAGUE_NAMES
    ]
    assert not vague, "name the module after what it does"


# --- what code may not do ----------------------------------------------------------------------------------------


def test_nothing_is_left_undone() -> None:
    marks = [
        f"{label(path)}:{number}: {line.strip()}"
        for path in MODULES
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\b(TODO|FIXME|XXX)\b|NotImplementedError", line)
    ]
    assert not marks


def is_broad_handler(node: ast.AST) -> bool:
    if isinstance(node, ast.ExceptHandler):
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        return any(kind is None or dotted(kind).split(".")[-1] in {"Exception", "BaseException"} for kind in caught)
    if isinstance(node, ast.Call) and dotted(node.func).split(".")[-1] == "suppress":
        return any(dotted(kind) in {"Exception", "BaseException"} for kind in node.args)
    return False


def test_broad_excepts_only_in_the_three_named_places() -> None:
    found: dict[str, list[str]] = {}
    for path, node in every_node():
        if is_broad_handler(node):
            found.setdefault(floor_of(path), []).append(f"{label(path)}:{getattr(node, 'lineno', 0)}")
    elsewhere = {floor: places for floor, places in found.items() if floor not in BROAD_EXCEPTS}
    assert not elsewhere, f"allowed only in {BROAD_EXCEPTS}"
    assert not {floor: places for floor, places in found.items() if len(places) > 1}, "one such place a floor"


def unsafe_names(node: ast.AST) -> set[str]:
    """What in this node could run code that came as data."""
    names: set[str] = set()
    if isinstance(node, ast.Import):
        names = {name.name for name in node.names if name.name.split(".")[0] in UNSAFE_MODULES}
    elif isinstance(node, ast.ImportFrom):
        names = {f"{node.module}.{name.name}" for name in node.names}
        if (node.module or "").split(".")[0] not in UNSAFE_MODULES:
            names &= UNSAFE_CALLS
    elif isinstance(node, ast.Call):
        switched_on = {
            f"{word.arg}=True"
            for word in node.keywords
            if word.arg in UNSAFE_SWITCHES and not (isinstance(word.value, ast.Constant) and word.value.value is False)
        }
        names = ({dotted(node.func)} & UNSAFE_CALLS) | switched_on
    return names


def test_nothing_runs_code_from_data() -> None:
    bad = {
        f"{label(path)}:{getattr(node, 'lineno', 0)}": names
        for path, node in every_node()
        if (names := unsafe_names(node))
    }
    assert not bad


def reads_environment(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and bool({name.name for name in node.names} & ENVIRONMENT)
    return isinstance(node, ast.Attribute) and dotted(node) in {f"os.{name}" for name in ENVIRONMENT}


def test_environment_is_read_in_cli_only() -> None:
    found = [
        f"{label(path)}:{getattr(node, 'lineno', 0)}"
        for path, node in every_node()
        if floor_of(path) != "cli" and reads_environment(node)
    ]
    assert not found, "take the value as a setting; cli/ reads the environment"


def test_importing_unmask_is_light() -> None:
    program = "import sys, unmask; print(*sorted({'torch', 'transformers', 'numpy', 'fastapi'} & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert loaded.strip() == ""


# --- the house as a whole ----------------------------------------------------------------------------------------


def test_late_floors_are_under_contract() -> None:
    """import-linter refuses contracts on packages that do not exist, so new ones must be entered when they appear."""
    contracts = {contract["id"]: contract for contract in PYPROJECT["tool"]["importlinter"]["contracts"]}
    for package, identifier in [("bench", "backend-only"), ("grammar", "ground")]:
        if (SRC / package).is_dir():
            assert f"unmask.{package}" in contracts[identifier]["source_modules"], f"add unmask.{package}"


def test_tests_mirror_the_source() -> None:
    """tests/<floor>/test_x.py or test_x_<aspect>.py belongs to module or package x of that floor, or to all of it."""
    strays = []
    for path in sorted((ROOT / "tests").glob("*/**/test_*.py")):
        floor = path.relative_to(ROOT / "tests").parts[0]
        known = {floor} | {p.stem for p in (SRC / floor).rglob("*.py")} | {p.name for p in (SRC / floor).rglob("*/")}
        subject = path.stem.removeprefix("test_")
        if not any(subject == name or subject.startswith(f"{name}_") for name in known - {"__init__", "__pycache__"}):
            strays.append(str(path.relative_to(ROOT)))
    assert not strays, "no module of that floor has this name"


def test_every_dependency_is_pinned() -> None:
    def normal(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    pins = {normal(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    project = PYPROJECT["project"]
    wanted = [*project["dependencies"], *PYPROJECT["build-system"]["requires"]]
    wanted += [requirement for extra in project["optional-dependencies"].values() for requirement in extra]
    names = {normal(match[0]) for requirement in wanted if (match := re.match(r"[\w.-]+", requirement))}
    assert names <= pins


def test_changelog_is_of_this_version() -> None:
    heading = re.search(r"^## \[?(\d+\.\d+\.\d+\S*?)\]?(?: |$)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert heading is not None
    assert heading[1] == unmask.__version__


# --- the README keeps its word -----------------------------------------------------------------------------------


def readme() -> str:
    return (ROOT / "README.md").read_text()


def code_of(text: str) -> list[str]:
    """Everything set as code: fenced blocks and inline spans."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```[^\n]*\n.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return blocks + re.findall(r"`([^`\n]+)`", prose)


def words_after(command: str, text: str) -> set[str]:
    """First argument of each call of `command` in the README's code, options and VAR=value skipped."""
    found = set()
    for code in code_of(text):
        for call in re.findall(rf"(?:^|[;&|$]\s*|\s\s)(?:\S*/)?{command}[ \t]+([^\n;&|#]*)", code, re.MULTILINE):
            plain = [word for word in call.split() if not word.startswith("-") and "=" not in word]
            found |= {word for word in plain[:1] if re.fullmatch(r"[a-z][a-z-]*", word)}
    return found


def test_readme_blocks_are_valid() -> None:
    blocks = re.findall(r"^```(bash|python)\n(.*?)^```", readme(), re.MULTILINE | re.DOTALL)
    assert blocks, "the README shows no command and no code"
    for language, code in blocks:
        if language == "python":
            compile(code, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        else:
            shlex.split(code, comments=True)
            checked = subprocess.run(["bash", "-n"], input=code, capture_output=True, text=True, check=False)
            assert checked.returncode == 0, f"{checked.stderr}\n{code}"


def test_readme_names_real_make_targets() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = words_after("make", readme())
    assert {"serve", "test"} <= named, "the two commands belong on the README's first screen"
    assert named <= targets


def test_readme_names_real_verbs() -> None:
    run = "import sys; from unmask.cli.main import main; sys.exit(main())"
    for verb in sorted(words_after("unmask", readme())):
        command = [sys.executable, "-c", run, verb, "--help"]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        assert finished.returncode == 0, f"unmask {verb} --help: {finished.stderr.strip()}"


def test_docs_links_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "PAPERS.md", *(ROOT / "docs").rglob("*.md")]
    dead = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
        if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists()
    ]
    assert not dead


def test_glossary_is_in_order() -> None:
    """One entry a word, sorted, so that a word is found and never defined twice."""
    entries = re.findall(r"^\*\*(.+?)\*\*", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    names = [entry.lower() for entry in entries]
    assert names
    assert all(first < second for first, second in pairwise(names)), "sort the entries; one each"
