"""What every decoding rule promises, over the whole table of rules, blocks, shifts, samplers and random models."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.decoding.hash_model import hash_model
from unmask.core.canvas import Canvas, Delta, IntArray
from unmask.core.plan import Reads
from unmask.decoding import reference
from unmask.decoding.belief import Belief
from unmask.decoding.randomness import RandomStream
from unmask.decoding.rules import DecodingRule, Unmask, Verify, Window
from unmask.decoding.sampling import Sampling

VOCAB, MASK = 10, 2


class Watched:
    """A rule that runs another one and checks each of its steps."""

    def __init__(self, rule: Unmask | Verify) -> None:
        self.rule = rule

    def reads(self, canvas: Canvas) -> Reads:
        return self.rule.reads(canvas)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        canvas = self.rule.begin(prompt_ids, max_tokens)
        assert canvas.ids_L[: len(prompt_ids)].tolist() == prompt_ids.tolist()
        assert canvas.num_final == canvas.prompt_length == len(prompt_ids)
        assert not canvas.open_L[: len(prompt_ids)].any()
        assert (canvas.ids_L[canvas.open_L] == MASK).all()
        assert canvas.window_start % self.rule.window.align == 0
        assert canvas.limit == len(prompt_ids) + max_tokens
        return canvas

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        # models provide rows for windows of up to 256 positions past the last one that can be asked for
        assert canvas.length < canvas.limit + 2 * max(self.rule.window.size, 1)
        delta = self.rule.step(canvas, belief, random)
        after = canvas.apply(delta)  # raises unless the delta keeps its contract
        inside = delta.positions_W[delta.positions_W < canvas.length]
        assert canvas.open_L[inside].all(), "a decided position was written"
        decided = ~delta.open_W
        assert (delta.ids_W[decided] != MASK).all(), "the mask became text"
        drafts = after.ids_L[after.num_final : after.window_start]
        assert (drafts[after.open_L[after.num_final : after.window_start]] != MASK).all(), "the mask became a draft"
        window = slice(after.window_start, after.length)
        assert (after.ids_L[window][after.open_L[window]] == MASK).all()
        assert after.ids_L[: canvas.num_final].tolist() == canvas.ids_L[: canvas.num_final].tolist()
        if isinstance(self.rule, Unmask):
            assert (delta.positions_W[decided] < canvas.limit).all(), "past the limit"
            assert after.window_start % self.rule.window.align == 0
            assert decided.sum() >= 1, "no progress"
        else:
            assert after.num_final > canvas.num_final, "no progress"
        return delta


@dataclass(frozen=True)
class Case:
    rule: Unmask | Verify
    align: int
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
            align=self.align,
            logit_shift=self.shift,
        )
        return ids.tolist(), num_forwards


@st.composite
def windows(draw: st.DrawFn, align: int, sizes: st.SearchStrategy[int]) -> Window:
    eos_ids = draw(st.sampled_from([frozenset[int](), frozenset([5]), frozenset([5, 0, 9])]))
    return Window(size=draw(sizes), mask_token_id=MASK, eos_ids=eos_ids, align=align)


samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.0, 0.7, 2.0]),
    top_p=st.sampled_from([1.0, 0.8, 0.01]),
    top_k=st.sampled_from([0, 1, 3, 99]),
    banned_ids=st.just((MASK,)),
)


@st.composite
def unmask_by_threshold(draw: st.DrawFn, align: int) -> Unmask:
    sizes = st.integers(1, 9) if align == 1 else st.sampled_from([align, 2 * align])
    threshold = draw(st.sampled_from([1e-9, 0.3, 0.6, 0.95, 1.0]))
    return Unmask(window=draw(windows(align, sizes)), sampling=draw(samplings), threshold=threshold)


@st.composite
def unmask_by_quota(draw: st.DrawFn, align: int) -> Unmask:
    sizes = st.integers(1, 9) if align == 1 else st.sampled_from([align, 2 * align])
    return Unmask(window=draw(windows(align, sizes)), sampling=draw(samplings), quota=draw(st.integers(1, 12)))


@st.composite
def verify(draw: st.DrawFn, align: int) -> Verify:
    return Verify(window=draw(windows(align, st.integers(0, 7))), sampling=draw(samplings))


TABLE: dict[str, tuple[Any, tuple[int, ...]]] = {
    "unmask by threshold": (unmask_by_threshold, (1, 2, 4)),
    "unmask by quota": (unmask_by_quota, (1, 2, 4)),
    "verify": (verify, (1,)),
}
"""Rule -> its settings, and the block alignments it can run under."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rules, aligns = draw(st.sampled_from(list(TABLE.values())))
    align = draw(st.sampled_from(aligns))
    prompt = tuple(draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9)))
    max_tokens = draw(st.integers(1, 14))
    return Case(
        rule=draw(rules(align)),
        align=align,
        shift=draw(st.sampled_from([0, 1])),
        prompt=prompt,
        max_tokens=max_tokens,
        seed=draw(st.integers(0, 2**32)),
        spread=draw(st.sampled_from([0.0, 1.0, 4.0, 30.0])),
    )


@given(cases())
@settings(max_examples=250, deadline=None)
def test_every_rule_keeps_its_promises(case: Case) -> None:
    ids, num_forwards = case.run(Watched(case.rule))
    assert 1 <= num_forwards <= case.max_tokens
    assert len(ids) <= case.max_tokens
    assert MASK not in ids
    assert not case.rule.window.eos_ids & set(ids)
    if not case.rule.window.eos_ids:
        assert len(ids) == case.max_tokens


@given(cases())
@settings(max_examples=40, deadline=None)
def test_same_seed_same_bytes(case: Case) -> None:
    assert case.run() == case.run()


@given(st.data(), st.sampled_from(sorted(TABLE)))
@settings(max_examples=40, deadline=None)
def test_equal_settings_are_equal_values(data: st.DataObject, name: str) -> None:
    rule = data.draw(TABLE[name][0](1))
    twin = type(rule)(**{field: getattr(rule, field) for field in rule.__dataclass_fields__})
    assert rule == twin
    assert hash(rule) == hash(twin)


@given(
    window=windows(1, st.integers(1, 7)),
    sampling=samplings,
    shift=st.sampled_from([0, 1]),
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6).map(tuple),
    max_tokens=st.integers(1, 14),
    seed=st.integers(0, 2**32),
    spread=st.sampled_from([0.0, 1.0, 4.0, 30.0]),
)
@settings(max_examples=100, deadline=None)
def test_verified_ids_equal_ar_ids(**facts: Any) -> None:
    window, sampling = facts.pop("window"), facts.pop("sampling")
    alone = Window(size=0, mask_token_id=MASK, eos_ids=window.eos_ids)
    drafted, num_drafted = Case(rule=Verify(window=window, sampling=sampling), align=1, **facts).run()
    plain, num_plain = Case(rule=Verify(window=alone, sampling=sampling), align=1, **facts).run()
    assert drafted == plain
    assert num_drafted <= num_plain
