"""What every rule of a block-causal model promises, over blocks, shifts, samplers, presets and random models."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.decoding.hash_model import hash_model
from unmask.core.canvas import Canvas, Delta, IntArray
from unmask.core.errors import ConfigError
from unmask.core.plan import Reads
from unmask.decoding import reference
from unmask.decoding.bd3lm_schedule import ScheduledBlocks
from unmask.decoding.belief import Belief
from unmask.decoding.editing import EditThresholds, Floor, Llada20, Llada21
from unmask.decoding.fast_dllm_v2 import FastDllmV2, SubBlocks
from unmask.decoding.randomness import RandomStream
from unmask.decoding.rules import DecodingRule, Window, is_finished
from unmask.decoding.sampling import Sampling
from unmask.decoding.sdar import Sdar, SdarSchedule, Strategy

VOCAB, MASK = 10, 2
Rule = Sdar | Llada20 | Llada21 | FastDllmV2 | ScheduledBlocks


@dataclass
class Watched:
    """A rule that runs another one and checks each of its steps."""

    rule: Rule
    deciding_steps: int = 0

    def reads(self, canvas: Canvas) -> Reads:
        reads = self.rule.reads(canvas)
        assert reads.predicts_R.size, "a forward that nobody reads"
        return reads

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        canvas = self.rule.begin(prompt_ids, max_tokens)
        assert canvas.ids_L[: len(prompt_ids)].tolist() == prompt_ids.tolist()
        assert canvas.num_final == canvas.prompt_length == len(prompt_ids)
        assert canvas.limit == len(prompt_ids) + max_tokens
        self.check(canvas)
        return canvas

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        twin = replace(belief, logits_RV=belief.logits_RV.clone())
        delta = self.rule.step(canvas, belief, random)
        again = self.rule.step(canvas, twin, random)
        assert delta.ids_W.tolist() == again.ids_W.tolist(), "not a function of its arguments"
        assert (delta.num_final, delta.memory) == (again.num_final, again.memory)
        after = canvas.apply(delta)  # raises unless the delta keeps its contract
        self.check(after)
        first = max(canvas.window_start, canvas.prompt_length)
        assert (delta.positions_W >= first).all(), "outside the block"
        assert ((delta.ids_W == MASK) == delta.open_W).all(), "the mask became text"
        self.deciding_steps += bool((~delta.open_W).any())
        if not self.rule.parity:
            self.check_default(canvas, delta, after)
        return delta

    def check(self, canvas: Canvas) -> None:
        size = self.rule.window.size
        assert canvas.window_start % size == 0 or canvas.num_final >= canvas.limit
        assert canvas.length - canvas.window_start in range(size + 1)
        assert (canvas.ids_L[canvas.open_L] == MASK).all()

    def check_default(self, canvas: Canvas, delta: Delta, after: Canvas) -> None:
        decided = delta.positions_W[~delta.open_W]
        assert (decided < canvas.limit).all(), "past the limit"
        if isinstance(self.rule, Llada21):
            moved = after.window_start > canvas.window_start or is_finished(after, self.rule.window.eos_ids)
            assert moved or after.num_final == canvas.num_final, "final before its block is done"
        else:
            inside = delta.positions_W[delta.positions_W < canvas.length]
            assert canvas.open_L[inside].all(), "a decided position was written"
            assert decided.size, "no progress"
            ends = np.flatnonzero(np.isin(canvas.ids_L, list(self.rule.window.eos_ids)) & ~canvas.open_L)
            ends = ends[ends >= canvas.prompt_length]
            assert not ends.size or (decided < ends[0]).all(), "behind a decided EOS"


@dataclass(frozen=True)
class Case:
    rule: Rule
    shift: int
    prompt: tuple[int, ...]
    max_tokens: int
    seed: int
    spread: float

    def run(self, rule: DecodingRule | None = None) -> tuple[list[int], int]:
        ids, num_forwards = reference.generate(
            hash_model(self.seed, VOCAB, self.spread),
            rule or self.rule,
            np.array(self.prompt),
            max_tokens=self.max_tokens,
            eos_ids=self.rule.window.eos_ids,
            random=RandomStream(seed=self.seed),
            align=self.rule.window.align,
            logit_shift=self.shift,
        )
        return ids.tolist(), num_forwards

    @property
    def most_forwards(self) -> int:
        rule, size = self.rule, self.rule.window.size
        num_prompt = len(self.prompt)
        blocks = -(-(num_prompt + self.max_tokens) // size) - num_prompt // size
        if isinstance(rule, Llada21):
            regular = size + rule.thresholds.max_edit_steps + 1
            return blocks * regular * (5 if rule.parity else 1)
        if not rule.parity:
            return self.max_tokens
        if isinstance(rule, Sdar):
            return blocks * (rule.schedule.num_steps + 1)
        if isinstance(rule, Llada20):
            return blocks * rule.floor.num_steps
        return blocks * (size + 1 if isinstance(rule, FastDllmV2) else rule.num_steps + 1)


samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.0, 0.7, 2.0]),
    top_p=st.sampled_from([1.0, 0.8, 0.01]),
    top_k=st.sampled_from([0, 1, 3, 99]),
)
thresholds = st.sampled_from([0.0, 0.3, 0.6, 0.95, 1.0])
numbers_of_steps = st.integers(1, 6)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    size = draw(st.sampled_from([2, 4]))
    eos_ids = draw(st.sampled_from([frozenset[int](), frozenset([5]), frozenset([5, 0, 9])]))
    shared: dict[str, Any] = {
        "window": Window(size=size, mask_token_id=MASK, eos_ids=eos_ids, align=size),
        "sampling": draw(samplings),
        "parity": draw(st.booleans()),
    }
    kind = draw(st.sampled_from([Sdar, Llada20, Llada21, FastDllmV2, ScheduledBlocks]))
    if kind is Sdar:
        known = [strategy for strategy in Strategy if not shared["parity"] or strategy is not Strategy.ENTROPY_BOUNDED]
        schedule = SdarSchedule(
            strategy=draw(st.sampled_from(known)),
            num_steps=draw(numbers_of_steps),
            threshold=draw(thresholds),
            entropy_bound=draw(st.sampled_from([0.0, 0.35, 9.0])),
        )
        return Sdar(schedule=schedule, **shared)
    if kind is Llada20:
        floor = Floor(threshold=draw(thresholds), num_steps=draw(numbers_of_steps))
        return Llada20(floor=floor, eos_early_stop=draw(st.booleans()), **shared)
    if kind is Llada21:
        edits = EditThresholds(
            unmask=draw(thresholds), edit=draw(thresholds), max_edit_steps=draw(st.sampled_from([0, 1, 5]))
        )
        return Llada21(thresholds=edits, eos_early_stop=draw(st.booleans()), **shared)
    if kind is FastDllmV2:
        sub_blocks = SubBlocks(threshold=draw(thresholds), size=draw(st.sampled_from([1, 2, size])))
        return FastDllmV2(sub_blocks=sub_blocks, **shared)
    return ScheduledBlocks(num_steps=draw(numbers_of_steps), **shared)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rule = draw(rules())
    return Case(
        rule=rule,
        shift=1 if isinstance(rule, FastDllmV2) else draw(st.sampled_from([0, 1])),
        prompt=tuple(draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9))),
        max_tokens=draw(st.integers(1, 10)),
        seed=draw(st.integers(0, 2**32)),
        spread=draw(st.sampled_from([0.0, 1.0, 4.0, 30.0])),
    )


@given(cases())
@settings(max_examples=250, deadline=None)
def test_every_rule_keeps_its_promises(case: Case) -> None:
    watched = Watched(case.rule)
    ids, num_forwards = case.run(watched)
    assert 1 <= num_forwards <= case.most_forwards
    assert 1 <= watched.deciding_steps <= num_forwards
    assert MASK not in ids
    assert not case.rule.window.eos_ids & set(ids)
    if not case.rule.window.eos_ids:
        assert len(ids) == case.max_tokens


@given(cases())
@settings(max_examples=30, deadline=None)
def test_equal_settings_are_equal_values(case: Case) -> None:
    twin = replace(case.rule)
    assert twin == case.rule
    assert hash(twin) == hash(case.rule)
    assert case.run(twin) == case.run()


@pytest.mark.parametrize("kind", [Sdar, Llada20, Llada21, FastDllmV2, ScheduledBlocks])
@pytest.mark.parametrize(("size", "align"), [(0, 0), (4, 2), (4, 1)])
def test_windows_that_are_no_blocks_are_refused(kind: type[Rule], size: int, align: int) -> None:
    window = Window(size=size, mask_token_id=MASK, eos_ids=frozenset(), align=align)
    with pytest.raises(ConfigError, match="one block at a time"):
        kind(window=window, sampling=Sampling())
