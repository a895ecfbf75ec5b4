"""The mixture of experts equals a row-by-row account of it, and no row feels its neighbours."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from unmask.models.config import FeedKind, MoEConfig, RouterScore
from unmask.models.linear import Int8Linear, LinearFactory, TiledLinear
from unmask.models.moe import Expert, MoE, Router

HIDDEN = 32
KINDS = {
    "softmax": MoEConfig(num_experts=8, num_chosen=3, expert_size=16),
    "softmax-normalised": MoEConfig(num_experts=6, num_chosen=2, expert_size=16, normalise=True),
    "sigmoid-odd": MoEConfig(num_experts=6, num_chosen=2, expert_size=16, score=RouterScore.SIGMOID),
    "one-expert": MoEConfig(num_experts=1, num_chosen=1, expert_size=16),
    "grouped": MoEConfig(
        num_experts=16,
        num_chosen=4,
        expert_size=16,
        shared_size=24,
        score=RouterScore.SIGMOID,
        has_choice_bias=True,
        num_groups=4,
        num_chosen_groups=2,
        normalise=True,
        scale=2.5,
    ),
}


def make(kind: str, linear: LinearFactory = TiledLinear) -> MoE:
    moe = KINDS[kind]
    generator = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) * 0.4

    def expert(width: int) -> Expert:
        return Expert(linear(draw(2 * width, HIDDEN), None), linear(draw(HIDDEN, width), None), FeedKind.SWIGLU)

    router = Router(moe, draw(moe.num_experts, HIDDEN), draw(moe.num_experts) if moe.has_choice_bias else None)
    experts = [expert(moe.expert_size) for _ in range(moe.num_experts)]
    return MoE(router, experts, expert(moe.shared_size) if moe.shared_size else None).eval()


def rows(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, HIDDEN, generator=torch.Generator().manual_seed(seed))


def by_hand(layer: MoE, x_D: Tensor) -> Tensor:
    """One row, in the order of the definition."""
    moe = layer.router.moe
    logits = [float(weight @ x_D) for weight in layer.router.gate.weight]
    scores = torch.tensor(logits).sigmoid() if moe.score is RouterScore.SIGMOID else torch.tensor(logits).softmax(0)
    choice = scores.clone() if layer.router.choice_bias is None else scores + layer.router.choice_bias
    size = moe.num_experts // moe.num_groups
    groups = [list(range(first, first + size)) for first in range(0, moe.num_experts, size)]
    worth = [sum(sorted((float(choice[e]) for e in group), reverse=True)[:2]) for group in groups]
    best = sorted(range(moe.num_groups), key=lambda g: (-worth[g], g))[: moe.num_chosen_groups]
    allowed = [e for g in best for e in groups[g]]
    chosen = sorted(allowed, key=lambda e: (-float(choice[e]), e))[: moe.num_chosen]
    total = sum(float(scores[e]) for e in chosen) if moe.normalise else 1.0

    def run(expert: Expert) -> Tensor:
        gate, up = (expert.gate_up.weight @ x_D).chunk(2)
        return expert.down.weight @ (functional.silu(gate) * up)

    mixed = sum((run(layer.experts[e]) * float(scores[e]) / total * moe.scale for e in chosen), torch.zeros(HIDDEN))
    return mixed if layer.shared is None else mixed + run(layer.shared)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_row_is_as_defined(kind: str) -> None:
    layer, x = make(kind), rows(20)
    with torch.inference_mode():
        torch.testing.assert_close(layer(x), torch.stack([by_hand(layer, row) for row in x]), atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:torch.quantize_per")
@pytest.mark.parametrize("linear", [TiledLinear, Int8Linear])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_rows_do_not_feel_their_neighbours(kind: str, linear: LinearFactory) -> None:
    layer, x = make(kind, linear), rows(37)
    with torch.inference_mode():
        together = layer(x)
        for count in (1, 2, 5, 16, 17):
            assert torch.equal(torch.cat([layer(part) for part in x.split(count)]), together)
        shuffled = torch.randperm(37, generator=torch.Generator().manual_seed(1))
        assert torch.equal(layer(x[shuffled]), together[shuffled])
        assert layer(x[:0]).shape == (0, HIDDEN)


@pytest.mark.parametrize("score", list(RouterScore))
def test_equal_scores_go_to_the_lower_index(score: RouterScore) -> None:
    moe = MoEConfig(num_experts=32, num_chosen=4, expert_size=8, score=score)
    router = Router(moe, torch.ones(32, HIDDEN), None)
    chosen, weights = router(rows(9))
    assert torch.equal(chosen, torch.arange(4).expand(9, 4))
    assert torch.equal(weights, weights[:, :1].expand(9, 4))


def test_equal_groups_go_to_the_lower_index() -> None:
    moe = MoEConfig(num_experts=32, num_chosen=6, expert_size=8, num_groups=8, num_chosen_groups=3)
    chosen, _ = Router(moe, torch.ones(32, HIDDEN), None)(rows(5))
    assert torch.equal(chosen, torch.arange(6).expand(5, 6))


def test_the_choice_bias_moves_the_choice_and_not_the_weights() -> None:
    moe = MoEConfig(num_experts=8, num_chosen=2, expert_size=8, score=RouterScore.SIGMOID, has_choice_bias=True)
    weight, x = torch.randn(8, HIDDEN, generator=torch.Generator().manual_seed(0)), rows(6)
    bias = torch.zeros(8)
    bias[5] = 10.0
    chosen, weights = Router(moe, weight, bias)(x)
    assert (chosen[:, 0] == 5).all()
    torch.testing.assert_close(weights[:, 0], (x @ weight[5]).sigmoid())


def test_gradients_reach_rows_and_router() -> None:
    layer, x = make("grouped"), rows(5).requires_grad_()
    layer.router.gate.weight.requires_grad_(True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0
    assert layer.router.gate.weight.grad is not None
    assert layer.router.gate.weight.grad.abs().sum() > 0
