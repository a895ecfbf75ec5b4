"""Which rows an approximate cache feeds, by hand."""

from typing import Any

import numpy as np
import pytest

from unmask.cache.approximate import ApproximateCache, ApproximateKind, Reuse
from unmask.cache.block_causal import CacheShape
from unmask.core.canvas import Canvas, Delta
from unmask.core.errors import ConfigError
from unmask.core.plan import Plan, Reads

MASK = 0


def cache(kind: ApproximateKind, shift: int = 0, **facts: Any) -> ApproximateCache:
    shape = CacheShape(num_layers=1, num_kv_heads=1, head_dim=2, logit_shift=shift)
    return ApproximateCache(shape, Reuse(kind=kind, block_length=3, **facts))


def canvas(*undecided: int) -> Canvas:
    """Two prompt positions, then two blocks of 3 and one of 1."""
    open_L = np.isin(np.arange(9), undecided)
    return Canvas(
        ids_L=np.where(open_L, MASK, 10 + np.arange(9)),
        open_L=open_L,
        prompt_length=2,
        num_final=2,
        window_start=0,
        limit=9,
    )


def ask(*positions: int) -> Reads:
    return Reads(predicts_R=np.array(positions), causal_R=np.zeros(len(positions), np.bool_))


def forward(used: ApproximateCache, now: Canvas, *positions: int) -> tuple[list[int], list[int]]:
    """Plans and observes one forward: positions fed, and those of the rows read."""
    plan: Plan = used.plan(now, ask(*positions))
    nothing = np.zeros(0, np.int64)
    delta = Delta(
        positions_W=nothing, ids_W=nothing, open_W=nothing.astype(np.bool_), num_final=2, window_start=0, length=9
    )
    used.observe(now, plan, delta)
    assert (plan.visible_T == 9).all()
    assert plan.ids_T.tolist() == now.ids_L[plan.positions_T].tolist()
    assert used.stored == 0
    return plan.positions_T.tolist(), plan.positions_T[plan.read_R].tolist()


def test_whole_canvas_when_a_block_begins_then_what_the_kind_says() -> None:
    fed: list[tuple[ApproximateKind, list[int]]] = [("prefix", [2, 3, 4, 5, 6, 7, 8]), ("dual", [2, 3, 4])]
    for kind, then in fed:
        used = cache(kind)
        assert forward(used, canvas(2, 3, 4, 5, 6, 7, 8), 2, 3, 4) == (list(range(9)), [2, 3, 4])
        assert forward(used, canvas(3, 4, 5, 6, 7, 8), 3, 4) == (then, [3, 4])
        assert forward(used, canvas(4, 5, 6, 7, 8), 4) == (then, [4])
        assert forward(used, canvas(5, 6, 7, 8), 5, 6, 7)[0] == list(range(9)), "the next block"
        assert forward(used, canvas(8), 8)[0] == list(range(9)), "a block done at once"


def test_shifted_rows_that_are_not_fed_cost_a_whole_forward() -> None:
    used = cache("dual", shift=1)
    assert forward(used, canvas(2, 3, 4), 2, 3, 4) == (list(range(9)), [1, 2, 3])
    assert forward(used, canvas(3, 4), 3, 4) == ([2, 3, 4], [2, 3])
    assert forward(used, canvas(2, 4), 2, 4) == (list(range(9)), [1, 3]), "row 1 predicts position 2"


def test_reading_past_the_block_costs_a_whole_forward() -> None:
    used = cache("dual")
    forward(used, canvas(2, 8), 2, 8)
    assert forward(used, canvas(2, 8), 2, 8)[0] == list(range(9))


def test_refreshes_in_between() -> None:
    used = cache("dual", refresh_every=2)
    fed = [len(forward(used, canvas(2, 3, 4), 2, 3, 4)[0]) for _ in range(6)]
    assert fed == [9, 3, 9, 3, 9, 3]
    always = cache("prefix", refresh_every=1)
    assert [len(forward(always, canvas(2, 3, 4), 2, 3, 4)[0]) for _ in range(3)] == [9, 9, 9]


def test_settings_and_canvases_that_make_no_sense() -> None:
    for facts in ({"block_length": 0}, {"refresh_every": -1}):
        with pytest.raises(ConfigError, match="block_length >= 1"):
            Reuse(kind="dual", **facts)
    moved = Canvas(
        ids_L=np.array([5, MASK]), open_L=np.array([False, True]), prompt_length=1, num_final=1, window_start=1, limit=2
    )
    with pytest.raises(ValueError, match="fixed canvases"):
        cache("dual").plan(moved, ask(1))
