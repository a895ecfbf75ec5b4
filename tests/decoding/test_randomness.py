from itertools import product

import numpy as np
import pytest

from unmask.decoding.randomness import Purpose, RandomStream

KNOWN = [0.8133540609793564, 0.0751511510959112, 0.654829510352994]


def draw(seed: int = 0, choice: int = 0, block: int = 0, step: int = 0, position: int = 0) -> float:
    stream = RandomStream(seed=seed, choice=choice)
    return stream.uniform(block=block, step=step, position=position, purpose=Purpose.TOKEN)


def test_a_draw_does_not_depend_on_other_draws() -> None:
    stream = RandomStream(seed=7)
    keys = list(product(range(3), range(3), range(5)))

    def numbers(order: list[tuple[int, int, int]]) -> dict[tuple[int, int, int], float]:
        return {
            (block, step, position): stream.uniform(block=block, step=step, position=position, purpose=Purpose.TOKEN)
            for block, step, position in order
        }

    assert numbers(keys) == numbers(keys[::-1])


def test_every_part_of_the_key_counts() -> None:
    keys = list(product(range(4), range(3), range(3), range(3), range(6)))
    assert len({draw(*key) for key in keys}) == len(keys)


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**63 + 1024, 2**64 - 2])
def test_neighbouring_seeds_differ_at_any_size(seed: int) -> None:
    assert draw(seed) != draw(seed + 1)


def test_negative_seeds_are_seeds() -> None:
    numbers = {draw(seed) for seed in range(-50, 50)}
    assert len(numbers) == 100
    assert all(0.0 <= number < 1.0 for number in numbers)


def test_seeds_count_modulo_2_to_the_64() -> None:
    assert draw(-1) == draw(2**64 - 1)
    assert draw(5 + 2**70) == draw(5)


def test_known_numbers() -> None:
    """Replays depend on these; a new numpy that changes them is a breaking change."""
    assert [draw(0), draw(1), draw(-1)] == KNOWN


def test_draws_are_uniform() -> None:
    numbers = np.array([draw(seed=3, position=position, step=step) for position in range(80) for step in range(50)])
    observed, _ = np.histogram(numbers, bins=20, range=(0, 1))
    assert ((observed - 200.0) ** 2 / 200.0).sum() < 43.8  # chi-square, 19 degrees of freedom, p = 0.001
