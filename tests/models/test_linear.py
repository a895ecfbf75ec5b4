"""A row's result depends on that row alone, bit for bit; and it is the right result."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from unmask.models.linear import Int8Linear, Int8Product, LinearFactory, PlainLinear, TiledLinear

pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per")  # of torch, once a process

# Input widths are multiples of 4, as in every checkpoint: fp32 rows at odd addresses can meet another kernel.
SIZES = [(576, 192), (36, 7), (64, 131), (4, 1), (16, 256)]


def weights(rows: int, columns: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator), torch.randn(rows, generator=generator)


def inputs(rows: int, columns: int, seed: int = 1) -> Tensor:
    """Rows of very different sizes, so that a shared scale would show."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=generator)
    return x * 10 ** torch.empty(rows, 1).uniform_(-4, 4, generator=generator)


@pytest.mark.parametrize("factory", [TiledLinear, Int8Linear])
@pytest.mark.parametrize(("columns", "rows"), SIZES)
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_row_alone_equals_the_row_among_any_others(
    factory: LinearFactory, columns: int, rows: int, with_bias: bool
) -> None:
    weight, bias = weights(rows, columns)
    layer = factory(weight, bias if with_bias else None)
    x = inputs(70, columns)
    whole = layer(x)
    for count in range(1, 71):
        assert torch.equal(layer(x[:count]), whole[:count]), count
        assert torch.equal(layer(x[70 - count :]), whole[70 - count :]), count
    order = torch.randperm(70, generator=torch.Generator().manual_seed(2))
    assert torch.equal(layer(x[order]), whole[order])


@pytest.mark.parametrize(("columns", "rows"), [(33, 7), (577, 4), (1, 1)])
def test_int8_rows_are_exact_at_odd_widths_too(columns: int, rows: int) -> None:
    layer, x = Int8Linear(*weights(rows, columns)), inputs(70, columns)
    whole = layer(x)
    for row in range(70):
        assert torch.equal(layer(x[row : row + 1])[0], whole[row])


@pytest.mark.parametrize("factory", [TiledLinear, Int8Linear])
def test_neighbours_of_any_size_do_not_matter(factory: LinearFactory) -> None:
    layer = factory(weights(24, 40)[0], None)
    x = torch.randn(3, 40, generator=torch.Generator().manual_seed(0))
    alone = layer(x[:1])
    for neighbour in (0.0, 1e-30, 1e30):
        assert torch.equal(layer(torch.cat((x[:1], torch.full((5, 40), neighbour))))[:1], alone)


@pytest.mark.parametrize("factory", [TiledLinear, Int8Linear, PlainLinear])
def test_no_rows(factory: LinearFactory) -> None:
    assert factory(*weights(24, 40))(torch.empty(0, 40)).shape == (0, 24)


@pytest.mark.parametrize("factory", [TiledLinear, PlainLinear])
@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_fp32_layers_equal_torch(factory: LinearFactory, columns: int, rows: int) -> None:
    weight, bias = weights(rows, columns)
    x = torch.randn(37, columns, generator=torch.Generator().manual_seed(3))
    wanted = functional.linear(x.double(), weight.double(), bias.double()).float()
    torch.testing.assert_close(factory(weight, bias)(x), wanted, atol=1e-5 * columns**0.5, rtol=1e-5)


@pytest.mark.parametrize(("columns", "rows"), SIZES)
def test_int8_error_is_within_the_rounding_bound(columns: int, rows: int) -> None:
    """Half a step of each factor: |x| |w| (|x|max / 254 + |w|max / 126), summed over the inputs."""
    weight, bias = weights(rows, columns)
    x = inputs(70, columns)
    error = (Int8Linear(weight, bias)(x).double() - functional.linear(x.double(), weight.double(), bias.double())).abs()
    step_x = x.double().abs().amax(1, keepdim=True) / 127 / 2
    step_w = weight.double().abs().amax(1, keepdim=True) / 63 / 2
    magnitude = x.double().abs().sum(1, keepdim=True)
    bound = step_x * weight.double().abs().sum(1) + magnitude * step_w.T + columns * step_x * step_w.T
    assert (error <= bound * 1.001 + 1e-6).all()


def test_int8_is_close_enough_to_be_useful() -> None:
    weight, _ = weights(128, 576)
    x = torch.randn(50, 576, generator=torch.Generator().manual_seed(1))
    got, wanted = Int8Linear(weight, None)(x), x @ weight.T
    assert ((got - wanted).norm() / wanted.norm()).item() < 0.02


def test_int8_exact_where_nothing_is_rounded() -> None:
    """The largest sums of both signs: a kernel that adds pairs in 16 bits would saturate with wider weights."""
    weight = torch.full((8, 1024), 63.0)
    weight[1] *= -1
    weight[2, ::2] *= -1
    x = torch.full((4, 1024), 127.0)
    x[1] *= -1
    x[2, ::2] *= -1
    torch.testing.assert_close(Int8Product(weight)(x), x @ weight.T, rtol=1e-6, atol=0)


def test_zero_rows_and_zero_weights() -> None:
    weight, bias = weights(8, 16)
    weight[3] = 0
    layer = Int8Linear(weight, bias)
    assert torch.equal(layer(torch.zeros(3, 16)), bias.expand(3, 8))
    assert torch.equal(layer(torch.ones(2, 16))[:, 3], bias[3].expand(2))


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e10, 1e30])
def test_extreme_inputs_stay_finite(scale: float) -> None:
    weight, _ = weights(8, 16)
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(0)) * scale
    got = Int8Product(weight)(x)
    assert got.isfinite().all()
    if scale >= 1e-10:
        torch.testing.assert_close(got / scale, Int8Product(weight)(x / scale), rtol=1e-4, atol=1e-4)


def test_only_plain_layers_are_trainable() -> None:
    weight, bias = weights(4, 4)

    def trainable(layer: nn.Module) -> bool:
        return any(parameter.requires_grad for parameter in layer.parameters())

    assert trainable(PlainLinear(weight, bias))
    assert not trainable(TiledLinear(weight, bias))
    assert not trainable(Int8Linear(weight, bias))


@pytest.mark.parametrize("num_rows", [1, 15, 64, 65, 100, 200])
def test_wide_tiles_keep_the_bits_of_single_rows(num_rows: int) -> None:
    generator = torch.Generator().manual_seed(1)
    layer = TiledLinear(torch.randn(96, 128, generator=generator), torch.randn(96, generator=generator))
    rows = torch.randn(num_rows, 128, generator=generator)
    together = layer(rows)
    assert all(torch.equal(layer(rows[i : i + 1])[0], together[i]) for i in range(num_rows))
