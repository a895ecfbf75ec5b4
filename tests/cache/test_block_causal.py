"""Which rows are fed and read, and which slots count as stored, on canvases worked out by hand."""

from typing import Any

import numpy as np
import pytest

from unmask.cache.block_causal import BlockCausalCache, CacheShape
from unmask.core.canvas import Canvas, Delta
from unmask.core.plan import Plan, masked_reads, verifying_reads

MASK = 0


def cache(align: int = 1, shift: int = 0, stored: int = 0) -> BlockCausalCache:
    made = BlockCausalCache(CacheShape(num_layers=1, num_kv_heads=1, head_dim=2, align=align, logit_shift=shift))
    made.stored = stored
    return made


def canvas(ids: list[int], undecided: list[int], *, prompt: int, final: int, window: int) -> Canvas:
    return Canvas(
        ids_L=np.array(ids),
        open_L=np.isin(np.arange(len(ids)), undecided),
        prompt_length=prompt,
        num_final=final,
        window_start=window,
        limit=100,
    )


def delta(writes: dict[int, int], **facts: Any) -> Delta:
    positions = np.array(list(writes), np.int64)
    ids = np.array(list(writes.values()), np.int64)
    return Delta(positions_W=positions, ids_W=ids, open_W=ids == MASK, **facts)


def rows(plan: Plan) -> list[tuple[int, int, int]]:
    """(position, id, visible) of each fed row."""
    return list(zip(plan.positions_T.tolist(), plan.ids_T.tolist(), plan.visible_T.tolist(), strict=True))


def reads(plan: Plan) -> list[tuple[int, int, bool]]:
    """(position of the row read, position it predicts, whether causally)."""
    fed = plan.positions_T[plan.read_R]
    return list(zip(fed.tolist(), plan.predicts_R.tolist(), plan.causal_R.tolist(), strict=True))


# --- diffusion, causal context -----------------------------------------------------------------------------------

START = canvas([5, 6, 7, MASK, MASK, MASK], [3, 4, 5], prompt=3, final=3, window=3)


def test_first_forward_feeds_prompt_and_window() -> None:
    plan = cache().plan(START, masked_reads(START))
    assert rows(plan) == [(0, 5, 1), (1, 6, 2), (2, 7, 3), (3, MASK, 6), (4, MASK, 6), (5, MASK, 6)]
    assert reads(plan) == [(3, 3, False), (4, 4, False), (5, 5, False)]
    assert plan.clean_end == 3


def test_shifted_logits_read_the_row_before() -> None:
    plan = cache(shift=1).plan(START, masked_reads(START))
    assert reads(plan) == [(2, 3, False), (3, 4, False), (4, 5, False)]


def test_inside_a_window_only_the_window_is_fed() -> None:
    middle = canvas([5, 6, 7, MASK, 8, MASK], [3, 5], prompt=3, final=3, window=3)
    plan = cache(stored=3).plan(middle, masked_reads(middle))
    assert rows(plan) == [(3, MASK, 6), (4, 8, 6), (5, MASK, 6)]
    assert reads(plan) == [(3, 3, False), (5, 5, False)]


def test_shifted_logits_feed_a_stored_row_again() -> None:
    middle = canvas([5, 6, 7, MASK, 8, MASK], [3, 5], prompt=3, final=3, window=3)
    plan = cache(shift=1, stored=3).plan(middle, masked_reads(middle))
    assert rows(plan) == [(2, 7, 3), (3, MASK, 6), (4, 8, 6), (5, MASK, 6)]
    assert reads(plan) == [(2, 3, False), (4, 5, False)]
    late = canvas([5, 6, 7, 9, 8, MASK], [5], prompt=3, final=5, window=3)
    plan = cache(shift=1, stored=3).plan(late, masked_reads(late))
    assert rows(plan) == [(3, 9, 6), (4, 8, 6), (5, MASK, 6)], "nothing reads row 2 any more"


def test_a_finished_window_is_fed_once_more_as_clean_rows() -> None:
    """No forward of its own: it rides along with the next window's first."""
    made = cache(stored=3)
    last = canvas([5, 6, 7, 9, 8, MASK], [5], prompt=3, final=5, window=3)
    plan = made.plan(last, masked_reads(last))
    done = delta({5: 4, 6: MASK, 7: MASK, 8: MASK}, num_final=6, window_start=6, length=9)
    made.observe(last, plan, done)
    assert made.stored == 3, "the window's keys came from masks"
    plan = made.plan(last.apply(done), masked_reads(last.apply(done)))
    assert rows(plan)[:3] == [(3, 9, 4), (4, 8, 5), (5, 4, 6)]
    assert rows(plan)[3:] == [(6, MASK, 9), (7, MASK, 9), (8, MASK, 9)]
    made.observe(last.apply(done), plan, delta({7: 1}, num_final=6, window_start=6, length=9))
    assert made.stored == 6


# --- diffusion, block-causal -------------------------------------------------------------------------------------


def test_block_causal_prompt_tail_lives_in_the_window() -> None:
    """Prompt of 6 in blocks of 4: positions 4 and 5 are frozen, but their keys wait for the whole block."""
    begin = canvas([1, 2, 3, 4, 5, 6, MASK, MASK], [6, 7], prompt=6, final=6, window=4)
    made = cache(align=4)
    plan = made.plan(begin, masked_reads(begin))
    assert rows(plan)[:4] == [(0, 1, 4), (1, 2, 4), (2, 3, 4), (3, 4, 4)]
    assert rows(plan)[4:] == [(4, 5, 8), (5, 6, 8), (6, MASK, 8), (7, MASK, 8)]
    assert reads(plan) == [(6, 6, False), (7, 7, False)]
    first = delta({7: 9}, num_final=6, window_start=4, length=8)
    made.observe(begin, plan, first)
    assert made.stored == 4
    second = begin.apply(first)
    plan = made.plan(second, masked_reads(second))
    assert rows(plan) == [(4, 5, 8), (5, 6, 8), (6, MASK, 8), (7, 9, 8)]
    done = delta({6: 8} | dict.fromkeys(range(8, 12), MASK), num_final=8, window_start=8, length=12)
    made.observe(second, plan, done)
    assert made.stored == 4
    plan = made.plan(second.apply(done), masked_reads(second.apply(done)))
    assert rows(plan)[:4] == [(4, 5, 8), (5, 6, 8), (6, 8, 8), (7, 9, 8)], "the whole block sees itself"
    made.observe(second.apply(done), plan, delta({8: 1}, num_final=9, window_start=8, length=12))
    assert made.stored == 8, "only whole blocks are stored"


def test_block_causal_short_prompt_stores_nothing() -> None:
    begin = canvas([1, MASK, MASK, MASK], [1, 2, 3], prompt=1, final=1, window=0)
    made = cache(align=4)
    plan = made.plan(begin, masked_reads(begin))
    assert rows(plan) == [(0, 1, 4), (1, MASK, 4), (2, MASK, 4), (3, MASK, 4)]
    made.observe(begin, plan, delta({1: 7}, num_final=2, window_start=0, length=4))
    assert made.stored == 0


def test_block_causal_shift_reads_the_block_before() -> None:
    begin = canvas([1, 2, 3, 4] + [MASK] * 4, [4, 5, 6, 7], prompt=4, final=4, window=4)
    plan = cache(align=4, shift=1).plan(begin, masked_reads(begin))
    assert reads(plan) == [(3, 4, False), (4, 5, False), (5, 6, False), (6, 7, False)]
    plan = cache(align=4, shift=1, stored=4).plan(begin, masked_reads(begin))
    assert rows(plan)[0] == (3, 4, 4), "fed again, with its whole block visible"


# --- verified and AR ---------------------------------------------------------------------------------------------


def test_autoregression_feeds_one_row() -> None:
    made = cache()
    prompt = canvas([5, 6, 7], [], prompt=3, final=3, window=3)
    plan = made.plan(prompt, verifying_reads(prompt))
    assert rows(plan) == [(0, 5, 1), (1, 6, 2), (2, 7, 3)]
    assert reads(plan) == [(2, 3, True)]
    step = delta({3: 8}, num_final=4, window_start=4, length=4)
    made.observe(prompt, plan, step)
    assert made.stored == 3
    plan = made.plan(prompt.apply(step), verifying_reads(prompt.apply(step)))
    assert rows(plan) == [(3, 8, 4)]
    assert reads(plan) == [(3, 4, True)]


@pytest.mark.parametrize("shift", [0, 1])
def test_prompt_of_one_token(shift: int) -> None:
    plan = cache(shift=shift).plan(
        canvas([5], [], prompt=1, final=1, window=1), verifying_reads(canvas([5], [], prompt=1, final=1, window=1))
    )
    assert rows(plan) == [(0, 5, 1)]
    assert reads(plan) == [(0, 1, True)]


DRAFTED = canvas([5, 6, 7, 1, 2, 3, MASK, MASK, MASK], [4, 5, 6, 7, 8], prompt=3, final=4, window=6)


@pytest.mark.parametrize(
    ("shift", "masked"), [(0, [(7, 7, False), (8, 8, False)]), (1, [(6, 7, False), (7, 8, False)])]
)
def test_verification_reads_drafts_causally_and_the_window_in_parallel(
    shift: int, masked: list[tuple[int, int, bool]]
) -> None:
    plan = cache(shift=shift, stored=3).plan(DRAFTED, verifying_reads(DRAFTED))
    assert rows(plan)[:3] == [(3, 1, 4), (4, 2, 5), (5, 3, 6)]
    assert rows(plan)[3:] == [(6, MASK, 9), (7, MASK, 9), (8, MASK, 9)]
    assert reads(plan) == [(3, 4, True), (4, 5, True), (5, 6, True), *masked]


@pytest.mark.parametrize(
    ("ids", "num_final", "stored"),
    [
        ([2, 3, 4], 7, 6),  # all drafts right: every clean row is final
        ([2, 9], 6, 5),  # the second replaced: its row held the wrong token
        ([9], 5, 4),  # the first replaced
    ],
)
def test_slots_of_rejected_drafts_are_not_stored(ids: list[int], num_final: int, stored: int) -> None:
    made = cache(stored=3)
    plan = made.plan(DRAFTED, verifying_reads(DRAFTED))
    writes = dict(enumerate(ids, start=4)) | dict.fromkeys(range(num_final, num_final + 3), MASK)
    step = delta(writes, num_final=num_final, window_start=num_final, length=num_final + 3)
    made.observe(DRAFTED, plan, step)
    assert made.stored == stored
    plan = made.plan(DRAFTED.apply(step), verifying_reads(DRAFTED.apply(step)))
    assert plan.positions_T[0] == stored
    assert reads(plan)[0] == (num_final - 1, num_final, True)


def test_a_rejected_draft_that_was_drafted_again() -> None:
    """The slot after a rejection may come to hold the same id; it was computed behind a wrong token all the same."""
    made = cache(stored=3)
    plan = made.plan(DRAFTED, verifying_reads(DRAFTED))
    made.observe(DRAFTED, plan, delta({4: 9, 5: MASK, 6: MASK}, num_final=5, window_start=5, length=7))
    assert made.stored == 4


# --- chunked prefill ---------------------------------------------------------------------------------------------


def test_prefill_in_pieces_reads_nothing_before_the_last() -> None:
    made, prompt = cache(), canvas([*range(1, 8), MASK, MASK], [7, 8], prompt=7, final=7, window=7)
    fed: list[list[int]] = []
    for _ in range(2):
        plan = made.plan(prompt, masked_reads(prompt), max_rows=3)
        fed.append(plan.positions_T.tolist())
        assert reads(plan) == []
        assert plan.visible_T.tolist() == [p + 1 for p in fed[-1]]
        made.observe(prompt, plan, None)
    assert fed == [[0, 1, 2], [3, 4, 5]]
    plan = made.plan(prompt, masked_reads(prompt), max_rows=3)
    assert plan.positions_T.tolist() == [6, 7, 8]
    assert reads(plan) == [(7, 7, False), (8, 8, False)]


@pytest.mark.parametrize(("max_rows", "pieces"), [(1, [4, 8]), (4, [4, 8]), (7, [4, 8]), (8, [8]), (11, [8])])
def test_block_causal_pieces_are_whole_blocks(max_rows: int, pieces: list[int]) -> None:
    prompt = canvas([*range(1, 14), MASK, MASK, MASK], [13, 14, 15], prompt=13, final=13, window=12)
    made = cache(align=4)
    ends: list[int] = []
    while not (plan := made.plan(prompt, masked_reads(prompt), max_rows=max_rows)).read_R.size:
        assert plan.visible_T.tolist() == [(p // 4 + 1) * 4 for p in plan.positions_T.tolist()]
        made.observe(prompt, plan, None)
        ends.append(made.stored)
    assert ends == pieces
    assert plan.positions_T.tolist() == list(range(ends[-1], 16))


def test_prefill_that_fits_is_whole() -> None:
    prompt = canvas([1, 2, 3, MASK], [3], prompt=3, final=3, window=3)
    assert cache().plan(prompt, masked_reads(prompt), max_rows=3).read_R.size == 1
    assert cache(stored=3).plan(prompt, masked_reads(prompt), max_rows=0).read_R.size == 1


def test_a_piece_that_ends_among_drafts_stores_the_prompt_only() -> None:
    prompt = canvas([1, 2, 3, 4, 8, 9], [4, 5], prompt=4, final=4, window=6)
    made = cache()
    plan = made.plan(prompt, verifying_reads(prompt), max_rows=5)
    assert plan.positions_T.tolist() == [0, 1, 2, 3, 4]
    assert reads(plan) == []
    made.observe(prompt, plan, None)
    assert made.stored == 4, "position 4 holds a draft"
    plan = made.plan(prompt, verifying_reads(prompt), max_rows=2)
    assert plan.positions_T.tolist() == [3, 4, 5]
    assert reads(plan) == [(3, 4, True), (4, 5, True), (5, 6, True)]
