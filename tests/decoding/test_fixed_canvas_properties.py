"""What every rule of fully bidirectional models promises, over settings, prompts, holes and random models."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.decoding.hash_model import hash_model
from unmask.core.canvas import Canvas, Delta, IntArray
from unmask.core.plan import Reads
from unmask.decoding import reference
from unmask.decoding.adaptive import Credit, EntropyBounded, Hierarchical
from unmask.decoding.belief import Belief
from unmask.decoding.dream import Dream, DreamBlocks, DreamThreshold
from unmask.decoding.fixed_canvas import FixedCanvas
from unmask.decoding.low_confidence import LowConfidence
from unmask.decoding.parallel import Parallel
from unmask.decoding.random_keep import RandomKeep
from unmask.decoding.randomness import RandomStream
from unmask.decoding.remask import Remask, Revision
from unmask.decoding.sampling import Sampling

VOCAB, MASK = 10, 2
Rule = LowConfidence | Parallel | Dream | DreamThreshold | DreamBlocks | RandomKeep | Hierarchical | Credit | Any


def has_parity(rule: Rule) -> bool:
    return getattr(rule, "parity", False)


class Watched:
    """A rule that runs another one, from a given canvas if there is one, and checks each of its steps."""

    def __init__(self, rule: Rule, first: Canvas | None) -> None:
        self.rule, self.first, self.num_steps = rule, first, 0

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        canvas = self.rule.begin(prompt_ids, max_tokens)
        assert canvas.ids_L.tolist() == [*prompt_ids.tolist(), *[MASK] * max_tokens]
        assert canvas.open_L.tolist() == [False] * len(prompt_ids) + [True] * max_tokens
        assert (canvas.window_start, canvas.num_final, canvas.limit) == (0, len(prompt_ids), canvas.length)
        return self.first or canvas

    def reads(self, canvas: Canvas) -> Reads:
        reads = self.rule.reads(canvas)
        assert reads.predicts_R.size, "a forward that reads nothing is taken for a piece of the prompt"
        assert not reads.causal_R.any()
        if not has_parity(self.rule):
            assert canvas.open_L[reads.predicts_R].all(), "a decided position is read"
        assert (np.diff(reads.predicts_R) > 0).all()
        return reads

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        self.num_steps += 1
        assert self.num_steps < 300, "an endless loop"
        twin = Belief(logits_RV=belief.logits_RV.clone(), predicts_R=belief.predicts_R, causal_R=belief.causal_R)
        before = (canvas.ids_L.copy(), canvas.open_L.copy())
        delta, again = self.rule.step(canvas, belief, random), self.rule.step(canvas, twin, random)
        assert (delta.ids_W.tolist(), delta.memory) == (again.ids_W.tolist(), again.memory), "not pure"
        assert delta.positions_W.tolist() == again.positions_W.tolist()
        assert (before[0] == canvas.ids_L).all()
        assert (before[1] == canvas.open_L).all()
        after = canvas.apply(delta)  # raises unless the delta keeps its contract
        hash(delta.memory)
        assert after.window_start == 0
        assert after.length == canvas.length
        assert (after.ids_L[after.open_L] == MASK).all()
        if isinstance(self.rule, Remask):
            assert isinstance(delta.memory, Revision)
            assert after.num_final == canvas.num_final or delta.memory.time >= self.rule.steps
            return delta
        assert canvas.open_L[delta.positions_W].all(), "a decided position was written"
        assert set(delta.positions_W.tolist()) <= set(range(canvas.num_final, canvas.limit))
        if not has_parity(self.rule):
            assert not delta.open_W.any()
            assert delta.positions_W.size, "no progress"
            assert (delta.ids_W != MASK).all(), "the mask became text"
        return delta


@dataclass(frozen=True)
class Case:
    rule: Rule
    shift: int
    prompt: tuple[int, ...]
    max_tokens: int
    holes: tuple[bool, ...] | None
    seed: int
    spread: float

    @property
    def first(self) -> Canvas | None:
        if self.holes is None:
            return None
        holes = np.array(self.holes)
        holes[0] = False
        holes[-1] = True
        text = np.resize(np.array(self.prompt), holes.shape)
        return FixedCanvas(mask_token_id=MASK).with_holes(text, holes)

    def run(self, *, watched: bool = False) -> tuple[list[int], int]:
        eos_ids = frozenset[int]() if self.holes or has_parity(self.rule) else self.rule.layout.eos_ids
        ids, num_forwards = reference.generate(
            hash_model(self.seed, VOCAB, self.spread),
            Watched(self.rule, self.first) if watched else self.rule,
            np.array(self.prompt),
            max_tokens=self.max_tokens,
            eos_ids=eos_ids,
            random=RandomStream(seed=self.seed),
            logit_shift=self.shift,
        )
        return ids.tolist(), num_forwards


samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.0, 0.7, 2.0]),
    top_p=st.sampled_from([1.0, 0.8, 0.01]),
    top_k=st.sampled_from([0, 1, 3, 99]),
    banned_ids=st.sampled_from([(), (7,)]),
)
blocks, steps, parity = st.integers(1, 9), st.integers(0, 12), st.booleans()
TABLE: dict[str, tuple[type[Any], dict[str, st.SearchStrategy[Any]]]] = {
    "low confidence": (
        LowConfidence,
        {
            "block_length": blocks,
            "steps_per_block": steps,
            "order": st.sampled_from(["low_confidence", "random"]),
            "schedule": st.sampled_from(["even", "linear"]),
            "late_ids": st.sampled_from([(), (5, 6)]),
            "parity": parity,
        },
    ),
    "parallel": (Parallel, {"block_length": blocks, "threshold": st.sampled_from([0.3, 0.9]), "parity": parity}),
    "parallel by factor": (Parallel, {"block_length": blocks, "factor": st.sampled_from([0.2, 1.0]), "parity": parity}),
    "parallel by quota": (Parallel, {"block_length": blocks, "steps_per_block": st.integers(1, 9), "parity": parity}),
    "dream": (
        Dream,
        {
            "algorithm": st.sampled_from(["origin", "maskgit_plus", "topk_margin", "entropy"]),
            "steps": steps,
            "eps": st.sampled_from([1e-3, 0.2]),
            "order_temperature": st.sampled_from([0.0, 0.5]),
            "parity": parity,
        },
    ),
    "dream by threshold": (
        DreamThreshold,
        {"steps": st.integers(1, 9), "threshold": st.sampled_from([0.3, 0.9]), "parity": parity},
    ),
    "dream in blocks": (
        DreamBlocks,
        {"block_length": blocks, "threshold": st.sampled_from([0.3, 0.9]), "parity": parity},
    ),
    "dream in scheduled blocks": (
        DreamBlocks,
        {"block_length": blocks, "threshold": st.none(), "steps_per_block": st.integers(2, 9), "parity": parity},
    ),
    "random keep": (RandomKeep, {"steps": st.integers(1, 20), "parity": parity}),
    "hierarchical": (Hierarchical, {"block_length": blocks, "low_threshold": st.sampled_from([0.2, 0.5])}),
    "credit": (Credit, {"block_length": blocks, "threshold": st.sampled_from([0.3, 0.9])}),
    "entropy bounded": (EntropyBounded, {"block_length": blocks, "gamma": st.sampled_from([0.0, 0.5, 3.0])}),
    "remask": (
        Remask,
        {
            "steps": st.integers(1, 20),
            "eta": st.sampled_from([0.0, 0.3, 1.0]),
            "strategy": st.sampled_from(["cap", "rescale", "confidence"]),
            "switch": st.sampled_from([0.4, 1.0]),
        },
    ),
}
layouts = st.builds(
    FixedCanvas,
    mask_token_id=st.just(MASK),
    eos_ids=st.sampled_from([frozenset[int](), frozenset([5]), frozenset([5, 0, 9])]),
)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    make, fields = TABLE[draw(st.sampled_from(sorted(TABLE)))]
    return make(layout=draw(layouts), sampling=draw(samplings), **{name: draw(value) for name, value in fields.items()})


cases = st.builds(
    Case,
    rule=rules(),
    shift=st.sampled_from([0, 1]),
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9).map(tuple),
    max_tokens=st.integers(1, 14),
    holes=st.none() | st.lists(st.booleans(), min_size=2, max_size=14).map(tuple),
    seed=st.integers(0, 2**32),
    spread=st.sampled_from([0.0, 1.0, 4.0, 30.0]),
)


def most_forwards(case: Case) -> int:
    """The bound on a run's forwards: the schedule where there is one, else one for each position."""
    length = case.max_tokens if case.first is None else int(case.first.open_L.sum())
    if isinstance(case.rule, Remask):
        return case.rule.steps
    if not has_parity(case.rule):
        return length
    if isinstance(case.rule, LowConfidence) and case.rule.steps_per_block:
        total = case.max_tokens if case.first is None else case.first.length
        return -(-total // case.rule.block_length) * case.rule.steps_per_block
    if isinstance(case.rule, Dream | RandomKeep):
        return case.rule.steps or (case.max_tokens if case.first is None else case.first.length)
    if isinstance(case.rule, DreamBlocks):
        return 2 * length + 9 * length  # the schedule of a block may idle
    return length


@given(cases)
@settings(max_examples=300, deadline=None)
def test_every_rule_keeps_its_promises(case: Case) -> None:
    if case.holes is not None:
        case = replace(case, rule=replace(case.rule, layout=FixedCanvas(mask_token_id=MASK)))
    ids, num_forwards = case.run(watched=True)
    assert 1 <= num_forwards <= most_forwards(case)
    if case.first is not None:
        assert len(ids) == case.first.length
        assert (np.array(ids)[~case.first.open_L] == case.first.ids_L[~case.first.open_L]).all()
        return
    stops = frozenset[int]() if has_parity(case.rule) else case.rule.layout.eos_ids
    assert not stops & set(ids)
    assert has_parity(case.rule) or MASK not in ids
    assert len(ids) <= case.max_tokens
    if not stops:
        assert len(ids) == case.max_tokens


@given(rules())
@settings(max_examples=60, deadline=None)
def test_equal_settings_are_equal_values(rule: Rule) -> None:
    twin = type(rule)(**{field: getattr(rule, field) for field in rule.__dataclass_fields__})
    assert rule == twin
    assert hash(rule) == hash(twin)


@pytest.mark.parametrize("name", sorted(name for name, (_, fields) in TABLE.items() if "parity" in fields))
@given(data=st.data())
@settings(max_examples=6, deadline=None)
def test_a_model_that_insists_on_the_mask_cannot_hang_parity(name: str, data: st.DataObject) -> None:
    make, fields = TABLE[name]
    drawn = {field: data.draw(value) for field, value in fields.items()} | {"parity": True}
    rule = make(layout=FixedCanvas(mask_token_id=MASK), sampling=Sampling(), **drawn)

    def model(ids_L: IntArray, visible_LL: Any) -> Any:
        logits_LV = hash_model(5, VOCAB)(ids_L, visible_LL)
        logits_LV[:, MASK] = 40.0
        return logits_LV

    ids, _ = reference.generate(
        model, rule, np.array([1]), max_tokens=7, eos_ids=frozenset(), random=RandomStream(seed=0)
    )
    assert ids.tolist() == [MASK] * 7
