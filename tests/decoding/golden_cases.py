"""Recorded cases for tests, read and opened once."""

from functools import cache
from pathlib import Path

from unmask.models.linear import PlainLinear
from unmask.models.loading import Loaded
from unmask.verify.calls import make_call
from unmask.verify.folders import CaseFolder
from unmask.verify.running import Call, Run
from unmask.verify.traces import traces_of

GOLDENS = Path(__file__).parents[1] / "goldens"


@cache
def folder_of(folder: str) -> CaseFolder:
    return CaseFolder.read(GOLDENS / folder)


@cache
def loaded(folder: str) -> Loaded:
    return folder_of(folder).load(PlainLinear)


def folders_of(*families: str) -> list[str]:
    return [
        str(file.parent.relative_to(GOLDENS))
        for family in families
        for file in sorted((GOLDENS / family).glob("*/cases.json"))
    ]


def split(name: str) -> tuple[str, int]:
    """`name#row` -> name, row."""
    case, _, row = name.partition("#")
    return case, int(row or 0)


def call_of(folder: str, name: str) -> Call:
    case, row = split(name)
    return make_call(folder_of(folder), folder_of(folder).case(case), row, loaded(folder).traits)


def assert_official(folder: str, name: str, done: Run) -> None:
    """Ids, forwards and whatever the case notes on the way."""
    case, row = split(name)
    assert tuple(done.ids) == done.call.wanted
    assert done.official_forwards == done.call.wanted_forwards
    ours, theirs = traces_of(folder_of(folder), folder_of(folder).case(case), row, loaded(folder).traits, done)
    assert ours == theirs
