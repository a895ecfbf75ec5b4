"""Ancestral sampling has exactly the law it is derived from: enumerated on a toy, compared with official scores."""

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from tests.decoding.hash_model import hash_model
from unmask.core.canvas import BoolArray, IntArray
from unmask.core.errors import ConfigError
from unmask.decoding import reference
from unmask.decoding.ancestral import Ancestral, FirstHitting, nucleus, posterior
from unmask.decoding.belief import Belief
from unmask.decoding.fixed_canvas import FixedCanvas
from unmask.decoding.randomness import Purpose, RandomStream
from unmask.decoding.rules import DecodingRule, Window, is_finished
from unmask.decoding.sampling import Sampling
from unmask.models.dit import subs_log_probs

GOLDENS = Path(__file__).parents[1] / "goldens"
MASK = 2
ONE = Sampling(temperature=1.0)


def window(size: int, *, align: int = 1, eos_ids: frozenset[int] = frozenset()) -> Window:
    return Window(size=size, mask_token_id=MASK, eos_ids=eos_ids, align=align)


# --- the pure functions ------------------------------------------------------------------------------------------


def test_posterior_by_hand() -> None:
    got = posterior(torch.tensor([[0.75, 0.25, 0.0]]), t=0.8, s=0.2, mask_token_id=MASK)
    torch.testing.assert_close(got, torch.tensor([[0.5625, 0.1875, 0.25]]))
    for t, s in [(0.0, 0.0), (0.5, 0.6), (1.1, 0.5), (0.5, -0.1)]:
        with pytest.raises(ConfigError, match="ancestral step"):
            posterior(torch.tensor([[1.0, 0.0, 0.0]]), t=t, s=s, mask_token_id=MASK)


def test_nucleus_by_hand() -> None:
    """The token that crosses p is dropped; the first one never is."""
    probabilities = torch.tensor([[0.15, 0.5, 0.05, 0.3]], dtype=torch.float64)
    wanted = {0.9: [0, 0.625, 0, 0.375], 0.97: [0.15 / 0.95, 0.5 / 0.95, 0, 0.3 / 0.95], 0.2: [0, 1, 0, 0]}
    for p, kept in wanted.items():
        torch.testing.assert_close(nucleus(probabilities, p), torch.tensor([kept], dtype=torch.float64))


def golden_cases(name: str) -> list[tuple[str, Tensor, Tensor, Mapping[str, Tensor], float]]:
    """(case, logits, ids fed, tensors, nucleus p or 1), one row for each position with a golden step."""
    folder = GOLDENS / name
    tensors = load_file(folder / "logits.safetensors")
    found = []
    for case in json.loads((folder / "cases.json").read_text())["cases"]:
        if "ancestral_step" in case:
            assert (case["ancestral_step"]["t"], case["ancestral_step"]["dt"]) == (0.6, 0.1)
            # BD3-LM gives the steps of the last block only, and its logits of one position more
            last = case.get("block_size")
            positions = case["positions"][:last]
            ids = torch.tensor(case["input_ids"])[:, positions]
            logits = tensors[case["tensor"]][:, :last]
            p = case.get("nucleus", {"p": 1.0})["p"]
            found.append((case["name"], logits.flatten(0, 1), ids.flatten(), tensors, p))
    assert len(found) == 3
    return found


@pytest.mark.parametrize("name", ["mdlm/small", "bd3lm/block4"])
def test_golden_steps(name: str) -> None:
    for case, logits, ids, tensors, p in golden_cases(name):
        clean = subs_log_probs(logits, ids, 257).exp()
        torch.testing.assert_close(clean, tensors[f"{case}.logprobs"].flatten(0, 1).exp(), atol=1e-5, rtol=0)
        if p < 1:
            clean = nucleus(clean.double(), p)
            wanted = tensors[f"{case}.nucleus_p0.9"].flatten(0, 1)
            torch.testing.assert_close(clean.float(), wanted, atol=1e-5, rtol=0)
        got = posterior(clean, t=0.6, s=0.5, mask_token_id=257).float()
        wanted = tensors[f"{case}.q_t0.6_dt0.1"].flatten(0, 1)
        # MDLM's scores are not divided by t
        torch.testing.assert_close(got, wanted / wanted.sum(-1, keepdim=True), atol=1e-5, rtol=0)
        assert (ids == 257).sum() >= 2, "the case steps from masks"


# --- the rules by hand -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Scripted(RandomStream):
    """Given numbers: one for the order and one for the token of each position."""

    order: Mapping[int, float] = field(default_factory=dict)
    token: Mapping[int, float] = field(default_factory=dict)

    def uniform(self, *, block: int, step: int, position: int, purpose: Purpose) -> float:
        return {Purpose.ORDER: self.order, Purpose.TOKEN: self.token}[purpose][position]


def belief_of(positions: list[int], probabilities: list[list[float]]) -> Belief:
    return Belief(
        logits_RV=torch.tensor(probabilities).log(),
        predicts_R=np.array(positions, np.int64),
        causal_R=np.zeros(len(positions), np.bool_),
    )


def test_ancestral_by_hand() -> None:
    """Steps end at 0.75, 0.5, 0.25 and 0: positions 1 and 3 lose their mask in the second, position 2 in the last."""
    rule = Ancestral(layout=FixedCanvas(mask_token_id=MASK), sampling=ONE, num_steps=4, min_time=0.0)
    random = Scripted(seed=0, order={1: 0.7, 2: 0.1, 3: 0.55}, token={1: 0.2, 2: 0.95, 3: 0.8})
    canvas = rule.begin(np.array([1]), 3)
    assert (canvas.ids_L.tolist(), canvas.open_L.tolist()) == ([1, 2, 2, 2], [False, True, True, True])
    assert (canvas.window_start, canvas.num_final, canvas.limit) == (0, 1, 4)
    even = [0.5, 0.5, 0.9]  # the mask's share does not count
    canvas = canvas.apply(rule.step(canvas, belief_of([1, 2, 3], [even, even, even]), random))
    assert (canvas.ids_L.tolist(), canvas.open_L.tolist()) == ([1, 0, 2, 1], [False, False, True, False])
    assert canvas.num_final == 2
    canvas = canvas.apply(rule.step(canvas, belief_of([2], [[0.9, 0.1, 0.9]]), random))
    assert canvas.ids_L.tolist() == [1, 0, 1, 1]
    assert is_finished(canvas, frozenset())


def test_what_is_left_at_the_end_of_time_takes_its_best_token() -> None:
    rule = Ancestral(layout=FixedCanvas(mask_token_id=MASK), sampling=ONE, num_steps=4, min_time=0.2)
    random = Scripted(seed=0, order={1: 0.19, 2: 0.01}, token={1: 0.99, 2: 0.99})
    canvas = rule.begin(np.array([1]), 2)
    canvas = canvas.apply(rule.step(canvas, belief_of([1, 2], [[0.6, 0.4, 0.1], [0.3, 0.4, 0.1]]), random))
    assert canvas.ids_L.tolist() == [1, 0, 1]


def test_first_hitting_by_hand() -> None:
    """Blocks of 2 at even positions; the latest time of the block is first, and nothing past the limit is decided."""
    rule = FirstHitting(window=window(2, align=2), sampling=ONE)
    random = Scripted(seed=0, order={1: 0.9, 2: 0.3, 3: 0.6, 4: 0.1, 5: 0.9}, token=dict.fromkeys(range(6), 0.6))
    canvas = rule.begin(np.array([1]), 4)
    assert (canvas.ids_L.tolist(), canvas.window_start) == ([1, 2], 0)
    canvas = canvas.apply(rule.step(canvas, belief_of([1], [[0.7, 0.3, 0.0]]), random))
    assert (canvas.ids_L.tolist(), canvas.window_start) == ([1, 0, 2, 2], 2)
    canvas = canvas.apply(rule.step(canvas, belief_of([2, 3], [[0.7, 0.3, 0.0], [0.5, 0.5, 0.0]]), random))
    assert (canvas.ids_L.tolist(), canvas.num_final) == ([1, 0, 2, 1], 2)
    canvas = canvas.apply(rule.step(canvas, belief_of([2], [[0.7, 0.3, 0.0]]), random))
    assert (canvas.ids_L.tolist(), canvas.num_final, canvas.window_start) == ([1, 0, 0, 1, 2, 2], 4, 4)
    canvas = canvas.apply(rule.step(canvas, belief_of([4, 5], [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]]), random))
    assert canvas.ids_L.tolist() == [1, 0, 0, 1, 1, 2]
    assert is_finished(canvas, frozenset())


def test_the_answer_ends_at_its_first_eos() -> None:
    rule = Ancestral(
        layout=FixedCanvas(mask_token_id=MASK, eos_ids=frozenset([1])), sampling=ONE, num_steps=2, min_time=0.0
    )
    random = Scripted(seed=0, order={1: 0.9, 2: 0.8, 3: 0.1}, token=dict.fromkeys(range(4), 0.5))
    canvas = rule.begin(np.array([1]), 3)
    rows = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]
    canvas = canvas.apply(rule.step(canvas, belief_of([1, 2, 3], rows), random))
    assert canvas.num_final == 3
    assert is_finished(canvas, frozenset([1])), "what stands behind an EOS need not be decided"


def test_nucleus_in_a_rule() -> None:
    """With p 0.9 the last quarter of the mass is dropped, so even the largest number draws the likelier token."""
    random = Scripted(seed=0, order={1: 0.9}, token={1: 0.99})
    for p, wanted in [(1.0, 1), (0.9, 0)]:
        rule = FirstHitting(window=window(1), sampling=ONE, nucleus_p=p)
        canvas = rule.begin(np.array([1]), 1)
        canvas = canvas.apply(rule.step(canvas, belief_of([1], [[0.75, 0.25, 0.9]]), random))
        assert canvas.ids_L[1] == wanted


@pytest.mark.parametrize(
    ("facts", "match"),
    [
        ({"num_steps": 0}, "num_steps"),
        ({"min_time": 1.0}, "min_time"),
        ({"nucleus_p": 0.0}, "nucleus_p"),
        ({"nucleus_p": 1.5}, "nucleus_p"),
    ],
)
def test_settings_that_make_no_sense(facts: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Ancestral(layout=FixedCanvas(mask_token_id=MASK), sampling=ONE, **facts)


# --- the law, exactly --------------------------------------------------------------------------------------------

JOINT = torch.tensor([[0.5, 0.25], [0.25, 0.0]], dtype=torch.float64)
"""p(x1, x2) over two tokens. Every marginal and conditional is a multiple of a twelfth, so twelve equally likely
numbers for each token reproduce them exactly."""
TWELFTHS = (np.arange(12) + 0.5) / 12


@cache
def clean_belief(ids: tuple[int, int]) -> Tensor:
    """[2, 3]: what a perfect model believes about each position, given those that are not masked."""
    rows = []
    for place in (0, 1):
        joint = JOINT if place == 0 else JOINT.T
        other = ids[1 - place]
        weights = joint.sum(1) if other == MASK else joint[:, other]
        rows.append(torch.cat((weights / weights.sum(), torch.zeros(1, dtype=torch.float64))))
    return torch.stack(rows)


def toy_model(ids_L: IntArray, visible_LL: BoolArray) -> Tensor:
    """Position 0 is the prompt; positions 1 and 2 follow the joint. The mask is the likeliest of all, if let in."""
    assert visible_LL[1:].all()
    return toy_logits((int(ids_L[1]), int(ids_L[2])))


@cache
def toy_logits(ids: tuple[int, int]) -> Tensor:
    logits = functional.pad(clean_belief(ids).log().float(), (0, 0, 1, 0))
    logits[:, MASK] = 9.0
    return logits


def answer(rule: DecodingRule, random: RandomStream) -> tuple[int, int]:
    ids, num_forwards = reference.generate(
        toy_model, rule, np.array([1]), max_tokens=2, eos_ids=frozenset(), random=random
    )
    assert num_forwards <= 2
    first, second = ids.tolist()
    return first, second


def law_of_chain(times: list[float], *, removes_noise: bool) -> Tensor:
    """The distribution after ancestral steps between the given times, by enumerating the states of the chain."""
    states = {(MASK, MASK): 1.0}
    for t, s in itertools.pairwise(times):
        after: dict[tuple[int, int], float] = {}
        for ids, mass in states.items():
            steps = posterior(clean_belief(ids), t=t, s=s, mask_token_id=MASK)
            for place in (0, 1):
                if ids[place] != MASK:
                    steps[place] = torch.eye(3, dtype=torch.float64)[ids[place]]
            for new in itertools.product(range(3), range(3)):
                share = float(steps[0, new[0]] * steps[1, new[1]])
                if share:
                    after[new] = after.get(new, 0.0) + mass * share
        states = after
    law = torch.zeros(2, 2, dtype=torch.float64)
    for ids, mass in states.items():
        best = clean_belief(ids).argmax(-1).tolist()
        final = [b if i == MASK else i for i, b in zip(ids, best, strict=True)]
        assert removes_noise or MASK not in ids
        law[final[0], final[1]] += mass
    return law


@pytest.mark.parametrize(
    ("num_steps", "min_time", "times"),
    [(2, 0.0, [1.0, 0.5, 0.0]), (2, 1 / 3, [1.0, 2 / 3, 1 / 3]), (1, 0.0, [1.0, 0.0])],
)
def test_ancestral_has_the_law_of_the_chain(num_steps: int, min_time: float, times: list[float]) -> None:
    """All equally likely numbers once: the rule's law, without sampling error."""
    rule = Ancestral(layout=FixedCanvas(mask_token_id=MASK), sampling=ONE, num_steps=num_steps, min_time=min_time)
    law = torch.zeros(2, 2, dtype=torch.float64)
    num_cells = num_steps + (min_time > 0)
    moments = (np.arange(num_cells) + 0.5) / num_cells
    for u1, u2, v1, v2 in itertools.product(moments, moments, TWELFTHS, TWELFTHS):
        ids = answer(rule, Scripted(seed=0, order={1: u1, 2: u2}, token={1: v1, 2: v2}))
        law[ids] += 1 / (num_cells**2 * 12 * 12)
    torch.testing.assert_close(law, law_of_chain(times, removes_noise=min_time > 0), atol=1e-12, rtol=0)


def test_the_law_of_the_chain_tends_to_the_target() -> None:
    """One step is the product of marginals, and the error halves with twice the steps."""
    errors = []
    for num_steps in (1, 8, 16, 32):
        times = [1 - k / num_steps for k in range(num_steps + 1)]
        errors.append(float((law_of_chain(times, removes_noise=False) - JOINT).abs().max()))
    product = torch.outer(JOINT.sum(1), JOINT.sum(0))
    assert errors[0] == pytest.approx(float((product - JOINT).abs().max()))
    assert errors == pytest.approx([errors[0] / n for n in (1, 8, 16, 32)])


def test_first_hitting_has_exactly_the_target_as_its_law() -> None:
    rule = FirstHitting(window=window(2), sampling=ONE)
    law = torch.zeros(2, 2, dtype=torch.float64)
    for (u1, u2), v1, v2 in itertools.product([(0.2, 0.7), (0.7, 0.2)], TWELFTHS, TWELFTHS):
        law[answer(rule, Scripted(seed=0, order={1: u1, 2: u2}, token={1: v1, 2: v2}))] += 1 / (2 * 12 * 12)
    torch.testing.assert_close(law, JOINT, atol=1e-12, rtol=0)


@pytest.mark.parametrize("first_hitting", [True, False])
def test_the_real_random_stream_gives_the_same_law(first_hitting: bool) -> None:
    num_seeds = 800
    rule = (
        FirstHitting(window=window(2), sampling=ONE)
        if first_hitting
        else Ancestral(layout=FixedCanvas(mask_token_id=MASK), sampling=ONE, num_steps=2, min_time=0.0)
    )
    wanted = JOINT if first_hitting else law_of_chain([1.0, 0.5, 0.0], removes_noise=False)
    counts = torch.zeros(2, 2, dtype=torch.float64)
    for seed in range(num_seeds):
        counts[answer(rule, RandomStream(seed=seed))] += 1
    errors = (wanted * (1 - wanted) / num_seeds).sqrt()
    assert ((counts / num_seeds - wanted).abs() <= 4 * errors).all()


# --- what always holds -------------------------------------------------------------------------------------------


@given(
    first_hitting=st.booleans(),
    num_steps=st.sampled_from([1, 3, 50]),
    min_time=st.sampled_from([0.0, 1e-5, 0.5]),
    nucleus_p=st.sampled_from([1.0, 0.9, 0.01]),
    temperature=st.sampled_from([0.0, 1.0, 2.0]),
    align=st.sampled_from([1, 4]),
    eos_ids=st.sampled_from([frozenset[int](), frozenset([5])]),
    prompt=st.lists(st.integers(0, 7), min_size=1, max_size=6),
    max_tokens=st.integers(1, 12),
    seed=st.integers(0, 2**32),
    spread=st.sampled_from([0.0, 2.0, 30.0]),
)
@settings(max_examples=50, deadline=None)
def test_everything_is_decided_and_nothing_is_the_mask(
    first_hitting: bool,
    num_steps: int,
    min_time: float,
    nucleus_p: float,
    temperature: float,
    align: int,
    eos_ids: frozenset[int],
    prompt: list[int],
    max_tokens: int,
    seed: int,
    spread: float,
) -> None:
    sampling = Sampling(temperature=temperature)
    rule: DecodingRule = Ancestral(
        layout=FixedCanvas(mask_token_id=MASK, eos_ids=eos_ids),
        sampling=sampling,
        num_steps=num_steps,
        min_time=min_time,
        nucleus_p=nucleus_p,
    )
    if first_hitting:
        blocks = window(4, align=align, eos_ids=eos_ids)
        rule = FirstHitting(window=blocks, sampling=sampling, nucleus_p=nucleus_p)

    def run() -> tuple[list[int], int]:
        ids, num_forwards = reference.generate(
            hash_model(seed, 8, spread),
            rule,
            np.array(prompt),
            max_tokens=max_tokens,
            eos_ids=eos_ids,
            random=RandomStream(seed=seed),
            align=align if first_hitting else 1,
        )
        return ids.tolist(), num_forwards

    ids, num_forwards = run()
    assert MASK not in ids
    assert 1 <= num_forwards <= (max_tokens if first_hitting else min(max_tokens, num_steps + 1))
    if not eos_ids:
        assert len(ids) == max_tokens
        assert num_forwards == max_tokens or not first_hitting
    assert run() == (ids, num_forwards)
