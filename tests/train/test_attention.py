import numpy as np
import pytest
import torch
from torch import Tensor

from unmask.models.transformer import masked_attention
from unmask.train.attention import tree_attention


def tree(num_prefix: int, lengths: list[int], seed: int) -> Tensor:
    """A random visibility matrix of that shape; every row sees itself."""
    total = num_prefix + sum(lengths)
    seen = torch.from_numpy(np.random.default_rng(seed).random((total, total)) < 0.5) | torch.eye(
        total, dtype=torch.bool
    )
    owner = torch.tensor([0] * num_prefix + [b for b, length in enumerate(lengths, 1) for _ in range(length)])
    return seen & ((owner[None] == 0) | (owner[None] == owner[:, None]))


@pytest.mark.parametrize(
    ("num_prefix", "lengths"), [(7, [5, 1, 9]), (0, [4, 6]), (3, [5]), (0, [1]), (1, [1, 1, 1]), (20, [3, 3])]
)
def test_equals_full_attention_under_the_mask_forward_and_backward(num_prefix: int, lengths: list[int]) -> None:
    seen = tree(num_prefix, lengths, seed=num_prefix)
    generator = torch.Generator().manual_seed(1)
    sizes = ((len(seen), 6, 8), (len(seen), 2, 8), (len(seen), 2, 8))
    results: list[list[Tensor]] = []
    weights = torch.randn(len(seen), 6, 8, generator=generator)
    inputs = [torch.randn(size, generator=generator) for size in sizes]
    for attend in (tree_attention(seen, num_prefix, lengths), masked_attention(seen)):
        leaves = [x.clone().requires_grad_() for x in inputs]
        out = attend(0, *leaves)
        (out * weights).sum().backward()
        results.append([out, *(leaf.grad for leaf in leaves if leaf.grad is not None)])
    assert len(results[0]) == len(results[1]) == 4
    for got, wanted in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-4)
