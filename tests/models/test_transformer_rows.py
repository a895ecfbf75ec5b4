"""Elementwise functions of many rows give each row what it gets alone, whatever the number of threads."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from unmask.models.transformer import by_rows


def gelu_tanh(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


FUNCTIONS: list[Callable[[Tensor], Tensor]] = [functional.silu, gelu_tanh, torch.sigmoid]


@pytest.fixture(params=[1, 3, 7])
def num_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("width", [256, 1536, 11008])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_row_among_many_is_the_row_alone(function: Callable[[Tensor], Tensor], width: int, num_threads: int) -> None:
    """Seven threads share 130 rows of 1536 values in uneven pieces; without care some of these values differ."""
    x = torch.randn(130, width, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(by_rows(function, x), torch.cat([by_rows(function, row) for row in x.split(1)]))


def test_gradients_pass() -> None:
    x = torch.randn(64, 1024, requires_grad=True)
    by_rows(functional.silu, x).sum().backward()
    assert x.grad is not None
