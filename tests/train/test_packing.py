"""Layout, noise and visibility of packed training rows."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.models.random_weights import EOS, MASK, random_loaded
from tests.train.packed_rows import Branch, branches, trained
from unmask.core.errors import ConfigError
from unmask.models.config import AttentionPattern
from unmask.train.packing import NoiseRecipe, PackedBatch, Sample, block_starts, pack

CAUSAL, BLOCKS = AttentionPattern.CAUSAL_CONTEXT, AttentionPattern.BLOCK_CAUSAL
PREFIX = [8, 9, 10, 11]
TALKS = [
    Sample(prompt_ids=(12, 13), answer_ids=(14, 15, 16, 17, 18, EOS)),
    Sample(prompt_ids=(20, 21, 22), answer_ids=(23, EOS)),
]


def recipe(**changes: Any) -> NoiseRecipe:
    facts: dict[str, Any] = {"mask_token_id": MASK, "fill_token_id": EOS, "block_sizes": (4,)}
    return NoiseRecipe(**(facts | changes))


def tensors(batch: PackedBatch) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, Tensor) else value for name, value in vars(batch).items()}


def test_one_conversation_by_hand() -> None:
    talk = Sample(prompt_ids=(12,), answer_ids=(14, 15, EOS))
    batch = pack([8, 9], [talk], recipe(block_sizes=(2,), full_share=1.0, random_start=0.0), np.random.default_rng(0))
    assert batch.ids_N.tolist() == [8, 9, 12, 14, 15, EOS, MASK, MASK, MASK, MASK]
    assert batch.positions_N.tolist() == [0, 1, 2, 3, 4, 5, 3, 4, 5, 6]
    assert list(zip(batch.ar_rows_A.tolist(), batch.ar_targets_A.tolist(), strict=True)) == [(2, 14), (3, 15), (4, EOS)]
    assert list(zip(batch.noisy_rows_M.tolist(), batch.noisy_targets_M.tolist(), strict=True)) == [
        (6, 14),
        (7, 15),
        (8, EOS),
        (9, EOS),  # past the answer's end: an EOS again
    ]
    assert (batch.num_prefix, batch.branch_lengths) == (2, (8,))
    rows = ["".join("x" if seen else "." for seen in row) for row in batch.visible_NN.tolist()]
    assert rows == [
        "x.........",
        "xx........",
        "xxx.......",
        "xxxx......",
        "xxxxx.....",
        "xxxxxx....",
        "xxx...xx..",
        "xxx...xx..",
        "xxxxx...xx",
        "xxxxx...xx",
    ]


def test_block_starts() -> None:
    assert block_starts(10, 7, 3, 3) == [10, 10, 10, 13, 13, 13, 16]
    assert block_starts(10, 7, 3, 1) == [10, 11, 11, 11, 14, 14, 14]
    assert block_starts(10, 3, 1, 1) == [10, 11, 12]


# --- who sees whom -----------------------------------------------------------------------------------------------


def may_see(batch: PackedBatch, branch: Branch, row: int, seen: int, attention: AttentionPattern, size: int) -> bool:
    """The four lines at the module's head, word by word."""
    position, other = int(batch.positions_N[row]), int(batch.positions_N[seen])
    blocks = {r: (number, block) for number, copy in enumerate(branch.copies) for block in copy for r in block.rows}
    if row not in blocks and seen not in blocks:
        return other <= position if attention is CAUSAL else other // size <= position // size
    if seen not in blocks:
        return other < blocks[row][1].start
    if row not in blocks:
        return False
    return blocks[row][0] == blocks[seen][0] and blocks[row][1].start == blocks[seen][1].start


@st.composite
def packed(draw: st.DrawFn) -> tuple[list[int], list[Sample], NoiseRecipe, PackedBatch]:
    attention = draw(st.sampled_from([CAUSAL, BLOCKS]))
    size = draw(st.integers(1, 5))
    num_prefix = draw(st.integers(0, 3)) * (size if attention is BLOCKS else 1)
    ids = st.integers(8, 47)
    talks = draw(
        st.lists(
            st.builds(
                Sample,
                prompt_ids=st.lists(ids, min_size=1, max_size=6).map(tuple),
                answer_ids=st.lists(ids, min_size=1, max_size=8).map(tuple),
            ),
            min_size=1,
            max_size=3,
        )
    )
    made = recipe(
        attention=attention,
        block_sizes=(size,) if attention is BLOCKS else (size, size + 2),
        logit_shift=draw(st.sampled_from([0, 1])),
        full_share=draw(st.sampled_from([0.0, 0.5, 1.0])),
        random_start=draw(st.sampled_from([0.0, 1.0])),
    )
    prefix = draw(st.lists(ids, min_size=num_prefix, max_size=num_prefix))
    return prefix, talks, made, pack(prefix, talks, made, np.random.default_rng(draw(st.integers(0, 999))))


@given(packed())
@settings(max_examples=60, deadline=None)
def test_visibility_is_what_the_module_says(made: tuple[list[int], list[Sample], NoiseRecipe, PackedBatch]) -> None:
    prefix, talks, noise, batch = made
    size = noise.block_sizes[0]
    owner = [0] * len(prefix) + [b for b, length in enumerate(batch.branch_lengths, 1) for _ in range(length)]
    for number, branch in enumerate(branches(prefix, talks, batch), 1):
        for row in (r for r, b in enumerate(owner) if b in (0, number)):
            for seen, other in enumerate(owner):
                if other == number or other == 0:
                    inside_prefix = owner[row] == 0 and other != 0
                    wanted = not inside_prefix and may_see(batch, branch, row, seen, noise.attention, size)
                elif owner[row] == 0:
                    wanted = False
                else:
                    wanted = False
                assert bool(batch.visible_NN[row, seen]) == wanted, (row, seen)


@given(packed())
@settings(max_examples=60, deadline=None)
def test_copies_hide_each_answer_position_exactly_once(
    made: tuple[list[int], list[Sample], NoiseRecipe, PackedBatch],
) -> None:
    prefix, talks, noise, batch = made
    for branch in branches(prefix, talks, batch):
        filled = branch.text + [EOS] * 20
        hidden = sorted(position for copy in branch.copies for block in copy for position in block.masked)
        end = max(block.start + len(block.rows) for copy in branch.copies for block in copy)
        assert hidden == list(range(branch.answer_at, end)), "once each, to the end of the last block"
        assert end >= len(branch.text)
        for copy in branch.copies:
            for block in copy:
                kept = {block.start + i: token for i, token in enumerate(block.ids) if token != MASK}
                assert all(filled[position] == token for position, token in kept.items())
                if noise.attention is BLOCKS:
                    assert block.start % noise.block_sizes[0] == 0
                    assert len(block.rows) == noise.block_sizes[0]


# --- leaks, by changing tokens -----------------------------------------------------------------------------------


def changed(batch: PackedBatch, row: int) -> PackedBatch:
    ids = batch.ids_N.clone()
    ids[row] = 40 if ids[row] != 40 else 41
    return PackedBatch(**(vars(batch) | {"ids_N": ids}))


@pytest.mark.parametrize("attention", [CAUSAL, BLOCKS])
@pytest.mark.parametrize("full_share", [0.0, 1.0])
def test_a_token_reaches_exactly_the_rows_that_may_see_it(attention: AttentionPattern, full_share: float) -> None:
    """Through all layers: what a row can know is the transitive closure of who sees whom."""
    noise = recipe(attention=attention, full_share=full_share)
    loaded = random_loaded(attention=attention)
    batch = pack(PREFIX, TALKS, noise, np.random.default_rng(3))
    reach = batch.visible_NN.numpy()
    for _ in range(loaded.config.num_layers - 1):
        reach = reach @ batch.visible_NN.numpy()
    before = trained(loaded, batch)
    for row in range(batch.ids_N.shape[0]):
        moved = (trained(loaded, changed(batch, row)) - before).abs().amax(1)
        assert (moved[~torch.from_numpy(reach[:, row])] < 1e-6).all(), row
        assert (moved[torch.from_numpy(batch.visible_NN.numpy()[:, row])] > 1e-4).all(), row


def test_blocks_of_one_masked_token_know_the_clean_past_alone() -> None:
    """Then diffusion is autoregression with the mask as its query: no token at or after the position is seen."""
    noise = recipe(block_sizes=(1,), full_share=1.0)
    loaded = random_loaded()
    batch = pack(PREFIX, TALKS[:1], noise, np.random.default_rng(0))
    (branch,) = branches(PREFIX, TALKS[:1], batch)
    logits = trained(loaded, batch)
    blocks = branch.copies[0]
    assert [len(block.rows) for block in blocks] == [1] * 6
    for block in blocks:
        (row,) = block.rows
        for position in range(block.start, len(branch.text)):
            other = trained(loaded, changed(batch, branch.clean_rows[position]))
            assert (other[row] - logits[row]).abs().max() < 1e-6
        alone = pack(
            branch.text[: block.start - 1],
            [Sample(prompt_ids=(branch.text[block.start - 1],), answer_ids=(branch.text[block.start],))],
            noise,
            np.random.default_rng(1),
        )
        torch.testing.assert_close(trained(loaded, alone)[-1], logits[row], atol=1e-5, rtol=0)


# --- noise -------------------------------------------------------------------------------------------------------


def test_equal_generators_give_equal_batches() -> None:
    noise = recipe(block_sizes=(2, 3, 5), full_share=0.5)
    first, second = (pack(PREFIX, TALKS, noise, np.random.default_rng(11)) for _ in "ab")
    assert tensors(first) == tensors(second)
    others = [tensors(pack(PREFIX, TALKS, noise, np.random.default_rng(seed))) for seed in range(10)]
    assert any(other != tensors(first) for other in others)


LONG = [Sample(prompt_ids=(12,), answer_ids=(20,) * 1600)]


def shares(noise: NoiseRecipe, seed: int = 0) -> list[float]:
    """Share of hidden positions per block of the first copy."""
    batch = pack([], LONG, noise, np.random.default_rng(seed))
    row = 1601
    ids = batch.ids_N[row : row + (batch.ids_N.shape[0] - row) // 2]
    size = noise.block_sizes[0]
    return [(block == MASK).float().mean().item() for block in ids[: len(ids) // size * size].split(size)]


def test_each_block_draws_its_own_ratio() -> None:
    noise = recipe(block_sizes=(80,), full_share=0.0, random_start=0.0, ratio=(0.2, 0.8))
    drawn = [share for seed in range(3) for share in shares(noise, seed)]
    assert 0.05 < min(drawn) < 0.35
    assert 0.65 < max(drawn) < 0.95
    assert np.std(shares(noise)) > 0.1, "within one conversation"
    fixed = shares(recipe(block_sizes=(80,), full_share=0.0, random_start=0.0, ratio=(0.5, 0.5)))
    assert max(abs(share - 0.5) for share in fixed) < 0.25
    assert shares(recipe(block_sizes=(80,), full_share=0.0, random_start=0.0, ratio=(0.0, 0.0))) == [0.0] * 20


def test_full_share_and_random_start() -> None:
    def drawn(**changes: Any) -> list[Branch]:
        noise = recipe(**({"block_sizes": (4,)} | changes))
        return [
            branches([], TALKS[:1], pack([], TALKS[:1], noise, np.random.default_rng(seed)))[0] for seed in range(200)
        ]

    num_full = sum(len(branch.copies) == 1 for branch in drawn(full_share=0.6))
    assert 90 <= num_full <= 150
    starts = {branch.copies[0][1].start - branch.answer_at for branch in drawn(full_share=1.0, random_start=1.0)}
    assert starts == {1, 2, 3, 4}
    assert {b.copies[0][1].start - b.answer_at for b in drawn(full_share=1.0, random_start=0.0)} == {4}


def test_without_noise_only_the_clean_stream_is_packed() -> None:
    batch = pack(PREFIX, TALKS, recipe(), np.random.default_rng(0), noisy=False)
    assert batch.branch_lengths == (8, 5)
    assert batch.noisy_rows_M.shape == batch.noisy_targets_M.shape == (0,)
    assert MASK not in batch.ids_N.tolist()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"attention": AttentionPattern.BIDIRECTIONAL}, "cannot be trained with blocks"),
        ({"attention": AttentionPattern.CAUSAL}, "cannot be trained with blocks"),
        ({"block_sizes": ()}, "block sizes"),
        ({"block_sizes": (4, 0)}, "block sizes"),
        ({"ratio": (0.8, 0.2)}, "ratio"),
        ({"ratio": (-0.1, 0.2)}, "ratio"),
        ({"ratio": (0.1, 1.2)}, "ratio"),
    ],
)
def test_bad_recipes_are_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        recipe(**changes)


def test_block_causal_rows_share_one_block_size() -> None:
    noise = recipe(attention=BLOCKS, block_sizes=(2, 3))
    with pytest.raises(ConfigError, match="one block size"):
        [pack([], TALKS, noise, np.random.default_rng(seed)) for seed in range(20)]
