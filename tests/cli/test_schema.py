"""`unmask schema check` on real files."""

import json
from pathlib import Path
from typing import Any

import pytest

from unmask.cli.main import main

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city"],
}


def written(folder: Path, name: str, value: Any) -> str:
    path = folder / name
    path.write_text(json.dumps(value), encoding="utf-8")
    return str(path)


def test_json_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = written(tmp_path, "schema.json", SCHEMA)
    good = written(tmp_path, "good.json", {"days": 3, "city": "Œ"})
    bad = written(tmp_path, "bad.json", {"city": "x", "days": 30})
    assert main(["schema", "check", schema, good, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["instances"] == [{"file": good, "accepted": True, "at": None}]
    assert main(["schema", "check", schema, good, bad, "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["refused"] is None
    assert answer["instances"][1] == {"file": bad, "accepted": False, "at": len('{"city": "x", "days": 3')}
    assert answer["states"] > 20
    assert answer["classes"] > 10
    assert answer["compile_ms"] > 0


def test_refused_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = written(tmp_path, "schema.json", {"properties": {"a": {"not": {}}}})
    assert main(["schema", "check", schema, "--json"]) == 2
    shown = capsys.readouterr()
    assert json.loads(shown.out)["refused"] == {"keyword": "not", "path": "/properties/a"}
    assert main(["schema", "check", schema]) == 2
    plain = capsys.readouterr()
    assert plain.out == ""
    assert plain.err == shown.err
    assert plain.err.count("\n") == 1
    assert "'not'" in plain.err
    assert "/properties/a" in plain.err


def test_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = written(tmp_path, "schema.json", SCHEMA)
    bad = written(tmp_path, "bad.json", {"city": 3})
    assert main(["schema", "check", schema, bad]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("schema: ")
    assert lines[1] == f"{bad}: rejected at byte 9, between '{{\"city\": ' and '3}}'"


@pytest.mark.parametrize("content", ["{", '{"a": NaN}', "\xff"])
def test_what_is_not_json_is_one_line(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.json"
    broken.write_bytes(content.encode("latin-1"))
    schema = written(tmp_path, "schema.json", SCHEMA)
    for argv in ([str(broken)], [schema, str(broken)], [schema, str(tmp_path / "missing.json")]):
        assert main(["schema", "check", *argv]) == 2
        assert capsys.readouterr().err.count("\n") == 1
