"""The dual loss against its definition, computed slowly."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.models.random_weights import EOS, MASK, random_loaded
from unmask.models.linear import PlainLinear
from unmask.train.objectives import DualLoss, denoiser
from unmask.train.packing import NoiseRecipe, PackedBatch, Sample, pack

TALKS = [
    Sample(prompt_ids=(12, 13), answer_ids=(14, 15, 16, 17, 18, EOS)),
    Sample(prompt_ids=(20, 21, 22), answer_ids=(23, EOS)),
]
LOADED = random_loaded()
DENOISE = denoiser(LOADED.model, None, MASK)


def batch(shift: int = 0, *, noisy: bool = True) -> PackedBatch:
    noise = NoiseRecipe(mask_token_id=MASK, fill_token_id=EOS, block_sizes=(4,), logit_shift=shift, full_share=0.5)
    return pack([8, 9, 10], TALKS, noise, np.random.default_rng(2), noisy=noisy)


def cross_entropies(packed: PackedBatch, rows: Tensor, targets: Tensor) -> list[float]:
    """-log p(target) with the mask left out of the distribution, row by row in float64."""
    losses: list[float] = []
    for row, target in zip(rows.tolist(), targets.tolist(), strict=True):
        logits = DENOISE(packed, torch.tensor([row]))[0].double().tolist()
        total = math.fsum(math.exp(x) for i, x in enumerate(logits) if i != MASK)
        losses.append(math.log(total) - logits[target])
    return losses


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.mark.parametrize(("ar", "diffusion"), [(1.0, 1.0), (0.3, 2.0), (1.0, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize("shift", [0, 1])
def test_value_is_the_weighted_sum_of_two_means(ar: float, diffusion: float, shift: int) -> None:
    packed = batch(shift)
    loss = DualLoss(mask_token_id=MASK, ar_weight=ar, diffusion_weight=diffusion)(DENOISE, packed)
    clean = mean(cross_entropies(packed, packed.ar_rows_A, packed.ar_targets_A))
    noisy = mean(cross_entropies(packed, packed.noisy_rows_M, packed.noisy_targets_M))
    assert loss.value.item() == pytest.approx(ar * clean + diffusion * noisy, rel=1e-5)
    assert loss.metrics["loss"] == loss.value.item()
    assert loss.metrics.get("ar_loss") == (pytest.approx(clean, rel=1e-5) if ar else None)
    assert loss.metrics.get("diffusion_loss") == (pytest.approx(noisy, rel=1e-5) if diffusion else None)


def test_without_diffusion_it_is_plain_autoregression() -> None:
    """Each conversation by itself, left to right, no packing at all."""
    packed = batch(noisy=False)
    loss = DualLoss(mask_token_id=MASK, diffusion_weight=0.0)(DENOISE, packed)
    losses: list[float] = []
    for talk in TALKS:
        text = [8, 9, 10, *talk.prompt_ids, *talk.answer_ids]
        alone = pack([], [Sample(prompt_ids=(text[0],), answer_ids=tuple(text[1:]))], RECIPE, RNG, noisy=False)
        every = cross_entropies(alone, alone.ar_rows_A, alone.ar_targets_A)
        losses += every[-len(talk.answer_ids) :]
    assert loss.value.item() == pytest.approx(mean(losses), rel=1e-5)
    assert set(loss.metrics) == {"loss", "ar_loss", "ar_right"}


RECIPE = NoiseRecipe(mask_token_id=MASK, fill_token_id=EOS)
RNG = np.random.default_rng(0)


def test_the_mask_takes_no_part_in_any_distribution() -> None:
    packed = batch()

    def louder(packed: PackedBatch, rows: Tensor) -> Tensor:
        logits = DENOISE(packed, rows)
        logits[:, MASK] += 30.0
        return logits

    loss = DualLoss(mask_token_id=MASK, confidence_weight=0.5)
    assert loss(louder, packed).metrics == loss(DENOISE, packed).metrics


def table(**rows: list[float]) -> Any:
    """A denoiser with the given logits for its noisy rows, in order; clean rows are not asked for."""
    values = list(rows.values())

    def denoise(_packed: PackedBatch, wanted: Tensor) -> Tensor:
        logits = torch.full((len(wanted), 48), -20.0)
        for row in range(len(wanted)):
            logits[row, : len(values[row % len(values)])] = torch.tensor(values[row % len(values)])
        return logits

    return denoise


def test_confidence_term_is_the_entropy_of_the_right_rows_only() -> None:
    packed = PackedBatch(
        **(vars(batch()) | {"noisy_rows_M": torch.arange(3), "noisy_targets_M": torch.tensor([0, 0, 1])})
    )
    denoise = table(right=[2.0, 1.0, 1.0], wrong=[0.0, 3.0], also_right=[1.0, 1.5])

    def entropy(logits: list[float]) -> float:
        full = [*logits, *[-20.0] * (48 - len(logits))]
        weights = [math.exp(x) for i, x in enumerate(full) if i != MASK]
        return -sum(w / sum(weights) * math.log(w / sum(weights)) for w in weights)

    wanted = mean([entropy([2.0, 1.0, 1.0]), entropy([1.0, 1.5])])
    plain = DualLoss(mask_token_id=MASK, ar_weight=0.0)(denoise, packed)
    sharp = DualLoss(mask_token_id=MASK, ar_weight=0.0, confidence_weight=0.25)(denoise, packed)
    assert sharp.metrics["entropy_right"] == pytest.approx(wanted, rel=1e-5)
    assert sharp.value.item() - plain.value.item() == pytest.approx(0.25 * wanted, rel=1e-4)
    assert plain.metrics["diffusion_right"] == pytest.approx(2 / 3)


def test_no_right_row_no_confidence_term() -> None:
    packed = PackedBatch(**(vars(batch()) | {"noisy_rows_M": torch.arange(2), "noisy_targets_M": torch.tensor([5, 5])}))
    loss = DualLoss(mask_token_id=MASK, ar_weight=0.0, confidence_weight=1.0)(table(wrong=[3.0, 0.0]), packed)
    assert "entropy_right" not in loss.metrics
    assert loss.value.isfinite()


def test_gradients_are_finite_and_reach_the_masks_embedding() -> None:
    loaded = random_loaded(linear=PlainLinear)
    mask_embedding = loaded.model.embedding[MASK].detach().clone().requires_grad_()
    loss = DualLoss(mask_token_id=MASK, confidence_weight=0.5)(denoiser(loaded.model, mask_embedding, MASK), batch())
    loss.value.backward()
    assert mask_embedding.grad is not None
    assert mask_embedding.grad.abs().max() > 0
    touched = [p.grad for p in loaded.model.parameters() if p.grad is not None]
    assert len(touched) == 2 * 4 + 1
    assert all(grad.isfinite().all() for grad in touched)


def test_the_masks_embedding_stands_in_at_the_mask_alone() -> None:
    packed = batch()
    rows = torch.arange(packed.ids_N.shape[0])
    own = LOADED.model.embedding[MASK].detach()
    assert torch.equal(denoiser(LOADED.model, own, MASK)(packed, rows), DENOISE(packed, rows))
    other = denoiser(LOADED.model, own + 1.0, MASK)(packed, rows)
    moved = (other - DENOISE(packed, rows)).abs().amax(1) > 1e-4
    clean = torch.ones(len(rows), dtype=torch.bool)
    clean[packed.visible_NN[:, packed.ids_N == MASK].any(1)] = False
    assert moved[packed.ids_N == MASK].all()
    assert not moved[clean].any()


def test_a_weight_of_0_asks_for_no_rows() -> None:
    packed = batch()
    asked: list[int] = []

    def watched(packed: PackedBatch, rows: Tensor) -> Tensor:
        asked.append(len(rows))
        return DENOISE(packed, rows)

    DualLoss(mask_token_id=MASK, diffusion_weight=0.0)(watched, packed)
    DualLoss(mask_token_id=MASK, ar_weight=0.0)(watched, packed)
    assert asked == [len(packed.ar_rows_A), len(packed.noisy_rows_M)]
