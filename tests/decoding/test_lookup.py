"""Look-up drafts: what is copied, and that nothing but the number of forwards depends on it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.decoding.hash_model import hash_model
from unmask.core.canvas import BoolArray, Canvas, IntArray
from unmask.core.errors import ConfigError
from unmask.decoding import reference
from unmask.decoding.belief import Belief
from unmask.decoding.lookup import Lookup, continuation
from unmask.decoding.randomness import RandomStream
from unmask.decoding.rules import Verify, Window
from unmask.decoding.sampling import Sampling

VOCAB, MASK, EOS = 10, 0, 9
RANDOM = RandomStream(seed=1)
EMPTY = Window(size=0, mask_token_id=MASK, eos_ids=frozenset([EOS]))
GREEDY = Sampling(banned_ids=(MASK,))


def copied(text: Sequence[int], num_tokens: int = 4, max_ngram: int = 3, min_ngram: int = 1) -> list[int]:
    return continuation(np.array(text, np.int64), num_tokens, max_ngram=max_ngram, min_ngram=min_ngram).tolist()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ([1, 2, 3, 4, 5, 1, 2], [3, 4, 5, 1]),  # a bigram
        ([1, 2, 3, 9, 1, 2, 4, 9, 1, 2], [4, 9, 1, 2]),  # the most recent of two
        ([7, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2], [3, 8, 1, 2]),  # a longer match beats a more recent one
        ([1, 2, 3], []),  # nothing occurred before
        ([1], []),
        ([6, 6], [6, 6, 6, 6]),  # the copy goes on into itself
        ([1, 2, 3, 1, 2, 3], [1, 2, 3, 1]),
    ],
)
def test_what_is_copied(text: list[int], wanted: list[int]) -> None:
    assert copied(text) == wanted


def test_bounds_of_the_copy() -> None:
    text = [1, 2, 3, 4, 5, 1, 2]
    assert copied(text, 2) == [3, 4]
    assert copied(text, 0) == copied(text, -3) == []
    assert copied(text, 9) == [3, 4, 5, 1, 2, 3, 4, 5, 1]
    assert copied(text, min_ngram=3) == []
    assert copied([1, 2, 3, 5, 2], max_ngram=1) == [3, 5, 2, 3]


def belief(canvas: Canvas, ids: Sequence[int]) -> Belief:
    """Causal rows from num_final on that are sure of `ids`."""
    logits = torch.zeros(len(ids), VOCAB)
    logits[torch.arange(len(ids)), torch.tensor(ids)] = 9.0
    predicts = np.arange(canvas.num_final, canvas.num_final + len(ids))
    return Belief(logits_RV=logits, predicts_R=predicts, causal_R=np.ones(len(ids), np.bool_))


def looks(canvas: Canvas) -> str:
    """The canvas as text: `|` after the final prefix; what follows are drafts."""
    ids = [str(i) for i in canvas.ids_L.tolist()]
    assert canvas.open_L.tolist() == [position >= canvas.num_final for position in range(canvas.length)]
    assert canvas.window_start == canvas.length
    return " ".join([*ids[: canvas.num_final], "|", *ids[canvas.num_final :]])


def test_lookup_by_hand() -> None:
    rule = Lookup(window=EMPTY, sampling=GREEDY, num_drafts=3)
    canvas = rule.begin(np.array([1, 2, 3, 4, 5, 1, 2]), 20)
    assert looks(canvas) == "1 2 3 4 5 1 2 | 3 4 5"
    assert rule.reads(canvas).predicts_R.tolist() == [7, 8, 9, 10]
    assert rule.reads(canvas).causal_R.all()
    # two drafts agree, the third does not: its causal choice replaces it, and 8 occurred nowhere
    canvas = canvas.apply(rule.step(canvas, belief(canvas, [3, 4, 8, 7]), RANDOM))
    assert looks(canvas) == "1 2 3 4 5 1 2 3 4 8 |"
    # plain AR until something repeats
    canvas = canvas.apply(rule.step(canvas, belief(canvas, [4]), RANDOM))
    assert looks(canvas) == "1 2 3 4 5 1 2 3 4 8 4 | 8 4 8"
    # all agree: the token after them is decided too
    canvas = canvas.apply(rule.step(canvas, belief(canvas, [8, 4, 8, 1]), RANDOM))
    assert looks(canvas) == "1 2 3 4 5 1 2 3 4 8 4 8 4 8 1 | 2 3 4"


def test_drafts_end_where_they_are_of_no_use() -> None:
    def begin(prompt: list[int], max_tokens: int = 20) -> str:
        return looks(Lookup(window=EMPTY, sampling=GREEDY, num_drafts=5).begin(np.array(prompt), max_tokens))

    assert begin([1, 2, EOS, 4, 1]) == "1 2 9 4 1 | 2 9", "nothing follows an EOS"
    assert begin([1, 2, MASK, 4, 1]) == "1 2 0 4 1 | 2", "the mask is never drawn"
    assert begin([1, 2, 3, 4, 1], 3) == "1 2 3 4 1 | 2 3", "three drafts and one token more are one too many"
    assert begin([1, 2, 3, 4, 1], 1) == "1 2 3 4 1 |"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_drafts": 0}, "num_drafts must be at least 1, got 0"),
        ({"min_ngram": 0}, "min_ngram must be between 1 and max_ngram 3, got 0"),
        ({"min_ngram": 4}, "min_ngram must be between 1 and max_ngram 3, got 4"),
        ({"window": Window(size=4, mask_token_id=MASK, eos_ids=frozenset())}, "need a window of 0, got 4"),
    ],
)
def test_settings_that_make_no_sense(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Lookup(**{"window": EMPTY, "sampling": GREEDY, "num_drafts": 4, **changes})


def answer(
    model: reference.ReferenceModel, rule: Lookup | Verify, prompt: list[int], max_tokens: int, seed: int
) -> tuple[list[int], int]:
    ids, num_forwards = reference.generate(
        model,
        rule,
        np.array(prompt),
        max_tokens=max_tokens,
        eos_ids=rule.window.eos_ids,
        random=RandomStream(seed=seed),
    )
    return ids.tolist(), num_forwards


def repeating(period: int) -> reference.ReferenceModel:
    """Says again what stood `period` positions before."""

    def model(ids_L: IntArray, visible_LL: BoolArray) -> Tensor:
        after_L = np.arange(1, ids_L.shape[0] + 1) - period
        return torch.nn.functional.one_hot(torch.from_numpy(ids_L[np.maximum(after_L, 0)]), VOCAB).float() * 50

    return model


@given(
    eos_ids=st.sampled_from([frozenset[int](), frozenset([5]), frozenset([5, 1, 9])]),
    sampling=st.builds(
        Sampling,
        temperature=st.sampled_from([0.0, 0.0, 0.7, 2.0]),
        top_p=st.sampled_from([1.0, 0.8]),
        top_k=st.sampled_from([0, 2]),
        banned_ids=st.just((MASK,)),
    ),
    sizes=st.sampled_from([(1, 1), (3, 1), (3, 2), (5, 4)]),
    num_drafts=st.integers(1, 9),
    prompt=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=12),
    max_tokens=st.integers(1, 16),
    seed=st.integers(0, 2**32),
    period=st.integers(0, 4),
    spread=st.sampled_from([0.0, 1.0, 4.0, 30.0]),
)
@settings(max_examples=150, deadline=None)
def test_ids_equal_ar_ids(
    eos_ids: frozenset[int],
    sampling: Sampling,
    sizes: tuple[int, int],
    num_drafts: int,
    prompt: list[int],
    max_tokens: int,
    seed: int,
    period: int,
    spread: float,
) -> None:
    """For any logits: noise, where drafts are wrong, and text that repeats itself, where they are right."""
    window = Window(size=0, mask_token_id=MASK, eos_ids=eos_ids)
    model = repeating(period) if 0 < period <= len(prompt) else hash_model(seed, VOCAB, spread)
    lookup = Lookup(window=window, sampling=sampling, num_drafts=num_drafts, max_ngram=sizes[0], min_ngram=sizes[1])
    drafted, num_drafted = answer(model, lookup, prompt, max_tokens, seed)
    plain, num_plain = answer(model, Verify(window=window, sampling=sampling), prompt, max_tokens, seed)
    assert drafted == plain
    assert num_drafted <= num_plain


def test_a_loop_takes_few_forwards() -> None:
    rule = Lookup(window=EMPTY, sampling=GREEDY, num_drafts=7)
    ids, num_forwards = answer(repeating(3), rule, [1, 2, 3, 1], 24, 0)
    assert ids == [2, 3, 1] * 8
    assert num_forwards == 3, "eight tokens a forward"
