"""The key test of conversion: training sees, row for row, the logits that the cached engine will see."""

import numpy as np
import pytest
import torch

from tests.models.random_weights import EOS, MASK, random_loaded
from tests.train.packed_rows import branches, served, trained
from unmask.models.config import AttentionPattern
from unmask.train.packing import NoiseRecipe, Sample, pack

CAUSAL, BLOCKS = AttentionPattern.CAUSAL_CONTEXT, AttentionPattern.BLOCK_CAUSAL

CASES = [
    # attention, block sizes, prefix length, prompt lengths, answer lengths
    (CAUSAL, (4,), 7, (3, 1, 9), (6, 9, 4)),
    (CAUSAL, (1, 3, 8), 0, (5, 2), (11, 1)),
    (CAUSAL, (16,), 13, (1,), (5,)),
    (BLOCKS, (4,), 8, (3, 1, 9, 4), (6, 9, 4, 8)),
    (BLOCKS, (4,), 0, (5, 8, 1), (3, 9, 2)),
    (BLOCKS, (7,), 14, (1, 10), (8, 15)),
    (BLOCKS, (1,), 3, (2, 2), (4, 5)),
]


def samples(prompts: tuple[int, ...], answers: tuple[int, ...], rng: np.random.Generator) -> list[Sample]:
    def draw(length: int) -> tuple[int, ...]:
        return tuple(rng.integers(8, 48, length).tolist())

    return [
        Sample(prompt_ids=draw(prompt), answer_ids=(*draw(answer - 1), EOS))
        for prompt, answer in zip(prompts, answers, strict=True)
    ]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("full_share", [0.0, 1.0])
def test_training_logits_equal_cached_block_decoding_logits(case: tuple, shift: int, full_share: float) -> None:
    attention, sizes, num_prefix, prompts, answers = case
    rng = np.random.default_rng(num_prefix)
    prefix = rng.integers(8, 48, num_prefix).tolist()
    talks = samples(prompts, answers, rng)
    recipe = NoiseRecipe(
        mask_token_id=MASK,
        fill_token_id=EOS,
        attention=attention,
        block_sizes=sizes,
        logit_shift=shift,
        full_share=full_share,
    )
    loaded = random_loaded(attention=attention, block_size=sizes[0], logit_shift=shift)
    batch = pack(prefix, talks, recipe, rng)
    logits = trained(loaded, batch)
    pairs = set(zip(batch.noisy_rows_M.tolist(), batch.noisy_targets_M.tolist(), strict=True))
    num_pairs, num_compared = 0, 0
    for branch in branches(prefix, talks, batch):
        filled = branch.text + [EOS] * 300
        assert len(branch.copies) == (1 if full_share else 2)
        for block in (block for copy in branch.copies for block in copy):
            if not block.masked:
                continue
            frozen = max(block.start, branch.answer_at)
            shown = served(loaded, branch.text[: block.start], block.ids, num_final=frozen)
            assert sorted(shown) == block.masked
            for position in block.masked:
                if shift == 0:
                    row = block.rows[position - block.start]
                elif position > block.start:
                    row = block.rows[position - block.start - 1]
                else:  # the causal stream's own prediction
                    row = branch.clean_rows[position - 1]
                torch.testing.assert_close(logits[row], shown[position], atol=1e-4, rtol=0)
                num_compared += 1
                by_ar_loss = attention is CAUSAL and shift == 1 and position == block.start
                assert ((row, filled[position]) in pairs) == (not by_ar_loss)
                num_pairs += not by_ar_loss
    assert num_pairs == len(batch.noisy_rows_M), "every supervised row was compared"
    assert num_compared >= sum(answers)


@pytest.mark.parametrize("case", [case for case in CASES if case[0] is CAUSAL])
def test_clean_rows_equal_the_logits_of_ar_and_verified_mode(case: tuple) -> None:
    attention, sizes, num_prefix, prompts, answers = case
    rng = np.random.default_rng(num_prefix)
    prefix = rng.integers(8, 48, num_prefix).tolist()
    talks = samples(prompts, answers, rng)
    recipe = NoiseRecipe(mask_token_id=MASK, fill_token_id=EOS, block_sizes=sizes)
    loaded = random_loaded(attention=attention)
    batch = pack(prefix, talks, recipe, rng)
    logits = trained(loaded, batch)
    rows, targets = batch.ar_rows_A.tolist(), batch.ar_targets_A.tolist()
    wanted_rows: list[int] = []
    for branch in branches(prefix, talks, batch):
        shown = served(loaded, branch.text, [MASK] * 4, num_final=branch.answer_at, causal=True)
        for position in range(branch.answer_at, len(branch.text)):
            row = branch.clean_rows[position - 1]
            torch.testing.assert_close(logits[row], shown[position], atol=1e-4, rtol=0)
            assert targets[len(wanted_rows)] == branch.text[position]
            wanted_rows.append(row)
    assert rows == wanted_rows


def test_the_prompts_last_row_may_lie_in_the_prefix_only_with_a_prompt() -> None:
    """Each sample brings at least one prompt token, so its first answer token is predicted inside its own branch."""
    talk = Sample(prompt_ids=(9,), answer_ids=(10, EOS))
    batch = pack([8], [talk, talk], NoiseRecipe(mask_token_id=MASK, fill_token_id=EOS), np.random.default_rng(0))
    assert batch.ar_rows_A.tolist()[0] == 1
