"""Conversations -> one packed training row: [prefix | prompt, answer, noisy copies | prompt, answer, noisy copies ...].

Conversations that share a prefix (the tool list) share its rows, as branches of a tree; each branch holds its clean
stream once and any number of noisy copies of its answer. One boolean matrix says who sees whom:

    clean  -> clean   same branch or prefix, earlier (causal) or same-or-earlier block (block-causal)
    noisy  -> clean   same branch or prefix, strictly before the block's start
    noisy  -> noisy   same copy, same block (bidirectional)
    clean  -> noisy   never

Source: BD3LM, arXiv 2503.09573 section 3 ([x_t ; x_0] and its mask); complementary copies: Fast-dLLM v2, arXiv
2509.26328 section 3; causal clean stream with fully masked blocks: TiDAR, arXiv 2511.08923 section 3.
Departs from the source: branches share a prefix; with a causal context, blocks may start anywhere in the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from unmask.core.errors import ConfigError
from unmask.models.config import AttentionPattern

# Shape legend: N packed rows, A rows with an AR loss, M rows with a diffusion loss.


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One conversation as ids: what is given after the shared prefix, and what must be answered (with its EOS)."""

    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class NoiseRecipe:
    """How answers are corrupted.

    Attributes:
        mask_token_id: id of the mask.
        fill_token_id: id supervised at positions of the last block after the answer's end (the EOS).
        attention: CAUSAL_CONTEXT (blocks start anywhere) or BLOCK_CAUSAL (blocks aligned to position 0).
        block_sizes: one is drawn per conversation.
        logit_shift: 0 if a masked row predicts itself, 1 if the row before predicts it.
        full_share: share of conversations that get one fully masked copy; the others get two complementary ones.
        ratio: range of the per-block mask ratio t of complementary copies.
        random_start: with CAUSAL_CONTEXT, share of conversations whose first block is cut short at random, so that
            later blocks start at every offset.
    """

    mask_token_id: int
    fill_token_id: int
    attention: AttentionPattern = AttentionPattern.CAUSAL_CONTEXT
    block_sizes: tuple[int, ...] = (8,)
    logit_shift: int = 0
    full_share: float = 0.6
    ratio: tuple[float, float] = (0.2, 0.8)
    random_start: float = 0.5

    def __post_init__(self) -> None:
        if self.attention not in (AttentionPattern.CAUSAL_CONTEXT, AttentionPattern.BLOCK_CAUSAL):
            raise ConfigError(f"attention {self.attention.value!r} cannot be trained with blocks")
        if not self.block_sizes or min(self.block_sizes) < 1:
            raise ConfigError(f"block sizes must be at least 1, got {self.block_sizes}")
        if not 0.0 <= self.ratio[0] <= self.ratio[1] <= 1.0:
            raise ConfigError(f"mask ratio range must lie in [0, 1], got {self.ratio}")


@dataclass(frozen=True, kw_only=True)
class PackedBatch:
    """One training row; all tensors on the CPU.

    Attributes:
        ids_N, positions_N: int64.
        visible_NN: bool, row sees column.
        ar_rows_A, ar_targets_A: rows whose logits get the AR loss, and the ids they must predict.
        noisy_rows_M, noisy_targets_M: the same for the diffusion loss.
        num_prefix: rows of the shared prefix.
        branch_lengths: rows of each conversation, in order after the prefix.
    """

    ids_N: Tensor
    positions_N: Tensor
    visible_NN: Tensor
    ar_rows_A: Tensor
    ar_targets_A: Tensor
    noisy_rows_M: Tensor
    noisy_targets_M: Tensor
    num_prefix: int
    branch_lengths: tuple[int, ...]


class _Rows:
    """Grows the packed row column by column."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.positions: list[int] = []
        self.branch: list[int] = []
        self.copy: list[int] = []  # 0 clean
        self.start: list[int] = []  # noisy: first position of the row's block

    def add(self, ids: Sequence[int], position: int, branch: int, copy: int, starts: Sequence[int]) -> int:
        """Appends rows and returns the index of the first."""
        first = len(self.ids)
        self.ids.extend(ids)
        self.positions.extend(range(position, position + len(ids)))
        self.branch.extend([branch] * len(ids))
        self.copy.extend([copy] * len(ids))
        self.start.extend(starts)
        return first

    def visible(self, recipe: NoiseRecipe, clean_block: NDArray[np.int64]) -> Tensor:
        """The matrix of the module's head."""
        position, branch, copy, start = (np.array(x) for x in (self.positions, self.branch, self.copy, self.start))
        related = (branch[None] == 0) | (branch[None] == branch[:, None])
        clean_key, clean_query = copy[None] == 0, copy[:, None] == 0
        if recipe.attention is AttentionPattern.CAUSAL_CONTEXT:
            earlier = position[None] <= position[:, None]
        else:
            earlier = clean_block[None] <= clean_block[:, None]
        clean = clean_query & clean_key & earlier
        context = ~clean_query & clean_key & (position[None] < start[:, None])
        inside = ~clean_query & ~clean_key & (copy[None] == copy[:, None]) & (start[None] == start[:, None])
        return torch.from_numpy(related & (clean | context | inside))


def block_starts(first: int, length: int, size: int, head: int) -> list[int]:
    """Block start of each of `length` positions from `first`: one block of `head` positions, then blocks of `size`."""
    return [first if i < head else first + head + (i - head) // size * size for i in range(length)]


def pack(
    prefix_ids: Sequence[int],
    samples: Sequence[Sample],
    recipe: NoiseRecipe,
    rng: np.random.Generator,
    *,
    noisy: bool = True,
) -> PackedBatch:
    """Packs conversations behind their shared prefix and draws their noise.

    Args:
        prefix_ids: ids shared by all samples, may be empty.
        samples: at least one; each with a non-empty prompt and answer.
        recipe: see `NoiseRecipe`.
        rng: source of all noise; equal states give equal batches.
        noisy: False leaves the noisy copies out (plain AR training).
    """
    if recipe.attention is AttentionPattern.BLOCK_CAUSAL:
        prefix_ids, samples = _whole_blocks(prefix_ids, samples, recipe.block_sizes)
    rows = _Rows()
    rows.add(prefix_ids, 0, 0, 0, [0] * len(prefix_ids))
    ar: list[tuple[int, int]] = []
    masked: list[tuple[int, int]] = []
    for branch, sample in enumerate(samples, start=1):
        size = int(rng.choice(recipe.block_sizes))
        begin = len(prefix_ids)
        clean = [*sample.prompt_ids, *sample.answer_ids]
        first = rows.add(clean, begin, branch, 0, [0] * len(clean))
        answer_at = begin + len(sample.prompt_ids)
        last_prompt = first + len(sample.prompt_ids) - 1
        ar += [(last_prompt + i, target) for i, target in enumerate(sample.answer_ids)]
        if noisy:
            masked += _noisy_copies(rows, clean, begin, answer_at, last_prompt, branch, size, recipe, rng)
    block = np.array(rows.positions) // recipe.block_sizes[0]
    return PackedBatch(
        ids_N=torch.tensor(rows.ids),
        positions_N=torch.tensor(rows.positions),
        visible_NN=rows.visible(recipe, block),
        ar_rows_A=torch.tensor([row for row, _ in ar]),
        ar_targets_A=torch.tensor([target for _, target in ar]),
        noisy_rows_M=torch.tensor([row for row, _ in masked], dtype=torch.long),
        noisy_targets_M=torch.tensor([target for _, target in masked], dtype=torch.long),
        num_prefix=len(prefix_ids),
        branch_lengths=tuple(rows.branch.count(branch) for branch in range(1, len(samples) + 1)),
    )


def _whole_blocks(
    prefix_ids: Sequence[int], samples: Sequence[Sample], block_sizes: tuple[int, ...]
) -> tuple[Sequence[int], list[Sample]]:
    """Cuts the prefix at a block border and gives the rest to every branch: a block must not straddle the fork."""
    if len(block_sizes) != 1:
        raise ConfigError("block-causal training takes one block size")
    cut = len(prefix_ids) // block_sizes[0] * block_sizes[0]
    rest = tuple(prefix_ids[cut:])
    return prefix_ids[:cut], [
        Sample(prompt_ids=rest + sample.prompt_ids, answer_ids=sample.answer_ids) for sample in samples
    ]


def _noisy_copies(
    rows: _Rows,
    clean: Sequence[int],
    begin: int,
    answer_at: int,
    last_prompt_row: int,
    branch: int,
    size: int,
    recipe: NoiseRecipe,
    rng: np.random.Generator,
) -> list[tuple[int, int]]:
    """Appends the noisy copies of one answer; returns (row, target) pairs of the diffusion loss."""
    if recipe.attention is AttentionPattern.BLOCK_CAUSAL:
        first, head = answer_at // size * size, size
    else:
        first = answer_at
        head = int(rng.integers(1, size + 1)) if rng.random() < recipe.random_start else size
    end = begin + len(clean)
    covered = end - first
    length = head if covered <= head else head + -(-(covered - head) // size) * size
    targets = [clean[p - begin] if p < end else recipe.fill_token_id for p in range(first, first + length)]
    starts = block_starts(first, length, size, head)
    maskable = np.arange(first, first + length) >= answer_at
    if rng.random() < recipe.full_share:
        views = [maskable]
    else:
        low, high = recipe.ratio
        ratio_of = {start: rng.uniform(low, high) for start in dict.fromkeys(starts)}
        drawn = rng.random(length) < np.array([ratio_of[start] for start in starts])
        views = [maskable & drawn, maskable & ~drawn]
    pairs: list[tuple[int, int]] = []
    for copy, masked in enumerate(views, start=1):
        ids = [recipe.mask_token_id if hide else target for hide, target in zip(masked, targets, strict=True)]
        row = rows.add(ids, first, branch, copy, starts)
        for i in np.flatnonzero(masked).tolist():
            if recipe.logit_shift == 0:
                pairs.append((row + i, targets[i]))
            elif starts[i] != first + i:  # the block's first position is the causal stream's own prediction
                pairs.append((row + i - 1, targets[i]))
            elif recipe.attention is AttentionPattern.BLOCK_CAUSAL and first + i > 0:
                pairs.append((last_prompt_row + first + i - answer_at, targets[i]))
    return pairs
