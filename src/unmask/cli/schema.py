"""`unmask schema check`: what a JSON schema compiles to, and which instances its texts include."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from unmask.core.errors import ConfigError

if TYPE_CHECKING:
    from unmask.grammar.automaton import Automaton

DESCRIPTION = """\
Compiles a JSON schema the way structured output does and tries instances on it: is the schema honoured, how large is
its automaton, and is each instance's text (properties in schema order, our separators) one that can be generated?"""

EPILOG = """\
examples:
  unmask schema check tool.json                       is this schema supported?
  unmask schema check tool.json call-1.json call-2.json
  unmask schema check tool.json call.json --json      for scripts

Exit status: 0 if the schema is honoured and every instance accepted, else 2. "At" is a byte offset into the instance's
text; an instance that is valid but never generated (see docs/structured-output.md) is rejected too."""

_REFUSED = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    parser.add_argument("action", choices=["check"], help="what to do with the schema")
    parser.add_argument("schema", type=Path, metavar="SCHEMA.json", help="a JSON schema")
    parser.add_argument("instances", type=Path, nargs="*", metavar="INSTANCE.json", help="JSON values to try on it")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Checks a schema.

    Returns:
        0 if the schema is honoured and every instance accepted, else 2.

    Raises:
        ConfigError: a file cannot be read as JSON.
        RequestError: an instance cannot be written as JSON text.
    """
    from unmask.grammar.keywords import SchemaError
    from unmask.grammar.schema import compile_schema
    from unmask.grammar.serialise import serialise

    schema = _read(args.schema)
    instances = [(path, _read(path)) for path in args.instances]
    started_s = time.perf_counter()
    try:
        automaton = compile_schema(schema)
    except SchemaError as error:
        if not args.json:
            raise
        refused = {"keyword": error.keyword, "path": error.path}
        print(json.dumps({"refused": refused, "states": None, "classes": None, "compile_ms": None, "instances": []}))
        print(f"unmask: {error}", file=sys.stderr)
        return _REFUSED
    compile_ms = 1000 * (time.perf_counter() - started_s)
    texts = [(path, serialise(schema, instance)) for path, instance in instances]
    (_print_json if args.json else _print_lines)(automaton, compile_ms, texts)
    return 0 if all(automaton.accepts(text) for _, text in texts) else _REFUSED


def _print_json(automaton: "Automaton", compile_ms: float, texts: list[tuple[Path, bytes]]) -> None:
    places = [(path, automaton.rejects_at(text)) for path, text in texts]
    answer = {
        "refused": None,
        "states": automaton.num_states,
        "classes": automaton.num_classes,
        "compile_ms": round(compile_ms, 1),
        "instances": [{"file": str(path), "accepted": at is None, "at": at} for path, at in places],
    }
    print(json.dumps(answer))


def _print_lines(automaton: "Automaton", compile_ms: float, texts: list[tuple[Path, bytes]]) -> None:
    print(f"schema: {automaton.num_states} states, {automaton.num_classes} byte classes, {compile_ms:.0f} ms")
    for path, text in texts:
        at = automaton.rejects_at(text)
        if at is None:
            print(f"{path}: accepted")
        else:
            before, after = text[:at].decode(errors="replace"), text[at:].decode(errors="replace")
            print(f"{path}: rejected at byte {at}, between {before[-30:]!r} and {after[:30]!r}")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")
