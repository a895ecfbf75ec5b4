"""One hand-worked example per rule, and drafts chosen to trip the verification."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch

from tests.decoding.hash_model import drafting, hash_model
from unmask.core.canvas import Canvas
from unmask.decoding import reference
from unmask.decoding.belief import Belief
from unmask.decoding.randomness import RandomStream
from unmask.decoding.rules import Unmask, Verify, Window, is_finished, visible_answer
from unmask.decoding.sampling import Sampling

VOCAB, MASK, EOS = 10, 0, 9
RANDOM = RandomStream(seed=1)
GREEDY = Sampling(banned_ids=(MASK,))


def window(size: int, align: int = 1) -> Window:
    return Window(size=size, mask_token_id=MASK, eos_ids=frozenset([EOS]), align=align)


def belief(rows: Sequence[tuple[int, int, float]], num_causal: int = 0) -> Belief:
    """Rows of (position, best id, its probability); the rest of the mass is spread over the other ids but the mask."""
    logits = torch.empty(len(rows), VOCAB)
    for row, (_, token, share) in enumerate(rows):
        logits[row] = float(np.log((1 - share) / (VOCAB - 2)))
        logits[row, token] = float(np.log(share))
        logits[row, MASK] = 50.0  # the mask would always win if it were let in
    return Belief(
        logits_RV=logits,
        predicts_R=np.array([position for position, _, _ in rows], np.int64),
        causal_R=np.arange(len(rows)) < num_causal,
    )


def looks(canvas: Canvas) -> str:
    """The canvas as text: `|` after the final prefix, `?` before an undecided id."""
    parts = [f"{'?' if canvas.open_L[p] else ''}{canvas.ids_L[p]}" for p in range(canvas.length)]
    return " ".join([*parts[: canvas.num_final], "|", *parts[canvas.num_final :]])


def test_unmask_by_threshold_by_hand() -> None:
    rule = Unmask(window=window(4), sampling=GREEDY, threshold=0.8)
    canvas = rule.begin(np.array([5, 6]), 20)
    assert looks(canvas) == "5 6 | ?0 ?0 ?0 ?0"
    # nothing reaches 0.8: the best one goes, the first of equals
    canvas = canvas.apply(rule.step(canvas, belief([(2, 1, 0.4), (3, 2, 0.7), (4, 3, 0.7), (5, 4, 0.3)]), RANDOM))
    assert looks(canvas) == "5 6 | ?0 2 ?0 ?0"
    # two of three reach it
    canvas = canvas.apply(rule.step(canvas, belief([(2, 1, 0.85), (4, 3, 0.5), (5, 4, 0.9)]), RANDOM))
    assert looks(canvas) == "5 6 1 2 | ?0 4"
    assert (canvas.block, canvas.step, canvas.window_start) == (0, 2, 2)
    # the last one closes the window and opens the next
    canvas = canvas.apply(rule.step(canvas, belief([(4, 3, 0.5)]), RANDOM))
    assert looks(canvas) == "5 6 1 2 3 4 | ?0 ?0 ?0 ?0"
    assert (canvas.block, canvas.step, canvas.window_start) == (1, 0, 6)
    assert not is_finished(canvas, frozenset([EOS]))


def test_unmask_by_quota_by_hand() -> None:
    rule = Unmask(window=window(4), sampling=GREEDY, threshold=0.1, quota=2)
    canvas = rule.begin(np.array([5]), 20)
    canvas = canvas.apply(rule.step(canvas, belief([(1, 1, 0.9), (2, 2, 0.5), (3, 3, 0.9), (4, 4, 0.95)]), RANDOM))
    assert looks(canvas) == "5 1 | ?0 ?0 4"
    canvas = canvas.apply(rule.step(canvas, belief([(2, 2, 0.3), (3, 3, 0.3)]), RANDOM))
    assert looks(canvas) == "5 1 2 3 4 | ?0 ?0 ?0 ?0"


def test_unmask_aligned_windows_hold_the_prompts_tail() -> None:
    rule = Unmask(window=window(4, align=4), sampling=GREEDY, threshold=0.8)
    canvas = rule.begin(np.array([5, 6, 7, 8, 1, 2]), 20)
    assert looks(canvas) == "5 6 7 8 1 2 | ?0 ?0"
    assert canvas.window_start == 4
    canvas = canvas.apply(rule.step(canvas, belief([(6, 3, 0.9), (7, 4, 0.9)]), RANDOM))
    assert looks(canvas) == "5 6 7 8 1 2 3 4 | ?0 ?0 ?0 ?0"
    assert canvas.window_start == 8
    whole = rule.begin(np.array([5, 6, 7, 8]), 20)
    assert (looks(whole), whole.window_start) == ("5 6 7 8 | ?0 ?0 ?0 ?0", 4)


def test_unmask_ends_at_an_eos_with_nothing_open_before_it() -> None:
    rule = Unmask(window=window(4), sampling=GREEDY, threshold=0.8)
    canvas = rule.begin(np.array([EOS]), 20)
    canvas = canvas.apply(rule.step(canvas, belief([(1, 1, 0.1), (2, EOS, 0.9), (3, 3, 0.1), (4, 4, 0.1)]), RANDOM))
    assert looks(canvas) == f"{EOS} | ?0 {EOS} ?0 ?0"
    assert not is_finished(canvas, frozenset([EOS])), "an open position stands before the EOS"
    canvas = canvas.apply(rule.step(canvas, belief([(1, 1, 0.3), (3, 3, 0.2), (4, 4, 0.1)]), RANDOM))
    assert looks(canvas) == f"{EOS} 1 {EOS} | ?0 ?0"
    assert is_finished(canvas, frozenset([EOS]))
    assert visible_answer(canvas, frozenset([EOS])).tolist() == [1]


def test_unmask_decides_nothing_past_the_limit() -> None:
    rule = Unmask(window=window(4), sampling=GREEDY, threshold=0.5)
    canvas = rule.begin(np.array([5]), 2)
    canvas = canvas.apply(rule.step(canvas, belief([(1, 1, 0.2), (2, 2, 0.3), (3, 3, 0.9), (4, 4, 0.9)]), RANDOM))
    assert looks(canvas) == "5 | ?0 2 ?0 ?0"
    canvas = canvas.apply(rule.step(canvas, belief([(1, 1, 0.2), (3, 3, 0.9), (4, 4, 0.9)]), RANDOM))
    assert looks(canvas) == "5 1 2 | ?0 ?0"
    assert is_finished(canvas, frozenset([EOS]))


def test_verify_by_hand() -> None:
    rule = Verify(window=window(3), sampling=GREEDY)
    canvas = rule.begin(np.array([5, 6]), 20)
    assert looks(canvas) == "5 6 | ?0 ?0 ?0"
    # no drafts yet: the causal row gives 1, the masked rows draft 2 3
    canvas = canvas.apply(rule.step(canvas, belief([(2, 1, 0.4), (3, 2, 0.4), (4, 3, 0.4)], 1), RANDOM))
    assert looks(canvas) == "5 6 1 | ?2 ?3 ?0 ?0 ?0"
    assert canvas.window_start == 5
    # both drafts are confirmed and 4 comes on top; 6 7 are the next drafts
    confirmed = belief([(3, 2, 0.4), (4, 3, 0.4), (5, 4, 0.4), (6, 6, 0.4), (7, 7, 0.4)], 3)
    canvas = canvas.apply(rule.step(canvas, confirmed, RANDOM))
    assert looks(canvas) == "5 6 1 2 3 4 | ?6 ?7 ?0 ?0 ?0"
    # the second draft is wrong: 6 stays, 8 replaces 7, the masked rows saw the wrong text and are dropped
    partly = belief([(6, 6, 0.4), (7, 8, 0.4), (8, 1, 0.4), (9, 1, 0.4), (10, 1, 0.4)], 3)
    canvas = canvas.apply(rule.step(canvas, partly, RANDOM))
    assert looks(canvas) == "5 6 1 2 3 4 6 8 | ?0 ?0 ?0"
    assert canvas.window_start == canvas.num_final == 8


def test_verify_first_draft_wrong_though_the_second_agrees() -> None:
    rule = Verify(window=window(3), sampling=GREEDY)
    canvas = rule.begin(np.array([5]), 20)
    canvas = canvas.apply(rule.step(canvas, belief([(1, 1, 0.4), (2, 2, 0.4), (3, 3, 0.4)], 1), RANDOM))
    wrong = belief([(2, 7, 0.4), (3, 3, 0.4), (4, 4, 0.4), (5, 5, 0.4), (6, 6, 0.4)], 3)
    canvas = canvas.apply(rule.step(canvas, wrong, RANDOM))
    assert looks(canvas) == "5 1 7 | ?0 ?0 ?0"


def test_verify_eos_inside_the_drafts() -> None:
    rule = Verify(window=window(4), sampling=GREEDY)
    canvas = rule.begin(np.array([5]), 20)
    canvas = canvas.apply(rule.step(canvas, belief([(1, 1, 0.4), (2, 2, 0.4), (3, EOS, 0.4), (4, 4, 0.4)], 1), RANDOM))
    rows = [(2, 2, 0.4), (3, EOS, 0.4), (4, 4, 0.4), (5, 5, 0.4), (6, 6, 0.4), (7, 7, 0.4), (8, 8, 0.4)]
    canvas = canvas.apply(rule.step(canvas, belief(rows, 4), RANDOM))
    assert is_finished(canvas, frozenset([EOS]))
    assert visible_answer(canvas, frozenset([EOS])).tolist() == [1, 2]


def test_verify_without_a_window_is_autoregression() -> None:
    rule = Verify(window=window(0), sampling=GREEDY)
    canvas = rule.begin(np.array([5]), 2)
    assert looks(canvas) == "5 |"
    canvas = canvas.apply(rule.step(canvas, belief([(1, 1, 0.4)], 1), RANDOM))
    assert looks(canvas) == "5 1 |"
    canvas = canvas.apply(rule.step(canvas, belief([(2, 4, 0.4)], 1), RANDOM))
    assert looks(canvas) == "5 1 4 |"
    assert is_finished(canvas, frozenset([EOS]))


def test_mask_and_eos_in_the_prompt_are_ordinary_text() -> None:
    rule = Unmask(window=window(2), sampling=GREEDY)
    canvas = rule.begin(np.array([EOS, MASK, EOS, MASK]), 5)
    assert looks(canvas) == f"{EOS} {MASK} {EOS} {MASK} | ?0 ?0"
    assert not is_finished(canvas, frozenset([EOS]))
    assert visible_answer(canvas, frozenset([EOS])).size == 0


# --- drafts that try to change the ids ---------------------------------------------------------------------------


def answer(size: int, temperature: float, drafts: Mapping[int, int], eos: int = -1) -> tuple[list[int], int]:
    ids, num_forwards = reference.generate(
        drafting(hash_model(11, VOCAB), drafts),
        Verify(
            window=Window(size=size, mask_token_id=MASK, eos_ids=frozenset([eos])),
            sampling=Sampling(temperature=temperature, banned_ids=(MASK,)),
        ),
        np.array([1, 2, 3]),
        max_tokens=25,
        eos_ids=frozenset([eos]),
        random=RandomStream(seed=-4),
    )
    return ids.tolist(), num_forwards


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_no_draft_changes_an_id(size: int, temperature: float) -> None:
    plain, num_plain = answer(0, temperature, {})
    right = {3 + i: token for i, token in enumerate(plain)}
    assert num_plain == 25
    # always right: size - 1 drafts and one token more per forward after the first
    ids, num_forwards = answer(size, temperature, right)
    assert ids == plain
    assert num_forwards == 1 + -(-24 // size)
    # always wrong: one token a forward
    wrong = {position: token % (VOCAB - 1) + 1 for position, token in right.items()}
    assert answer(size, temperature, wrong) == (plain, 25 if size == 1 else num_wrong(size, plain, wrong))
    # wrong now and then
    for period in (2, 3, 4):
        mixed = {p: wrong[p] if p % period == 0 else token for p, token in right.items()}
        assert answer(size, temperature, mixed)[0] == plain
    # drafting an end of text, everywhere and too early, ends nothing
    early = dict.fromkeys(right, 4)
    assert 4 in plain
    assert answer(size, temperature, early, eos=4)[0] == plain[: plain.index(4)]


def num_wrong(size: int, plain: list[int], wrong: Mapping[int, int]) -> int:
    """Forwards when every draft is wrong: one token each, as the verification emits the corrected one."""
    assert size > 1
    assert all(wrong[3 + i] != token for i, token in enumerate(plain))
    return len(plain)
