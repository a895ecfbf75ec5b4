import math

import numpy as np
import pytest
import torch

from unmask.core.errors import EngineError
from unmask.decoding.sampling import Sampling

LOGITS = torch.tensor([0.3, 2.0, -1.0, 2.0, 0.3, 1.1, -torch.inf, 0.0])
SWEEP = [(i + 0.5) / 4000 for i in range(4000)]


def expected(sampling: Sampling) -> list[float]:
    """The distribution, slowly and by its definition."""
    best = max(x for i, x in enumerate(LOGITS.tolist()) if i not in sampling.banned_ids)
    weights = [
        0.0 if i in sampling.banned_ids else math.exp((x - best) / sampling.temperature)
        for i, x in enumerate(LOGITS.tolist())
    ]
    probabilities = [weight / sum(weights) for weight in weights]
    kept, mass = [0.0] * len(weights), 0.0
    for rank, i in enumerate(sorted(range(len(weights)), key=lambda i: (-probabilities[i], i))):
        if mass >= sampling.top_p - 1e-12 or (sampling.top_k and rank >= sampling.top_k):
            break
        kept[i] = probabilities[i]
        mass += probabilities[i]
    return [weight / sum(kept) for weight in kept]


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.5, 0.31, 1e-6])
@pytest.mark.parametrize("top_k", [0, 1, 2, 3, 8, 100])
@pytest.mark.parametrize("banned", [(), (1,), (1, 3, 7)])
def test_distribution_equals_its_definition(
    temperature: float, top_p: float, top_k: int, banned: tuple[int, ...]
) -> None:
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, banned_ids=banned)
    ids, _ = sampling.choose(LOGITS.repeat(len(SWEEP), 1), SWEEP)
    shares = torch.bincount(ids, minlength=8) / len(SWEEP)
    wanted = expected(sampling)
    assert shares.tolist() == pytest.approx(wanted, abs=1.01 / len(SWEEP))
    assert all(share == 0 for share, want in zip(shares.tolist(), wanted, strict=True) if want == 0)


def test_ends_of_the_unit_interval() -> None:
    """No number of [0, 1) draws a token that was left out, nor falls off the end."""
    for sampling in (Sampling(temperature=1.0, banned_ids=(0, 7)), Sampling(temperature=1.0, top_k=2)):
        ids, _ = sampling.choose(LOGITS.repeat(3, 1), [0.0, 1 - 2**-53, 0.5])
        assert set(ids.tolist()) <= {i for i, share in enumerate(expected(sampling)) if share > 0}


def test_greedy_takes_the_lowest_of_equals() -> None:
    ids, _ = Sampling().choose(LOGITS[None].clone(), [])
    assert ids.tolist() == [1]
    ids, _ = Sampling(banned_ids=(1,)).choose(LOGITS[None].clone(), [])
    assert ids.tolist() == [3]
    flat = torch.zeros(2, 50000)
    flat[1, 40000:] = 1.0
    assert Sampling(banned_ids=(0,)).choose(flat, [])[0].tolist() == [1, 40000]


def test_top_k_keeps_the_lowest_of_equals() -> None:
    ids, _ = Sampling(temperature=1.0, top_k=1).choose(torch.zeros(20, 9), [i / 20 for i in range(20)])
    assert set(ids.tolist()) == {0}
    ids, _ = Sampling(temperature=1.0, top_p=0.2).choose(torch.zeros(20, 9), [i / 20 for i in range(20)])
    assert set(ids.tolist()) == {0, 1}


def test_confidence_ignores_temperature_and_draw() -> None:
    wanted = torch.softmax(LOGITS, -1).max().item()
    for temperature in (0.0, 0.1, 2.0):
        _, confidence = Sampling(temperature=temperature, top_k=1).choose(LOGITS.repeat(2, 1), [0.1, 0.9])
        assert confidence.tolist() == pytest.approx([wanted] * 2, rel=1e-6)
    _, confidence = Sampling(banned_ids=(1, 3)).choose(LOGITS[None].clone(), [])
    assert confidence.item() == pytest.approx(torch.softmax(LOGITS[[0, 2, 4, 5, 6, 7]], -1).max().item(), rel=1e-6)


@pytest.mark.parametrize("temperature", [1e-300, 1e-308, 5e-324, 1e-9])
def test_the_smallest_temperatures_are_greedy(temperature: float) -> None:
    ids, _ = Sampling(temperature=temperature).choose(torch.tensor([[-500.0, 80.0, 79.0]]), [0.999])
    assert ids.tolist() == [1]


@pytest.mark.parametrize("scale", [1e4, 1e30, 3e38])
@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_huge_logits(scale: float, temperature: float) -> None:
    ids, confidence = Sampling(temperature=temperature).choose(torch.tensor([[-scale, scale, 0.0]]), [0.7])
    assert ids.tolist() == [1]
    assert confidence.tolist() == [1.0]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "row",
    [
        [0.0, torch.nan, 1.0, 2.0],
        [torch.nan] * 4,
        [-torch.inf] * 4,
        [5.0, -torch.inf, -torch.inf, -torch.inf],  # only the mask is possible
        [0.0, torch.inf, 1.0, 2.0],
    ],
)
def test_rows_that_mean_nothing_are_an_error_not_a_token(row: list[float], temperature: float) -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, 3.0], row])
    with pytest.raises(EngineError, match="not finite"):
        Sampling(temperature=temperature, banned_ids=(0,)).choose(logits, [0.5, 0.5])


def test_no_rows() -> None:
    for temperature in (0.0, 1.0):
        ids, confidence = Sampling(temperature=temperature).choose(torch.empty(0, 8), [])
        assert ids.shape == confidence.shape == (0,)


def test_rows_do_not_influence_one_another() -> None:
    """A row drawn alone equals the row drawn among others (verified mode rests on it)."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(40, 1000, generator=generator)
    uniforms = np.random.default_rng(0).random(40).tolist()
    sampling = Sampling(temperature=0.8, top_p=0.9, top_k=50, banned_ids=(3,))
    ids, confidence = sampling.choose(logits.clone(), uniforms)
    for row in range(40):
        alone, sure = sampling.choose(logits[row : row + 1].clone(), uniforms[row : row + 1])
        assert (alone.item(), sure.item()) == (ids[row].item(), confidence[row].item())
