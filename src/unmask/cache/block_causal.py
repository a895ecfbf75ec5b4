"""Exact key/value cache of one sequence for causal-context and block-causal models.

Invariant: slot p holds the keys and values of position p as computed from final tokens, for every p < `stored`.
Slots after that are scratch: rows of drafts and of the open window use them within a forward and are overwritten by
the next. "Exact" is bitwise, not approximate: see `attend`.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from unmask.core.canvas import Canvas, Delta
from unmask.core.plan import Plan, Reads

# Shape legend: C chunks, G kv heads, J query heads per kv head, S slots per chunk, K head width, T rows.

CHUNK = 128
"""Slots per chunk, and the fixed inner size of every attention product."""
ROW_TILE = 8
"""Query rows per attention product: fixed, so that a row's result cannot depend on how many rows came along."""


@dataclass(frozen=True, kw_only=True)
class LayerShape:
    """Attention of one layer.

    Attributes:
        num_kv_heads, head_dim: of its keys and values.
        scale: factor on the scores; None for 1 / sqrt(head_dim).
        reach: clean positions that a row sees at most, a clean row itself included (sliding window); rows of the open
            window see one clean position less and their whole window. None for all.
    """

    num_kv_heads: int
    head_dim: int
    scale: float | None = None
    reach: int | None = None


@dataclass(frozen=True, kw_only=True)
class CacheShape:
    """Sizes of a cache.

    Attributes:
        num_layers, num_kv_heads, head_dim: of the model.
        align: 1 for causal context; B for block-causal models, whose clean tokens see their whole block of B.
        logit_shift: 0 if a masked row predicts itself, 1 if the row before predicts it.
        fixed_canvas: every row sees the whole canvas and nothing is ever stored (fully bidirectional models).
        layers: one shape for each layer, where they differ; empty for `num_kv_heads` and `head_dim` everywhere.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    align: int = 1
    logit_shift: int = 0
    fixed_canvas: bool = False
    layers: tuple[LayerShape, ...] = ()

    def every_layer(self) -> tuple[LayerShape, ...]:
        """The shape of each layer."""
        same = LayerShape(num_kv_heads=self.num_kv_heads, head_dim=self.head_dim)
        return self.layers or (same,) * self.num_layers


class BlockCausalCache:
    """Keys and values of one sequence. Not thread-safe; owned by the engine loop.

    Args:
        shape: sizes.
        capacity: positions to reserve at once; a queued request reserves none. The cache grows by doubling.
    """

    def __init__(self, shape: CacheShape, capacity: int = 0) -> None:
        self.shape = shape
        self.stored = 0
        self._layers = shape.every_layer()
        chunks = -(-capacity // CHUNK)
        self._keys_CGSK = [torch.zeros(chunks, one.num_kv_heads, CHUNK, one.head_dim) for one in self._layers]
        self._values_CGSK = [torch.zeros_like(keys_CGSK) for keys_CGSK in self._keys_CGSK]

    @property
    def capacity(self) -> int:
        """Positions that fit without growing."""
        return self._keys_CGSK[0].shape[0] * CHUNK

    def plan(self, canvas: Canvas, reads: Reads, *, max_rows: int | None = None) -> Plan:
        """Chooses the rows of the next forward: clean rows not stored yet, then the window.

        Args:
            canvas: the sequence now.
            reads: the predictions the rule asks for.
            max_rows: most clean rows this time; a longer prompt is prefilled over several forwards that read nothing.
        """
        start, end = self.stored, canvas.window_start
        if max_rows is not None and end - start > max_rows:
            end = start + max(max_rows // self.shape.align, 1) * self.shape.align
        if end != canvas.window_start:
            reads = _NOTHING
        row_at_R = reads.predicts_R - np.where(reads.causal_R, 1, self.shape.logit_shift)
        start = min(start, int(row_at_R.min(initial=start)))  # a stored row that must be read is fed again
        clean = np.arange(start, end)
        window = np.arange(end, canvas.length if end == canvas.window_start else end)
        align = self.shape.align
        visible_T = np.concatenate(((clean // align + 1) * align, np.full(window.shape, canvas.length)))
        positions_T = np.concatenate((clean, window))
        return Plan(
            ids_T=canvas.ids_L[positions_T],
            positions_T=positions_T,
            visible_T=np.minimum(visible_T, max(canvas.length, end)),
            clean_end=end,
            read_R=row_at_R - start,
            predicts_R=reads.predicts_R,
            causal_R=reads.causal_R,
        )

    def reserve(self, length: int) -> None:
        """Grows the buffers to hold `length` positions."""
        chunks = self._keys_CGSK[0].shape[0]
        missing = -(-length // CHUNK) - chunks
        if missing > 0:
            pad = (0, 0, 0, 0, 0, 0, 0, max(missing, chunks))
            self._keys_CGSK = [functional.pad(keys, pad) for keys in self._keys_CGSK]
            self._values_CGSK = [functional.pad(values, pad) for values in self._values_CGSK]

    def fork(self, length: int) -> "BlockCausalCache":
        """A copy that holds the first `length` stored slots (a multiple of the alignment) and shares no memory."""
        copy = BlockCausalCache(self.shape)
        chunks = -(-length // CHUNK)
        copy._keys_CGSK = [keys[:chunks].clone() for keys in self._keys_CGSK]
        copy._values_CGSK = [values[:chunks].clone() for values in self._values_CGSK]
        copy.stored = length
        return copy

    def adopt(self, other: "BlockCausalCache") -> None:
        """Takes over the buffers of a cache of the same shape, which must not be used any more."""
        self._keys_CGSK, self._values_CGSK = other._keys_CGSK, other._values_CGSK
        self.stored = other.stored

    def update(self, layer: int, slots: "Slots", k_TGK: Tensor, v_TGK: Tensor) -> None:
        """Writes the rows' keys and values into their slots."""
        for buffer_CGSK, rows_TGK in ((self._keys_CGSK[layer], k_TGK), (self._values_CGSK[layer], v_TGK)):
            if slots.run is not None:  # the rows lie side by side in one chunk: a plain copy is three times as fast
                chunk, first, last = slots.run
                buffer_CGSK[chunk, :, first:last] = rows_TGK.transpose(0, 1)
            else:
                buffer_CGSK[slots.chunk_T, :, slots.offset_T] = rows_TGK

    def attend(self, layer: int, slots: "Slots", q_THK: Tensor) -> Tensor:
        """Attention of T rows over the slots each may see.

        Bit for bit, a row's result depends on its own query and visible slots alone: products have the fixed shape
        [J * ROW_TILE, K] x [K, CHUNK], hidden slots add exact zeros, and chunks are summed in order. Tests check it.
        A fixed canvas is always fed in the same shape, so it needs no tiles to be independent of its batch.
        """
        if self.shape.fixed_canvas:
            return self._attend_whole(layer, slots, q_THK)
        shape, chunks = self._layers[layer], slots.num_chunks
        kv_heads, width = shape.num_kv_heads, shape.head_dim
        scale = width**-0.5 if shape.scale is None else shape.scale
        keys_XKS = self._keys_CGSK[layer][:chunks].flatten(0, 1).transpose(1, 2)
        values_XSK = self._values_CGSK[layer][:chunks].flatten(0, 1)
        num_rows, num_heads, _ = q_THK.shape
        per_kv = num_heads // kv_heads
        q = functional.pad(q_THK, (0, 0, 0, 0, 0, -num_rows % ROW_TILE)).unflatten(1, (kv_heads, per_kv))
        outs: list[Tensor] = []
        for tile, bias_XMS in zip(q.split(ROW_TILE), slots.bias_tiles(kv_heads, per_kv, shape.reach), strict=True):
            q_GMK = tile.permute(1, 2, 0, 3).reshape(kv_heads, per_kv * ROW_TILE, width)
            q_XMK = q_GMK.repeat(chunks, 1, 1)
            scores_XMS = torch.baddbmm(bias_XMS, q_XMK, keys_XKS, alpha=scale)
            weights_XMS = _softmax_over_chunks(scores_XMS, chunks)
            parts_CGMK = torch.bmm(weights_XMS, values_XSK).unflatten(0, (chunks, kv_heads))
            total_GMK = parts_CGMK[0]
            for part_GMK in parts_CGMK[1:]:
                total_GMK = total_GMK + part_GMK
            outs.append(total_GMK.unflatten(1, (per_kv, ROW_TILE)).permute(2, 0, 1, 3))
        out = outs[0] if len(outs) == 1 else torch.cat(outs)
        return out[:num_rows].reshape(num_rows, num_heads, width)

    def _attend_whole(self, layer: int, slots: "Slots", q_THK: Tensor) -> Tensor:
        """Attention of T rows over all slots of a fixed canvas, in one call."""
        keys_GSK, values_GSK = (
            buffer_CGSK[: slots.num_chunks].transpose(0, 1).flatten(1, 2)[:, : slots.num_visible]
            for buffer_CGSK in (self._keys_CGSK[layer], self._values_CGSK[layer])
        )
        per_kv = q_THK.shape[1] // self.shape.num_kv_heads
        if per_kv > 1:
            keys_GSK, values_GSK = (x.repeat_interleave(per_kv, 0) for x in (keys_GSK, values_GSK))
        out_HTK = functional.scaled_dot_product_attention(q_THK.transpose(0, 1)[None], keys_GSK[None], values_GSK[None])
        return out_HTK[0].transpose(0, 1)

    def observe(self, canvas: Canvas, plan: Plan, delta: Delta | None) -> None:
        """Notes which slots now hold final tokens.

        Args:
            canvas: the canvas that was fed (before the delta).
            plan: what was fed.
            delta: what the step changed; None while a prompt is still being prefilled.
        """
        if delta is None:
            self.stored = min(plan.clean_end, canvas.num_final)  # a piece of the prompt may end among drafts after it
            return
        fed = delta.positions_W < plan.clean_end
        positions = delta.positions_W[fed]
        changed = positions[canvas.ids_L[positions] != delta.ids_W[fed]]
        stored = min(plan.clean_end, delta.num_final, int(changed.min(initial=plan.clean_end)))
        self.stored = stored // self.shape.align * self.shape.align


_NOTHING = Reads(predicts_R=np.zeros(0, np.int64), causal_R=np.zeros(0, np.bool_))


def _softmax_over_chunks(scores_XMS: Tensor, chunks: int) -> Tensor:
    """Softmax of each row over all its chunks; in and out are [C * G, M, CHUNK]."""
    if chunks == 1:
        return scores_XMS.softmax(-1)
    scores_GMCS = scores_XMS.unflatten(0, (chunks, -1)).permute(1, 2, 0, 3)
    weights_GMX = scores_GMCS.flatten(2).softmax(-1)
    return weights_GMX.unflatten(2, (chunks, CHUNK)).permute(2, 0, 1, 3).flatten(0, 1)


class Slots:
    """Where the rows of one plan live in the cache, and what each may see; computed once for all layers."""

    def __init__(self, plan: Plan) -> None:
        positions = torch.from_numpy(plan.positions_T)
        self.chunk_T, self.offset_T = positions // CHUNK, positions % CHUNK
        first, last = int(plan.positions_T[0]), int(plan.positions_T[-1]) + 1
        side_by_side = last - first == positions.shape[0] and first // CHUNK == (last - 1) // CHUNK
        offset = first % CHUNK
        self.run = (first // CHUNK, offset, offset + last - first) if side_by_side else None
        self.num_visible = int(plan.visible_T.max(initial=1))
        self.num_chunks = -(-self.num_visible // CHUNK)
        padding = (0, -len(plan.visible_T) % ROW_TILE)
        self._visible_T = functional.pad(torch.from_numpy(plan.visible_T), padding, value=1)
        self._last_clean_T = functional.pad(positions.clamp_max(plan.clean_end), padding)
        self._tiles: dict[tuple[int, int, int | None], list[Tensor]] = {}

    def bias_tiles(self, kv_heads: int, per_kv: int, reach: int | None = None) -> list[Tensor]:
        """0 where a row sees a slot, -inf where not; one [C * G, J * ROW_TILE, CHUNK] tensor per tile of rows."""
        kind = (kv_heads, per_kv, reach)
        if kind not in self._tiles:
            self._tiles[kind] = [
                tile_RCS.transpose(0, 1)[:, None, None]
                .expand(-1, kv_heads, per_kv, -1, -1)
                .reshape(-1, per_kv * ROW_TILE, CHUNK)
                for tile_RCS in self._bias(reach).split(ROW_TILE)
            ]
        return self._tiles[kind]

    def _bias(self, reach: int | None) -> Tensor:
        """The same for all rows and one head, [T, C, CHUNK]."""
        slot_1X = torch.arange(self.num_chunks * CHUNK)[None]
        hidden_TX = slot_1X >= self._visible_T[:, None]
        if reach is not None:
            hidden_TX |= slot_1X <= self._last_clean_T[:, None] - reach
        return torch.zeros(hidden_TX.shape).masked_fill_(hidden_TX, -torch.inf).unflatten(1, (-1, CHUNK))
