"""Whole folders of cases -> one finding for each case."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from torch import Tensor

from unmask.core.errors import UnmaskError
from unmask.decoding.official import NotReproducedError
from unmask.models.loading import Loaded
from unmask.verify.calls import make_call, num_rows
from unmask.verify.folders import Case, CaseFolder, find_folders
from unmask.verify.logits import TOLERANCE, logits_difference
from unmask.verify.running import Run, run
from unmask.verify.traces import traces_of


class Status(StrEnum):
    """How a case went."""

    OK = "ok"
    DIFFERS = "differs"
    SKIPPED = "skipped"  # documented: a quirk of the official code that we do not reproduce
    REFUSED = "refused"  # it could not run


PASSING = frozenset({Status.OK, Status.SKIPPED})


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One line of the table.

    Attributes:
        folder: of the cases.
        family: as recorded.
        case: name, with `#row` for each prompt of a batch; "*" where the whole folder was refused.
        status: see `Status`.
        kind: "logits" or "generate"; empty for a whole folder.
        difference: largest absolute difference of logits; None where none were compared.
        ids: "equal", or the first difference; empty where none were compared.
        nfe, recorded_nfe: forwards, counted as the official code counts them.
        loop: "engine" or "reference", whichever ran it; empty for logits.
        note: why it was skipped or refused, or what else differs.
    """

    folder: Path
    family: str
    case: str
    status: Status
    kind: str = ""
    difference: float | None = None
    ids: str = ""
    nfe: int | None = None
    recorded_nfe: int | None = None
    loop: str = ""
    note: str = ""


def verify(paths: Sequence[Path]) -> Iterator[Finding]:
    """Runs every case of every folder at or below `paths`.

    Raises:
        ConfigError: a path is no folder or holds no cases.
    """
    for path in list(find_folders(paths)):
        try:
            folder = CaseFolder.read(path)
        except UnmaskError as error:
            yield Finding(folder=path, family=path.parent.name, case="*", status=Status.REFUSED, note=str(error))
            continue
        yield from check_folder(folder)


def check_folder(folder: CaseFolder) -> Iterator[Finding]:
    """All cases of a checkpoint, or one finding that it was refused."""
    try:
        loaded, tensors = folder.load(), folder.tensors()
    except UnmaskError as error:
        yield refusal(folder, error)
        return
    for case in folder.cases:
        if case["kind"] == "logits":
            yield _guarded(folder, case, case["name"], lambda case=case: _check_logits(folder, case, loaded, tensors))
            continue
        rows = num_rows(case)
        for row in range(rows):
            name = case["name"] if rows == 1 else f"{case['name']}#{row}"
            yield _guarded(
                folder, case, name, lambda case=case, row=row, name=name: check_row(folder, case, row, name, loaded)
            )


def refusal(folder: CaseFolder, error: UnmaskError) -> Finding:
    """The finding of a folder that could not be opened."""
    return Finding(folder=folder.path, family=folder.family, case="*", status=Status.REFUSED, note=str(error))


def _guarded(folder: CaseFolder, case: Case, name: str, check: Callable[[], Finding]) -> Finding:
    """A check whose own refusals, and contents that make no sense, become findings."""
    status = Status.REFUSED
    try:
        return check()
    except NotReproducedError as error:
        status, note = Status.SKIPPED, str(error)
    except UnmaskError as error:
        note = str(error)
    except KeyError as error:
        note = f"the case has no {error}"
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        note = f"the case makes no sense: {error}".splitlines()[0]
    return Finding(
        folder=folder.path, family=folder.family, case=name, status=status, kind=case.get("kind", ""), note=note
    )


def _check_logits(folder: CaseFolder, case: Case, loaded: Loaded, tensors: dict[str, Tensor]) -> Finding:
    difference = logits_difference(loaded, case, tensors)
    return Finding(
        folder=folder.path,
        family=folder.family,
        case=case["name"],
        kind="logits",
        status=Status.OK if difference <= TOLERANCE else Status.DIFFERS,
        difference=difference,
    )


def check_row(folder: CaseFolder, case: Case, row: int, name: str, loaded: Loaded) -> Finding:
    """Runs one prompt of a `generate` case and compares ids, forwards and what the case notes on the way."""
    call = make_call(folder, case, row, loaded.traits)
    done = run(call, loaded)
    ids = first_difference(done.ids, call.wanted)
    note = "" if done.canvas.num_final else "nothing was decided"
    if ids == "equal":
        note = _trace_note(folder, case, row, loaded, done)
    fine = ids == "equal" and done.official_forwards == call.wanted_forwards and not note
    return Finding(
        folder=folder.path,
        family=folder.family,
        case=name,
        kind="generate",
        status=Status.OK if fine else Status.DIFFERS,
        ids=ids,
        nfe=done.official_forwards,
        recorded_nfe=call.wanted_forwards,
        loop="engine" if call.is_for_the_engine else "reference",
        note=note,
    )


def _trace_note(folder: CaseFolder, case: Case, row: int, loaded: Loaded, done: Run) -> str:
    ours, theirs = traces_of(folder, case, row, loaded.traits, done)
    difference = first_difference(ours, theirs)
    return "" if difference == "equal" else f"trace: {difference}"


def first_difference(ours: Sequence[object], theirs: Sequence[object]) -> str:
    """Says "equal", or where two sequences part and what stands there."""
    for index, (mine, recorded) in enumerate(zip(ours, theirs, strict=False)):
        if mine != recorded:
            return f"at {index}: {mine}, recorded {recorded}"
    if len(ours) != len(theirs):
        return f"{len(ours)} entries, recorded {len(theirs)}"
    return "equal"
