"""Whole answers under a constraint: whatever the model believes and in whatever order, the text is accepted."""

import json
from collections.abc import Sequence

import numpy as np
import pytest

from tests.grammar.brute import BYTES, EOS, FILLER, PAD_ID, compile_bytes, compile_toy, draw_toy
from tests.tiny import EOS_ID, MASK_ID
from unmask.grammar.constraint import Constraint
from unmask.grammar.schema import compile_schema
from unmask.grammar.tokens import Vocabulary

MERGED = Vocabulary((*BYTES.tokens_V, b'{"', b"city", b'": "', b'", "', b'": ', b', "', b"celsius", b'"}', b"1", b"14"))
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "unit": {"enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "unit"],
}


def answer_text(constraint: Constraint, ids: Sequence[int], ends: Sequence[int]) -> bytes:
    """The bytes before the first end id; everything behind it must be an end id too."""
    length = next((i for i, token in enumerate(ids) if token in ends), len(ids))
    assert all(token in ends for token in ids[length:])
    spelled = [constraint.vocabulary.tokens_V[token] for token in ids[:length]]
    assert None not in spelled
    return b"".join(text for text in spelled if text)


def fill(
    constraint: Constraint,
    rng: np.random.Generator,
    *,
    prompt: int,
    max_tokens: int,
    window: int,
    temperature: float = 0.0,
    sharpness: float = 5.0,
    edits: bool = False,
) -> list[int]:
    """Decodes window after window with random logits, deciding a random part of the rows each time."""
    limit = prompt + max_tokens
    ids_L, open_L = np.full(prompt, 7, dtype=np.int64), np.zeros(prompt, dtype=np.bool_)
    num_rows = len(constraint.vocabulary.tokens_V)
    while len(ids_L) < limit:
        start, end = len(ids_L), len(ids_L) + window
        ids_L = np.append(ids_L, np.full(window, MASK_ID))
        open_L = np.append(open_L, np.ones(window, dtype=np.bool_))
        while open_L.any():
            if edits and rng.random() < 0.2:  # decided positions of the window are opened again
                open_L[start:] |= rng.random(window) < 0.3
            rows = start + np.flatnonzero(open_L[start:])
            refined = constraint.refine(
                ids_L=ids_L,
                open_L=open_L,
                answer_start=prompt,
                window_end=end,
                limit=limit,
                logits_RV=(rng.normal(size=(len(rows), num_rows)) * sharpness).astype(np.float32),
                predicts_R=rows,
                temperature=temperature,
                uniforms_R2=rng.random((len(rows), 2)) if temperature else None,
            )
            assert ((refined.confidence_R >= 0) & (refined.confidence_R <= 1)).all()
            chosen = rows[: 1 + int(rng.integers(len(rows)))] if rng.random() < 0.3 else rng.permutation(rows)
            chosen = chosen[: 1 + int(rng.integers(len(rows)))]
            ids_L[chosen] = refined.path_ids_R[np.searchsorted(rows, chosen)]
            open_L[chosen] = False
        if constraint.has_ended(constraint.walk(ids_L[prompt:limit].tolist())):
            break
    return ids_L[prompt:limit].tolist()


@pytest.mark.parametrize("vocabulary", [BYTES, MERGED], ids=["bytes", "merged"])
@pytest.mark.parametrize("window", [1, 4, 8, 32])
@pytest.mark.parametrize("temperature", [0.0, 1.0, 0.3])
def test_any_logits_and_any_order_give_a_valid_answer(window: int, temperature: float, vocabulary: Vocabulary) -> None:
    automaton = compile_schema(SCHEMA)
    constraint = compile_bytes(automaton, vocabulary)
    rng = np.random.default_rng(window)
    for max_tokens in (constraint.minimum_tokens, constraint.minimum_tokens + 3, 70):
        ids = fill(constraint, rng, prompt=3, max_tokens=max_tokens, window=window, temperature=temperature)
        text = answer_text(constraint, ids, [EOS_ID, PAD_ID])
        assert automaton.accepts(text), text
        assert len(ids) <= max_tokens
        json.loads(text)


@pytest.mark.parametrize("window", [4, 8])
def test_reopened_positions_keep_the_answer_valid(window: int) -> None:
    automaton = compile_schema(SCHEMA)
    constraint = compile_bytes(automaton)
    ids = fill(constraint, np.random.default_rng(3), prompt=1, max_tokens=64, window=window, edits=True)
    assert automaton.accepts(answer_text(constraint, ids, [EOS_ID, PAD_ID]))


def test_toy_answers_of_every_shape_are_accepted() -> None:
    for seed in range(15):
        rng = np.random.default_rng(100 + seed)
        toy = draw_toy(rng)
        constraint = compile_toy(toy)
        max_tokens = constraint.minimum_tokens + int(rng.integers(0, 6))
        ids = fill(constraint, rng, prompt=1, max_tokens=max_tokens, window=3, sharpness=1.0)
        assert toy.automaton.accepts(answer_text(constraint, ids, [EOS, FILLER]))
