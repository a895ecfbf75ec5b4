"""The table in docs/families.md: family x what is proven, from running every recorded case and every round trip.

python benchmarks/families_table.py            # prints it
python benchmarks/families_table.py --write    # puts it between the markers of docs/families.md
"""

import argparse
import tempfile
from collections import defaultdict
from pathlib import Path

import torch
from safetensors.torch import load_file

from unmask.core.errors import UnmaskError
from unmask.models.linear import PlainLinear
from unmask.models.saving import official_tensors, save_checkpoint
from unmask.verify.folders import WEIGHTS, CaseFolder, find_folders
from unmask.verify.report import Finding, Status, check_folder

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- table: benchmarks/families_table.py --write -->", "<!-- /table -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--goldens", type=Path, default=ROOT / "tests" / "goldens")
    parser.add_argument("--write", action="store_true", help="into docs/families.md")
    args = parser.parse_args()
    table = families_table(args.goldens)
    if args.write:
        page = ROOT / "docs" / "families.md"
        before, rest = page.read_text().split(BEGIN)
        page.write_text(f"{before}{BEGIN}\n{table}{END}{rest.split(END)[1]}")
    else:
        print(table, end="")


def families_table(goldens: Path) -> str:
    """Markdown; one row a family."""
    folders: dict[str, list[CaseFolder]] = defaultdict(list)
    for path in find_folders([goldens]):
        folder = CaseFolder.read(path)
        folders[folder.family].append(folder)
    lines = [
        "| family (folders) | logits: cases, largest difference | ids equal | NFE equal | skipped | round trip |",
        "|---|---|---|---|---|---|",
    ]
    lines += [row_of(family, own) for family, own in sorted(folders.items())]
    return "\n".join(lines) + "\n"


def row_of(family: str, folders: list[CaseFolder]) -> str:
    found = [finding for folder in folders for finding in check_folder(folder)]
    refused = [finding.note for finding in found if finding.case == "*"]
    if refused:
        return f"| {family} ({len(folders)}) | refused: not supported | | | | |"
    logits = [finding for finding in found if finding.difference is not None]
    answers = [finding for finding in found if finding.nfe is not None]
    skipped = sum(finding.status is Status.SKIPPED for finding in found)
    largest = max((finding.difference or 0.0 for finding in logits), default=0.0)
    trips = "bit-exact" if all(comes_back(folder) for folder in folders) else "**differs**"
    return (
        f"| {family} ({len(folders)}) | {share(logits, [f.status is Status.OK for f in logits])}, {largest:.0e} "
        f"| {share(answers, [f.ids == 'equal' for f in answers])} "
        f"| {share(answers, [f.nfe == f.recorded_nfe for f in answers])} | {skipped or ''} | {trips} |"
    )


def share(findings: list[Finding], fine: list[bool]) -> str:
    return f"{sum(fine)}/{len(findings)}" if findings else "none recorded"


def comes_back(folder: CaseFolder) -> bool:
    """Whether load, save in official naming, load and save give the same names and bits."""
    original = load_file(folder.path / WEIGHTS)
    with tempfile.TemporaryDirectory() as where:
        try:
            raw, loaded = folder.config(), folder.load(PlainLinear)
            save_checkpoint(Path(where), official_tensors(loaded, raw), raw, torch.float32)
        except UnmaskError:
            return False
        again = load_file(Path(where) / WEIGHTS)
    return again.keys() == original.keys() and all(torch.equal(again[name], original[name]) for name in original)


if __name__ == "__main__":
    main()
