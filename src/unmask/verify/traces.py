"""What a case notes on the way (which forward decided what, or what each forward was fed), against a run of ours."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from unmask.decoding.official_blocks import OfficialBlocks
from unmask.models.config import Traits
from unmask.verify.calls import official_run, without_lead
from unmask.verify.folders import Case, CaseFolder
from unmask.verify.renoise import Replay, renoise_traces
from unmask.verify.running import Run, Watched

Trace = list[Any]


def traces_of(folder: CaseFolder, case: Case, row: int, traits: Traits, run: Run) -> tuple[Trace, Trace]:
    """(ours, theirs) in whichever form the case holds; two empty ones where it holds none."""
    if isinstance(run.call.rule, Replay):
        return renoise_traces(case, run.call.rule)
    if run.call.block_size is not None:
        return _block_traces(folder, case, row, official_run(folder, case, row, traits), run.watched)
    canvases = [*run.watched.before[:1], *run.watched.after]
    if "commit_forward" in case:
        return forward_of_each(run.watched), case["commit_forward"][row]
    if "histories" in case:
        theirs = [step[row] for step in case["histories"]]
        return [c.ids_L.tolist() for c in canvases], [ids[: canvases[0].length] for ids in theirs]
    return [], []


def forward_of_each(watched: Watched) -> list[int]:
    """1-based forward that decided each position of the answer on a fixed canvas."""
    canvases = [*watched.before[:1], *watched.after]
    closed = np.array([~canvas.open_L[canvas.prompt_length :] for canvas in canvases])
    return closed.argmax(0).tolist()


def _block_traces(
    folder: CaseFolder, case: Case, row: int, blocks: OfficialBlocks, watched: Watched
) -> tuple[Trace, Trace]:
    if "states_before_each_forward" in case:
        theirs = [(state["block"], state["tokens"]) for state in case["states_before_each_forward"]]
        return list(_block_states(watched, blocks.block_size, stores=blocks.stores_blocks)), theirs
    if "input_of_each_forward" in case:
        return list(_fed_tokens(blocks, watched)), case["input_of_each_forward"]
    if "histories" in case:
        theirs = [without_lead(folder, case, step[row], blocks) for step in case["histories"]]
        steps = zip(watched.before, watched.after, strict=True)
        return [list(blocks.prompt), *(after.ids_L[: before.length].tolist() for before, after in steps)], theirs
    return [], []


def _block_states(watched: Watched, size: int, *, stores: bool) -> Iterator[tuple[int, list[int]]]:
    """(block, its tokens) before each forward; finished blocks once more where the official code stores them."""
    for before, after in zip(watched.before, watched.after, strict=True):
        block = slice(before.window_start, before.window_start + size)
        yield before.window_start // size, before.ids_L[block].tolist()
        if stores and after.window_start != before.window_start:
            yield before.window_start // size, after.ids_L[block].tolist()


def _fed_tokens(blocks: OfficialBlocks, watched: Watched) -> Iterator[list[int]]:
    """What Fast-dLLM v2's code feeds: a whole prompt first, then the block alone."""
    prompt, size = list(blocks.prompt), blocks.block_size
    if blocks.prefills:
        yield prompt[: len(prompt) // size * size]
    for canvas in watched.before:
        if canvas.length == len(prompt):
            yield prompt
        else:
            start = canvas.window_start if canvas.window_start < canvas.length else canvas.window_start - size
            yield canvas.ids_L[start:].tolist()
