from dataclasses import replace

import numpy as np
import pytest

from tests.engine.running import ask
from tests.models.random_weights import EOS, MASK, random_loaded
from unmask.core.request import FinishReason, Mode
from unmask.engine.rule_table import make_rule
from unmask.engine.sequence import Running
from unmask.engine.settings import EngineSettings, admit, cache_shape, resolve
from unmask.models.config import AttentionPattern

LOADED = random_loaded()


def running(*, drafts: bool = False, max_tokens: int = 6, mode: Mode = Mode.DIFFUSION) -> Running:
    request = ask("r", [5, EOS], max_tokens=max_tokens, drafts=drafts, mode=mode, timeout_s=None)
    params = admit(request, resolve(EngineSettings(), LOADED.traits), LOADED.traits)
    shape = cache_shape(LOADED.config, LOADED.traits)
    return Running.start(request, params, make_rule(params, LOADED.traits), shape, LOADED.traits.eos_ids)


def becomes(sequence: Running, ids: list[int], *, final: int, undecided: list[int], window: int = 2) -> None:
    """Puts the answer `ids` on the canvas; positions count from the answer's start."""
    at = np.arange(2 + len(ids))
    sequence.canvas = replace(
        sequence.canvas,
        ids_L=np.array([5, EOS, *ids]),
        open_L=np.isin(at - 2, undecided),
        num_final=2 + final,
        window_start=window,
    )


def test_starts_with_nothing_to_say() -> None:
    assert running().take_chunk() is None
    assert running().deadline is None
    assert running().num_reserved == 2 + 6 + 2 * 4


def test_chunks_carry_what_is_new() -> None:
    sequence = running()
    becomes(sequence, [9, 10, MASK, MASK], final=2, undecided=[2, 3])
    chunk = sequence.take_chunk()
    assert chunk is not None
    assert (chunk.token_ids, chunk.draft_ids, chunk.finish_reason) == ((9, 10), (), None)
    assert sequence.take_chunk() is None
    becomes(sequence, [9, 10, 11, MASK], final=3, undecided=[3])
    chunk = sequence.take_chunk()
    assert chunk is not None
    assert chunk.token_ids == (11,)


def test_drafts_show_decided_and_masked_positions_up_to_the_limit() -> None:
    sequence = running(drafts=True)
    becomes(sequence, [9, MASK, 11, MASK, MASK, MASK, MASK, MASK], final=1, undecided=[1, 3, 4, 5, 6, 7])
    chunk = sequence.take_chunk()
    assert chunk is not None
    assert chunk.draft_ids == (-1, 11, -1, -1, -1), "6 tokens were asked for"
    assert sequence.take_chunk() is None, "the same drafts are no news"
    becomes(sequence, [9, MASK, 11, 12, MASK, MASK, MASK, MASK], final=1, undecided=[1, 4, 5, 6, 7])
    chunk = sequence.take_chunk()
    assert chunk is not None
    assert (chunk.token_ids, chunk.draft_ids) == ((), (-1, 11, 12, -1, -1))


def test_drafts_awaiting_verification_are_shown_as_tokens() -> None:
    sequence = running(drafts=True, mode=Mode.VERIFIED)
    becomes(sequence, [9, 10, 11, MASK, MASK], final=1, undecided=[1, 2, 3, 4], window=5)
    chunk = sequence.take_chunk()
    assert chunk is not None
    assert chunk.draft_ids == (10, 11, -1, -1)


@pytest.mark.parametrize(
    ("ids", "final", "told", "reason"),
    [
        ([9, EOS, 11, 12], 2, (9,), FinishReason.STOP),
        ([9, EOS, EOS, 12], 4, (9,), FinishReason.STOP),
        ([EOS, 9], 1, (), FinishReason.STOP),
        ([9, 10, 11, 12, 13, 14], 6, (9, 10, 11, 12, 13, 14), FinishReason.LENGTH),
        ([9, 10, 11, 12, 13, 14, 15, 16], 8, (9, 10, 11, 12, 13, 14), FinishReason.LENGTH),
        ([9, 10, 11, 12, 13, EOS], 6, (9, 10, 11, 12, 13), FinishReason.STOP),
        ([9, 10, 11, 12, 13, 14, EOS, 16], 8, (9, 10, 11, 12, 13, 14), FinishReason.LENGTH),
    ],
)
def test_how_answers_end(ids: list[int], final: int, told: tuple[int, ...], reason: FinishReason) -> None:
    sequence = running(drafts=True)
    becomes(sequence, ids, final=final, undecided=[])
    chunk = sequence.take_chunk()
    assert chunk is not None
    assert (chunk.token_ids, chunk.draft_ids, chunk.finish_reason) == (told, (), reason)


@pytest.mark.parametrize(("prompt", "prefilling"), [(3, False), (4, True), (5, True), (7, True), (8, True)])
def test_block_causal_prefill_is_the_whole_blocks(prompt: int, prefilling: bool) -> None:
    loaded = random_loaded(attention=AttentionPattern.BLOCK_CAUSAL)
    request = ask("r", [5] * prompt)
    params = admit(request, resolve(EngineSettings(), loaded.traits), loaded.traits)
    shape = cache_shape(loaded.config, loaded.traits)
    sequence = Running.start(request, params, make_rule(params, loaded.traits), shape, loaded.traits.eos_ids)
    assert sequence.is_prefilling == prefilling
    assert sequence.num_pending == prompt // 4 * 4
