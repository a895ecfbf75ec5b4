"""Attention over the cache is exact to the bit: a row's result depends on its query and what it may see alone."""

import numpy as np
import pytest
import torch
from torch import Tensor

from unmask.cache.block_causal import CHUNK, BlockCausalCache, CacheShape, Slots
from unmask.core.plan import Plan

HEADS = {"grouped": (9, 3, 64), "plain": (4, 4, 16), "tiny": (4, 2, 8), "one": (1, 1, 32), "multi-query": (8, 1, 128)}
LENGTH = 1100
EDGES = (1, 2, 127, 128, 129, 255, 256, 257, 383, 384, 385, 511, 512, 513, 640, 768, 896, 1023, 1024, 1025, 1100)


def plan(positions: list[int], visible: list[int]) -> Plan:
    return Plan(
        ids_T=np.zeros(len(positions), np.int64),
        positions_T=np.array(positions, np.int64),
        visible_T=np.array(visible, np.int64),
        clean_end=max(positions) + 1,
        read_R=np.zeros(0, np.int64),
        predicts_R=np.zeros(0, np.int64),
        causal_R=np.zeros(0, np.bool_),
    )


class Setting:
    """Random keys and values of LENGTH positions in a cache, and a query for each of the EDGES."""

    def __init__(self, heads: str, layer: int = 1) -> None:
        self.num_heads, num_kv_heads, width = HEADS[heads]
        self.shape = CacheShape(num_layers=2, num_kv_heads=num_kv_heads, head_dim=width)
        self.layer = layer
        generator = torch.Generator().manual_seed(4)
        self.keys = torch.randn(LENGTH, num_kv_heads, width, generator=generator)
        self.values = torch.randn(LENGTH, num_kv_heads, width, generator=generator)
        self.queries = torch.randn(len(EDGES), self.num_heads, width, generator=generator) * 2
        self.cache = self.filled(LENGTH)

    def filled(self, length: int, capacity: int = LENGTH) -> BlockCausalCache:
        cache = BlockCausalCache(self.shape, capacity)
        cache.reserve(length)
        slots = Slots(plan(list(range(length)), list(range(1, length + 1))))
        cache.update(self.layer, slots, self.keys[:length], self.values[:length])
        return cache

    def attend(self, rows: list[int], cache: BlockCausalCache | None = None) -> Tensor:
        """Attention of the rows with these numbers in EDGES; each sees as many positions as its entry says."""
        visible = [EDGES[row] for row in rows]
        slots = Slots(plan([count - 1 for count in visible], visible))
        return (cache or self.cache).attend(self.layer, slots, self.queries[rows])


@pytest.fixture(params=sorted(HEADS))
def setting(request: pytest.FixtureRequest) -> Setting:
    return Setting(request.param)


def test_equals_plain_softmax_attention(setting: Setting) -> None:
    repeats = setting.num_heads // setting.shape.num_kv_heads
    got = setting.attend(list(range(len(EDGES))))
    for row, count in enumerate(EDGES):
        keys = setting.keys[:count].repeat_interleave(repeats, 1).double()
        values = setting.values[:count].repeat_interleave(repeats, 1).double()
        scores = torch.einsum("hk,shk->hs", setting.queries[row].double(), keys) * setting.shape.head_dim**-0.5
        wanted = torch.einsum("hs,shk->hk", scores.softmax(-1), values)
        torch.testing.assert_close(got[row], wanted.float(), atol=1e-5, rtol=1e-5)


def test_a_row_alone_equals_the_row_among_others(setting: Setting) -> None:
    """Alone, a row brings as few chunks as it needs; among others, all of them and other tiles too."""
    everyone = setting.attend(list(range(len(EDGES))))
    for row in range(len(EDGES)):
        assert torch.equal(setting.attend([row])[0], everyone[row]), EDGES[row]


@pytest.mark.parametrize("num_rows", [2, 7, 8, 9, 15, 16, 17, 20])
def test_any_number_of_rows_in_any_order(setting: Setting, num_rows: int) -> None:
    everyone = setting.attend(list(range(len(EDGES))))
    rows = np.random.default_rng(num_rows).permutation(len(EDGES))[:num_rows].tolist()
    assert torch.equal(setting.attend(rows), everyone[rows])


def test_equal_after_growth(setting: Setting) -> None:
    grown = BlockCausalCache(setting.shape, 1)
    assert grown.capacity == CHUNK
    for start in range(0, LENGTH, 100):
        grown.reserve(start + 100)
        positions = list(range(start, min(start + 100, LENGTH)))
        slots = Slots(plan(positions, [p + 1 for p in positions]))
        grown.update(setting.layer, slots, setting.keys[positions], setting.values[positions])
    assert grown.capacity >= LENGTH
    rows = list(range(len(EDGES)))
    assert torch.equal(setting.attend(rows, grown), setting.attend(rows))


def test_reserve_never_loses_or_shrinks(setting: Setting) -> None:
    cache = setting.filled(130, capacity=130)
    assert cache.capacity == 2 * CHUNK
    before = setting.attend([0, 1, 2, 3], cache)
    for length in (1, 256, 257, 5000, 40):
        cache.reserve(length)
        assert cache.capacity >= length
        assert torch.equal(setting.attend([0, 1, 2, 3], cache), before)
    assert cache.capacity == 5120


def test_garbage_in_hidden_slots_does_not_matter(setting: Setting) -> None:
    for row, count in enumerate(EDGES):
        alone = setting.attend([row], setting.filled(count))
        assert torch.equal(alone, setting.attend([row])), count
        hidden = list(range(count, LENGTH))
        if not hidden:
            continue
        dirty = setting.filled(LENGTH)
        slots = Slots(plan(hidden, [LENGTH] * len(hidden)))
        garbage = torch.full_like(setting.keys[hidden], -1e20)
        garbage[::2] = 1e20
        dirty.update(setting.layer, slots, garbage, garbage)
        assert torch.equal(alone, setting.attend([row], dirty)), count


def test_layers_do_not_mix() -> None:
    setting = Setting("tiny", layer=1)
    before = setting.attend([0, 5, 12])
    slots = Slots(plan([0, 1, 2], [1, 2, 3]))
    setting.cache.update(0, slots, torch.ones(3, 2, 8), torch.ones(3, 2, 8))
    assert torch.equal(setting.attend([0, 5, 12]), before)


def test_window_rows_see_past_themselves() -> None:
    """Bidirectional rows: 300 keys, the last 40 rows see all of them."""
    setting = Setting("tiny")
    queries = torch.randn(40, 4, 8, generator=torch.Generator().manual_seed(0))
    slots = Slots(plan(list(range(260, 300)), [300] * 40))
    got = setting.cache.attend(1, slots, queries)
    keys, values = (x[:300].repeat_interleave(2, 1) for x in (setting.keys, setting.values))
    scores = torch.einsum("thk,shk->hts", queries, keys) * 8**-0.5
    torch.testing.assert_close(got, torch.einsum("hts,shk->thk", scores.softmax(-1), values), atol=1e-5, rtol=1e-5)
