import numpy as np
import torch

from unmask.cache.block_causal import CHUNK, BlockCausalCache, CacheShape
from unmask.cache.prefix import PrefixPool
from unmask.core.canvas import IntArray


def shape(align: int = 1) -> CacheShape:
    return CacheShape(num_layers=1, num_kv_heads=1, head_dim=2, align=align)


def filled(length: int, value: float, align: int = 1) -> BlockCausalCache:
    cache = BlockCausalCache(shape(align), length)
    cache._keys_CGSK[0].fill_(value)
    cache.stored = length
    return cache


def ids(*values: int) -> IntArray:
    return np.array(values)


def test_the_longest_common_beginning_is_lent() -> None:
    pool = PrefixPool(10 * CHUNK)
    pool.keep(ids(1, 2, 3), filled(3, 1.0))
    pool.keep(ids(1, 2, 9, 9), filled(4, 2.0))
    cache = BlockCausalCache(shape())
    assert pool.lend(ids(1, 2, 9, 7, 7), cache) == 3
    assert cache.stored == 3
    assert (cache._keys_CGSK[0] == 2.0).all()
    assert pool.lend(ids(5, 1, 2), BlockCausalCache(shape())) == 0


def test_what_is_lent_is_a_copy() -> None:
    pool = PrefixPool(10 * CHUNK)
    source = filled(2, 1.0)
    pool.keep(ids(1, 2), source)
    source._keys_CGSK[0].fill_(9.0)
    first, second = BlockCausalCache(shape()), BlockCausalCache(shape())
    pool.lend(ids(1, 2, 3), first)
    first._keys_CGSK[0].fill_(7.0)
    pool.lend(ids(1, 2, 3), second)
    assert torch.equal(second._keys_CGSK[0], torch.ones(1, 1, CHUNK, 2))


def test_only_whole_blocks_are_lent() -> None:
    pool = PrefixPool(10 * CHUNK)
    pool.keep(ids(1, 2, 3, 4, 5, 6, 7, 8), filled(8, 1.0, align=4))
    assert pool.lend(ids(1, 2, 3, 4, 5, 6, 9, 9), BlockCausalCache(shape(4))) == 4
    assert pool.lend(ids(1, 2, 3, 9), BlockCausalCache(shape(4))) == 0


def test_the_least_recently_used_goes_first() -> None:
    pool = PrefixPool(2 * CHUNK)
    pool.keep(ids(1, 1), filled(2, 1.0))
    pool.keep(ids(2, 2), filled(2, 2.0))
    assert pool.lend(ids(1, 1), BlockCausalCache(shape())) == 2
    pool.keep(ids(3, 3), filled(2, 3.0))
    assert pool.lend(ids(2, 2), BlockCausalCache(shape())) == 0
    assert pool.lend(ids(1, 1), BlockCausalCache(shape())) == 2
    assert pool.lend(ids(3, 3), BlockCausalCache(shape())) == 2


def test_a_longer_conversation_replaces_its_beginning() -> None:
    pool = PrefixPool(2 * CHUNK)
    pool.keep(ids(7, 7), filled(2, 7.0))
    pool.keep(ids(1, 2), filled(2, 1.0))
    pool.keep(ids(1, 2, 3), filled(3, 2.0))
    assert pool.lend(ids(7, 7), BlockCausalCache(shape())) == 2, "nothing else had to go"
    assert pool.lend(ids(1, 2, 3), BlockCausalCache(shape())) == 3


def test_a_pool_of_nothing_keeps_nothing() -> None:
    pool = PrefixPool(0)
    pool.keep(ids(1, 2), filled(2, 1.0))
    assert pool.lend(ids(1, 2), BlockCausalCache(shape())) == 0
