"""Layers of unlike shapes in one cache: kv heads, width, scale and sliding windows."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from unmask.cache.block_causal import BlockCausalCache, CacheShape, LayerShape, Slots
from unmask.core.plan import Plan

LAYERS = (
    LayerShape(num_kv_heads=2, head_dim=8, scale=1.0, reach=5),
    LayerShape(num_kv_heads=1, head_dim=16, scale=1.0),
    LayerShape(num_kv_heads=2, head_dim=8, reach=150),
)
SHAPE = CacheShape(num_layers=3, num_kv_heads=2, head_dim=8, layers=LAYERS)
CLEAN, WINDOW, HEADS = 300, 7, 4
LENGTH = CLEAN + WINDOW


def plan(start: int, end: int) -> Plan:
    """Rows start..end of a canvas whose window begins at CLEAN."""
    positions = np.arange(start, end)
    return Plan(
        ids_T=np.zeros(positions.shape, np.int64),
        positions_T=positions,
        visible_T=np.where(positions < CLEAN, positions + 1, LENGTH),
        clean_end=min(CLEAN, end),
        read_R=np.zeros(0, np.int64),
        predicts_R=np.zeros(0, np.int64),
        causal_R=np.zeros(0, np.bool_),
    )


def rows(layer: int) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of the whole canvas."""
    shape, generator = LAYERS[layer], torch.Generator().manual_seed(layer)
    heads = (HEADS, shape.num_kv_heads, shape.num_kv_heads)
    q, k, v = (torch.randn(LENGTH, count, shape.head_dim, generator=generator) for count in heads)
    return q, k, v


def fed(layer: int, cuts: list[int]) -> Tensor:
    """Attention of every row, fed in pieces."""
    cache, (q, k, v), outs = BlockCausalCache(SHAPE), rows(layer), list[Tensor]()
    for start, end in pairwise(cuts):
        piece, slots = slice(start, end), Slots(plan(start, end))
        cache.reserve(end)
        cache.update(layer, slots, k[piece], v[piece])
        outs.append(cache.attend(layer, slots, q[piece]))
    return torch.cat(outs)


@pytest.mark.parametrize("layer", range(3))
def test_equals_plain_attention(layer: int) -> None:
    shape, (q, k, v) = LAYERS[layer], rows(layer)
    got = fed(layer, [0, LENGTH])
    for row in (0, 1, 4, 5, 149, 150, 151, CLEAN - 1, CLEAN, LENGTH - 1):
        last, end = (row, row + 1) if row < CLEAN else (CLEAN, LENGTH)
        first = 0 if shape.reach is None else max(last + 1 - shape.reach, 0)
        keys, values = (x[first:end].repeat_interleave(HEADS // shape.num_kv_heads, 1) for x in (k, v))
        scale = shape.head_dim**-0.5 if shape.scale is None else shape.scale
        weights = (torch.einsum("hk,shk->hs", q[row], keys) * scale).softmax(-1)
        torch.testing.assert_close(got[row], torch.einsum("hs,shk->hk", weights, values), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("layer", range(3))
def test_pieces_do_not_matter(layer: int) -> None:
    whole = fed(layer, [0, LENGTH])
    assert torch.equal(fed(layer, [0, 1, 9, 128, 290, LENGTH]), whole)
    assert torch.equal(fed(layer, [0, 130, 131, CLEAN, LENGTH]), whole)


def test_a_copy_holds_every_layer() -> None:
    cache = BlockCausalCache(SHAPE)
    cache.reserve(LENGTH)
    slots = Slots(plan(0, LENGTH))
    for layer in range(3):
        _, k, v = rows(layer)
        cache.update(layer, slots, k, v)
    copy, other = cache.fork(LENGTH), BlockCausalCache(SHAPE)
    other.adopt(copy)
    for layer in range(3):
        q, _, _ = rows(layer)
        assert torch.equal(other.attend(layer, slots, q), cache.attend(layer, slots, q))
