"""`unmask verify`: recorded cases against our loader, engine and rules."""

import argparse
import dataclasses
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from unmask.verify.report import Finding

DESCRIPTION = """\
Runs recorded cases (config.json, model.safetensors, cases.json, logits.safetensors) through our loader, engine and
decoding rules and compares logits, token ids, what was decided when, and the number of forwards (NFE)."""

EPILOG = """\
examples:
  unmask verify tests/goldens                every case of every family
  unmask verify tests/goldens/llada/base     one checkpoint
  unmask verify tests/goldens --json         one JSON line for each case

Exit status: 0 if everything agrees (cases documented as not reproduced are shown as skipped), 1 if anything differs or
could not run, 2 for a wrong path. Logits may differ by 2e-4 in float32; ids and NFE must be equal."""

_COLOURS = {"ok": "green", "differs": "red", "refused": "red", "skipped": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="a folder of cases, or a tree of such")
    parser.add_argument("--json", action="store_true", help="one JSON line for each case")


def run(args: argparse.Namespace) -> int:
    """Verifies; returns 0 if everything agrees, else 1.

    Raises:
        ConfigError: a path is no folder or holds no cases.
    """
    from unmask.verify.report import PASSING, verify

    findings: list[Finding] = []
    for finding in verify(args.folders):
        findings.append(finding)
        if args.json:
            print(json.dumps(dataclasses.asdict(finding) | {"folder": str(finding.folder)}), flush=True)
    if not args.json:
        _print_table(findings)
    return 0 if all(finding.status in PASSING for finding in findings) else 1


def _print_table(findings: list["Finding"]) -> None:
    from rich.console import Console

    # a pipe has no width of its own; nothing is cut there
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(_table(findings))
    counts = Counter(finding.status.value for finding in findings)
    console.print(f"{len(findings)} cases: " + ", ".join(f"{counts[name]} {name}" for name in _COLOURS if counts[name]))


def _table(findings: list["Finding"]) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table("family", "case", "max logit diff", "ids", "NFE ours/recorded", "loop", "result")
    for finding in findings:
        result = f"{finding.status.value}: {finding.note}" if finding.note else finding.status.value
        table.add_row(
            Text(f"{finding.family} {finding.folder.name}"),
            Text(finding.case),
            "" if finding.difference is None else f"{finding.difference:.1e}",
            Text(finding.ids),
            "" if finding.nfe is None else f"{finding.nfe}/{finding.recorded_nfe}",
            finding.loop,
            Text(result, style=_COLOURS[finding.status.value]),
        )
    return table
