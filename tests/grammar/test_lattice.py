"""Lattices against the enumeration of every filling."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pytest

from tests.grammar.brute import EOS, FILLER, Toy, draw_toy, log_softmax
from unmask.core.errors import EngineError
from unmask.grammar.build import literal
from unmask.grammar.lattice import Lattice, reduce_row
from unmask.grammar.network import OPEN, Network
from unmask.grammar.tokens import Vocabulary, classify

T = TypeVar("T")


def make_network(toy: Toy) -> Network:
    return Network(classes=classify(toy.automaton, toy.vocabulary, eos_ids=[EOS], filler_ids=[FILLER]))


def make_lattice(
    network: Network, logits_WV: np.ndarray, room: int, decided: dict[int, int] | None = None, temperature: float = 1.0
) -> Lattice:
    decided = decided or {}
    classes = network.classes
    final_S = (classes.distance_S >= 0) & (classes.distance_S <= room)
    width = len(logits_WV)
    evidence = [int(classes.class_V[decided[i]]) if i in decided else OPEN for i in range(width)]
    layers = network.layers(classes.start, evidence, final_S)
    rows = [
        None
        if i in decided
        else reduce_row(logits_WV[i], network.select(np.unique(layers[i].group_P)), temperature, logits_WV.shape[1])
        for i in range(width)
    ]
    return Lattice(network=network, start=classes.start, final_S=final_S, layers_W=layers, rows_W=rows)


@pytest.mark.parametrize("seed", range(30))
def test_best_sum_and_marginals_equal_the_enumeration(seed: int) -> None:
    rng = np.random.default_rng(seed)
    toy = draw_toy(rng)
    width, room = int(rng.integers(1, 5)), int(rng.integers(0, 4))
    logits_WV = rng.normal(size=(width, toy.size)) * rng.choice([0.1, 3.0, 30.0])
    fillings = list(toy.fillings(width, room))
    decided: dict[int, int] = {}
    if fillings:
        sample = fillings[int(rng.integers(len(fillings)))]
        decided = {i: sample[i] for i in range(width) if rng.random() < 0.3}
        fillings = [tokens for tokens in fillings if all(tokens[i] == decided[i] for i in decided)]
    else:
        with pytest.raises(EngineError, match="no text"):
            make_lattice(make_network(toy), logits_WV, room)
        return
    open_positions = [i for i in range(width) if i not in decided]
    log_p_WV = log_softmax(logits_WV)
    scores = np.array([sum(log_p_WV[i, tokens[i]] for i in open_positions) for tokens in fillings])
    lattice = make_lattice(make_network(toy), logits_WV, room, decided)

    best = tuple(decided[i] if token is None else token for i, token in enumerate(lattice.best()))
    assert best in fillings
    assert scores[fillings.index(best)] == pytest.approx(scores.max(), abs=1e-9)
    log_z = np.logaddexp.reduce(scores)
    assert lattice.log_z == pytest.approx(log_z, abs=1e-9)
    for i in open_positions:
        for token in range(toy.size):
            weight = np.exp(scores[[tokens[i] == token for tokens in fillings]] - log_z).sum()
            assert np.exp(lattice.log_marginal(i, token)) == pytest.approx(weight, abs=1e-9)


def constant_parts(outcome: Callable[[float], T], low: float, high: float) -> list[tuple[T, float, float]]:
    """The intervals on which a function is constant, if no value comes in two of them; ends to 1e-12."""
    if outcome(low) == outcome(high):
        return [(outcome(low), low, high)]
    if high - low < 1e-12:
        return [(outcome(low), low, low), (outcome(high), high, high)]
    middle = (low + high) / 2
    parts = constant_parts(outcome, low, middle)
    for value, first, last in constant_parts(outcome, middle, high):
        if parts[-1][0] == value:
            parts[-1] = (value, parts[-1][1], last)
        else:
            parts.append((value, first, last))
    return parts


def law_of_draws(lattice: Lattice, width: int) -> dict[tuple[int | None, ...], float]:
    """The exact probability of each filling if the uniforms are uniform: volumes of boxes, found by bisection."""
    law: dict[tuple[int | None, ...], float] = {}
    almost_one = float(np.nextafter(1.0, 0.0))

    def divide(index: int, uniforms_W2: np.ndarray, volume: float) -> None:
        if index == width:
            tokens = tuple(lattice.draw(uniforms_W2))
            law[tokens] = law.get(tokens, 0.0) + volume
            return

        def token(state_uniform: float, token_uniform: float) -> int | None:
            uniforms_W2[index] = state_uniform, token_uniform
            return lattice.draw(uniforms_W2)[index]

        for _, low, high in constant_parts(lambda u: token(u, 0.0), 0.0, almost_one):
            inside = (low + high) / 2
            for _, first, last in constant_parts(lambda u, inside=inside: token(inside, u), 0.0, almost_one):
                uniforms_W2[index] = inside, (first + last) / 2
                divide(index + 1, uniforms_W2, volume * (high - low) * (last - first))

    divide(0, np.zeros((width, 2)), 1.0)
    return law


@pytest.mark.parametrize("temperature", [1.0, 0.5, 3.0])
def test_draws_follow_the_enumerated_law(temperature: float) -> None:
    rng = np.random.default_rng(5)
    toy = draw_toy(rng)
    while len(list(toy.fillings(2, 1))) < 5:
        toy = draw_toy(rng)
    logits_WV = rng.normal(size=(2, toy.size))
    fillings = list(toy.fillings(2, 1))
    log_p_WV = log_softmax(logits_WV / temperature)
    scores = np.array([sum(log_p_WV[i, token] for i, token in enumerate(tokens)) for tokens in fillings])
    law = dict(zip(fillings, np.exp(scores - np.logaddexp.reduce(scores)), strict=True))
    drawn = law_of_draws(make_lattice(make_network(toy), logits_WV, 1, temperature=temperature), 2)
    assert drawn == pytest.approx(law, abs=1e-9)


def test_the_extreme_uniforms_never_take_what_cannot_stand() -> None:
    rng = np.random.default_rng(8)
    for _ in range(20):
        toy = draw_toy(rng)
        if not (fillings := set(toy.fillings(3, 2))):
            continue
        lattice = make_lattice(make_network(toy), rng.normal(size=(3, toy.size)) * 50, 2)
        for uniform in (0.0, np.nextafter(1.0, 0.0)):
            assert tuple(lattice.draw(np.full((3, 2), uniform))) in fillings


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [-np.inf, np.inf, np.nan])
def test_excluded_and_broken_logits_leave_a_way(dtype: type[np.floating], bad: float) -> None:
    """ "ab" is the only text: its tokens win even if the model rules them out at a position or everywhere."""
    toy = Toy(literal(b"ab"), Vocabulary((None, None, None, b"a", b"b", b"ab")))
    network = make_network(toy)
    for logits_WV in (np.zeros((3, 6), dtype=dtype), np.full((3, 6), bad, dtype=dtype)):
        logits_WV[:2, 3:] = bad
        lattice = make_lattice(network, logits_WV, 0)
        best = tuple(token for token in lattice.best() if token is not None)
        assert toy.accepts(best, 0)
        assert not np.isnan(lattice.log_z)
        assert 0 <= np.exp(lattice.log_marginal(0, best[0])) <= 1 + 1e-9


def test_an_excluded_token_is_not_chosen_where_another_fits() -> None:
    toy = Toy(literal(b"ab"), Vocabulary((None, None, None, b"a", b"b", b"ab")))
    logits_WV = np.zeros((3, 6))
    logits_WV[0, 5] = -np.inf
    lattice = make_lattice(make_network(toy), logits_WV, 0)
    assert lattice.best() == [3, 4, EOS]
    assert np.exp(lattice.log_marginal(0, 5)) == 0.0


def test_far_apart_weights_lose_nothing() -> None:
    """A product of tiny probabilities is still a way if it is the only one."""
    toy = Toy(literal(b"a" * 40), Vocabulary((None, None, None, b"a", b"b", b"ab")))
    logits_WV = np.zeros((40, 6))
    logits_WV[:, 3] = -900.0
    lattice = make_lattice(make_network(toy), logits_WV, 0)
    assert lattice.best() == [3] * 40
    assert lattice.log_z == pytest.approx(40 * (-900 - np.log(5)), rel=1e-12)
    assert lattice.log_marginal(20, 3) == pytest.approx(0.0, abs=1e-9)


def test_forced_positions_are_those_with_one_token_in_all_fillings() -> None:
    rng = np.random.default_rng(11)
    seen = set[bool]()
    for _ in range(30):
        toy = draw_toy(rng)
        if not (fillings := list(toy.fillings(3, 1))):
            continue
        lattice = make_lattice(make_network(toy), np.zeros((3, toy.size)), 1)
        for i in range(3):
            forced = lattice.is_forced(i)
            assert forced == (len({tokens[i] for tokens in fillings}) == 1)
            seen.add(forced)
    assert seen == {True, False}


def test_decided_tokens_outside_the_language_are_refused() -> None:
    toy = Toy(literal(b"ab"), Vocabulary((None, None, None, b"a", b"b", b"ab")))
    with pytest.raises(EngineError, match="decided tokens"):
        make_lattice(make_network(toy), np.zeros((2, 6)), 0, {0: 4})


def test_marginal_of_a_decided_position_is_an_error() -> None:
    toy = Toy(literal(b"ab"), Vocabulary((None, None, None, b"a", b"b", b"ab")))
    lattice = make_lattice(make_network(toy), np.zeros((2, 6)), 0, {0: 3})
    with pytest.raises(ValueError, match="decided"):
        lattice.log_marginal(0, 3)
