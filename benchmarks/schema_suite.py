"""Counts what `unmask.grammar` makes of the JSON Schema Test Suite, keyword by keyword: the documentation's table.

python benchmarks/schema_suite.py            print the table
python benchmarks/schema_suite.py --write    put it into docs/structured-output.md, between its markers
"""

import argparse
import json
from collections import Counter
from pathlib import Path

from unmask.core.errors import RequestError
from unmask.grammar.keywords import Schema
from unmask.grammar.schema import compile_schema
from unmask.grammar.serialise import serialise

ROOT = Path(__file__).resolve().parents[1]
SUITE = ROOT / "tests" / "data" / "json_schema" / "draft2020-12.required.jsonl"
PAGE = ROOT / "docs" / "structured-output.md"
BEGIN, END = "<!-- schema suite: begin -->", "<!-- schema suite: end -->"
COLUMNS = ("agree", "refused", "narrower", "unsound")


def judge(schema: Schema, tests: list[dict[str, object]]) -> Counter[str]:
    """Counts one group: `refused` with its schema, `narrower` where a valid instance is not generated."""
    try:
        automaton = compile_schema(schema)
        verdicts = [(automaton.accepts(serialise(schema, test["data"])), test["valid"]) for test in tests]
    except RequestError:
        return Counter(refused=len(tests))
    return Counter("agree" if accepted == valid else "narrower" if valid else "unsound" for accepted, valid in verdicts)


def count() -> dict[str, Counter[str]]:
    """Keyword (file of the suite) -> how many tests fall into each column."""
    counts: dict[str, Counter[str]] = {}
    for line in SUITE.read_text(encoding="utf-8").splitlines():
        group = json.loads(line)
        counts.setdefault(group["file"], Counter()).update(judge(group["schema"], group["tests"]))
    return counts


def table(counts: dict[str, Counter[str]]) -> str:
    total = sum(counts.values(), Counter())
    rows = [*sorted(counts.items()), ("**all**", total)]
    lines = [f"| keyword | {' | '.join(COLUMNS)} |", f"|---|{'---:|' * len(COLUMNS)}"]
    lines += [f"| {name} | {' | '.join(str(row[column]) for column in COLUMNS)} |" for name, row in rows]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    args = parser.parse_args()
    text = table(count())
    if not args.write:
        print(text)
        return
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
