"""Constraints over whole answers: enumeration where it is possible, and adversarial logits where it is not."""

import numpy as np
import pytest

from tests.grammar.brute import BYTES, EOS, FILLER, PAD_ID, SPECIAL, compile_bytes, compile_toy, draw_toy, log_softmax
from tests.tiny import EOS_ID, MASK_ID
from unmask.core.errors import EngineError, RequestError
from unmask.grammar.automaton import Automaton
from unmask.grammar.build import concat, literal, repeat, union
from unmask.grammar.constraint import Constraint, ConstraintCache, Refined
from unmask.grammar.schema import compile_choices, compile_schema
from unmask.grammar.tokens import Vocabulary


@pytest.mark.parametrize("seed", range(25))
def test_refine_equals_the_enumeration_with_prefix_evidence_limit_and_unread_positions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    toy = draw_toy(rng)
    constraint = compile_toy(toy)
    prompt, decided_first, width = 2, int(rng.integers(0, 2)), int(rng.integers(2, 4))
    length = decided_first + width
    limit = prompt + length + int(rng.integers(-1, 3))  # the window may reach past the limit
    inside = min(length, limit - prompt)
    room = max(limit - prompt - length, 0)
    fillings = [
        tokens + behind
        for tokens in toy.fillings(inside, room)
        for behind in ([()] if inside == length else [(EOS,), (FILLER,)])
        if not behind or toy.accepts(tokens + behind, 0)
    ]
    assert fillings
    sample = fillings[int(rng.integers(len(fillings)))]
    open_A = np.array([i >= decided_first and (rng.random() < 0.7) for i in range(length)])
    rows_A = open_A & (rng.random(length) < 0.8)
    fillings = [f for f in fillings if all(f[i] == sample[i] for i in range(length) if not open_A[i])]
    rows = np.flatnonzero(rows_A)
    logits_RV = rng.normal(size=(len(rows), toy.size)) * 2
    log_p_AV = np.full((length, toy.size), -np.log(toy.size))
    log_p_AV[rows] = log_softmax(logits_RV)
    scores = np.array([sum(log_p_AV[i, f[i]] for i in np.flatnonzero(open_A)) for f in fillings])

    refined = constraint.refine(
        ids_L=np.array([SPECIAL] * prompt + [MASK_ID if o else t for o, t in zip(open_A, sample, strict=True)]),
        open_L=np.append(np.zeros(prompt, dtype=np.bool_), open_A),
        answer_start=prompt,
        window_end=prompt + length,
        limit=limit,
        logits_RV=logits_RV,
        predicts_R=prompt + rows,
    )
    log_z = np.logaddexp.reduce(scores)
    assert refined.log_z == pytest.approx(log_z, abs=1e-9)
    agreeing = [all(f[i] == token for i, token in zip(rows, refined.path_ids_R, strict=True)) for f in fillings]
    assert scores[agreeing].max() == pytest.approx(scores.max(), abs=1e-9)
    for i, token, confidence, forced in zip(
        rows, refined.path_ids_R, refined.confidence_R, refined.forced_R, strict=True
    ):
        weight = np.exp(scores[[f[i] == token for f in fillings]] - log_z).sum()
        assert confidence == pytest.approx(weight, abs=1e-9)
        assert forced == (len({f[i] for f in fillings}) == 1)


def test_the_last_window_may_be_full_without_eos() -> None:
    constraint = compile_bytes(literal(b"abc"))
    refined = refine_empty(constraint, width=3, limit=3)
    assert bytes_of(refined) == b"abc"
    assert refined.forced_R.all()
    assert refined.confidence_R == pytest.approx([1.0] * 3)


def test_eos_then_filler_behind_the_end_and_nowhere_else() -> None:
    constraint = compile_bytes(literal(b"ab"))
    logits_RV = np.zeros((6, 272))
    logits_RV[:, EOS_ID], logits_RV[:, PAD_ID] = 50.0, 60.0
    refined = refine_empty(constraint, width=6, limit=9, logits_RV=logits_RV)
    assert bytes_of(refined) == b"ab"
    assert refined.path_ids_R.tolist()[2:] == [EOS_ID, PAD_ID, PAD_ID, PAD_ID]
    assert not refined.forced_R[3:].any()


def test_behind_the_limit_only_the_end_stands() -> None:
    constraint = compile_bytes(repeat(literal(b"a"), 2, None))
    refined = refine_empty(constraint, width=6, limit=3)
    ids = refined.path_ids_R.tolist()
    assert ids[3] in (EOS_ID, PAD_ID)
    assert set(ids[4:]) <= {EOS_ID, PAD_ID}
    assert constraint.is_complete(constraint.walk(ids[:3]))


def test_behind_a_decided_end_behind_the_limit_filler_may_follow() -> None:
    constraint = compile_bytes(literal(b"a"))
    logits_RV = np.zeros((1, 272))
    logits_RV[0, PAD_ID] = 3.0
    refined = constraint.refine(
        ids_L=np.array([BYTES.tokens_V.index(b"a"), EOS_ID, MASK_ID]),
        open_L=np.array([False, False, True]),
        answer_start=0,
        window_end=3,
        limit=1,
        logits_RV=logits_RV,
        predicts_R=np.array([2]),
    )
    assert refined.path_ids_R.tolist() == [PAD_ID]
    assert refined.confidence_R[0] == pytest.approx(1 / (1 + np.exp(-3.0)))


def test_a_window_that_is_not_the_last_keeps_enough_tokens() -> None:
    """The model wants an endless string; the first window must leave room for its end."""
    constraint = compile_bytes(compile_schema({"type": "string"}))
    letter = BYTES.tokens_V.index(b"x")
    logits_RV = np.zeros((4, 272))
    logits_RV[:, letter] = 100.0
    ids = np.full(4, MASK_ID)
    for limit, text in ((5, b'"xxx'), (4, b'"xx"'), (9, b'"xxx')):
        refined = constraint.refine(
            ids_L=ids,
            open_L=np.ones(4, dtype=np.bool_),
            answer_start=0,
            window_end=4,
            limit=limit,
            logits_RV=logits_RV,
            predicts_R=np.arange(4),
        )
        assert bytes_of(refined) == text


def test_the_state_before_a_later_start_may_be_given() -> None:
    constraint = compile_bytes(literal(b"abcdef"))
    state = constraint.walk([BYTES.tokens_V.index(bytes([byte])) for byte in b"abc"])
    refined = refine_empty(constraint, width=3, limit=3, state=state)
    assert bytes_of(refined) == b"def"


def test_ar_is_a_window_of_one_behind_the_canvas() -> None:
    """Masked and normalised probabilities of the next token, as AR engines compute them."""
    constraint = compile_bytes(compile_choices(["no", "nein", "yes"]))
    rng = np.random.default_rng(0)
    logits_RV = rng.normal(size=(1, 272))
    refined = constraint.refine(
        ids_L=np.array([9, 9]),
        open_L=np.zeros(2, dtype=np.bool_),
        answer_start=2,
        window_end=3,
        limit=5,
        logits_RV=logits_RV,
        predicts_R=np.array([2]),
    )
    n, y = BYTES.tokens_V.index(b"n"), BYTES.tokens_V.index(b"y")
    expected = 1 / (1 + np.exp(-abs(logits_RV[0, n] - logits_RV[0, y])))
    assert refined.confidence_R[0] == pytest.approx(expected, abs=1e-12)
    assert refined.path_ids_R[0] == (n if logits_RV[0, n] > logits_RV[0, y] else y)


def test_decided_positions_behind_the_window_are_evidence() -> None:
    constraint = compile_bytes(compile_choices(["aa", "ab", "cc"]))
    c = BYTES.tokens_V.index(b"c")
    logits_RV = np.zeros((1, 272))
    logits_RV[0, BYTES.tokens_V.index(b"a")] = 100.0
    refined = constraint.refine(
        ids_L=np.array([MASK_ID, c]),
        open_L=np.array([True, False]),
        answer_start=0,
        window_end=1,
        limit=2,
        logits_RV=logits_RV,
        predicts_R=np.array([0]),
    )
    assert bytes_of(refined) == b"c"


def test_a_row_for_a_decided_position_keeps_its_token() -> None:
    constraint = compile_bytes(literal(b"ab"))
    a = BYTES.tokens_V.index(b"a")
    refined = constraint.refine(
        ids_L=np.array([a, MASK_ID]),
        open_L=np.array([False, True]),
        answer_start=0,
        window_end=2,
        limit=2,
        logits_RV=np.zeros((2, 272)),
        predicts_R=np.arange(2),
    )
    assert bytes_of(refined) == b"ab"
    assert refined.confidence_R.tolist() == pytest.approx([1.0, 1.0])


def test_max_tokens_below_the_shortest_text_is_refused() -> None:
    constraint = compile_bytes(compile_choices(["four", "seventh"]))
    constraint.check_max_tokens(4)
    with pytest.raises(RequestError, match="at least 4") as caught:
        constraint.check_max_tokens(3, param="max_completion_tokens")
    assert caught.value.param == "max_completion_tokens"


def test_decided_tokens_outside_the_language_are_an_engine_error() -> None:
    constraint = compile_bytes(literal(b"ab"))
    for ids, opened in ((np.array([9, MASK_ID]), [False, True]), (np.array([MASK_ID, 9]), [True, False])):
        with pytest.raises(EngineError, match="decided tokens"):
            constraint.refine(
                ids_L=ids,
                open_L=np.array(opened),
                answer_start=0,
                window_end=2,
                limit=2,
                logits_RV=np.zeros((1, 272)),
                predicts_R=np.flatnonzero(opened),
            )


def test_wrong_shapes_are_refused() -> None:
    constraint = compile_bytes(literal(b"ab"))
    with pytest.raises(ValueError, match="vocabulary"):
        refine_empty(constraint, width=2, limit=2, logits_RV=np.zeros((2, 200)))
    with pytest.raises(ValueError, match="uniforms"):
        refine_empty(constraint, width=2, limit=2, temperature=1.0)


def test_forced_text_is_the_canonical_beginning_without_what_a_longer_token_could_replace() -> None:
    tokens = [b"{", b'"', b'{"', b"name", b'": "', b'": ', b'"', b"a", b"b", b'a"', b"}", b'"}']
    vocabulary = Vocabulary((None, None, None, *tokens))
    id_of = {token: i for i, token in reversed(list(enumerate(vocabulary.tokens_V))) if token}
    automaton = concat(literal(b'{"name": "'), union(literal(b"a"), literal(b"b")), literal(b'"}'))

    def encode(text: str) -> list[int]:
        """Longest match."""
        ids, data = list[int](), text.encode()
        while data:
            token = max((t for t in id_of if data.startswith(t)), key=len)
            ids.append(id_of[token])
            data = data[len(token) :]
        return ids

    constraint = Constraint.compile(automaton, vocabulary, eos_ids=[0], encode=encode)

    start = [id_of[b'{"'], id_of[b"name"], id_of[b'": "']]
    assert constraint.minimum_tokens == 5
    assert constraint.forced_text(room=9) == start
    assert constraint.forced_text(room=5) == start
    after_a = constraint.walk([*start, id_of[b"a"]])
    assert constraint.forced_text(room=3, state=after_a) == [id_of[b'"}']]
    assert constraint.forced_text(room=3, state=constraint.walk([0], constraint.walk([id_of[b'"}']], after_a))) == []
    # A token over the border: the quote may be the beginning of '"a'.
    wider = Vocabulary((*vocabulary.tokens_V, b'": "a'))
    assert Constraint.compile(automaton, wider, eos_ids=[0], encode=encode).forced_text(room=9) == start[:2]


def test_forced_text_leaves_room_for_the_rest() -> None:
    """One token could write the whole text; spelling its beginning would need two."""
    vocabulary = Vocabulary((None, b"a", b"b", b"c", b"abc"))

    def encode(text: str) -> list[int]:
        return [vocabulary.tokens_V.index(letter.encode()) for letter in text]

    constraint = Constraint.compile(literal(b"abc"), vocabulary, eos_ids=[0], encode=encode)
    assert constraint.forced_text(room=3) == [1, 2, 3]
    assert constraint.forced_text(room=2) == []
    done = constraint.walk([4])
    assert constraint.must_end(done)
    assert constraint.must_end(constraint.walk([0], done))
    assert not constraint.must_end(constraint.start)


def test_the_cache_keeps_the_latest_and_tells_languages_and_ends_apart() -> None:
    cache = ConstraintCache(capacity=2)
    built = list[str]()

    def get(text: str, *eos_ids: int) -> Constraint:
        def build() -> Automaton:
            built.append(text)
            return literal(text.encode())

        return cache.get(text, build, BYTES, eos_ids=eos_ids)

    first = get("a", EOS_ID)
    assert get("a", EOS_ID) is first
    other_end = get("a", EOS_ID, PAD_ID)
    assert other_end is not first
    assert get("a", EOS_ID) is first
    get("b", EOS_ID)  # other_end goes
    assert get("a", EOS_ID) is first
    assert built == ["a", "a", "b"]
    assert get("a", EOS_ID, PAD_ID) is not other_end


def refine_empty(
    constraint: Constraint,
    *,
    width: int,
    limit: int,
    logits_RV: np.ndarray | None = None,
    temperature: float = 0.0,
    state: int | None = None,
) -> Refined:
    """A canvas of open positions only."""
    return constraint.refine(
        ids_L=np.full(width, MASK_ID),
        open_L=np.ones(width, dtype=np.bool_),
        answer_start=0,
        window_end=width,
        limit=limit,
        logits_RV=np.zeros((width, 272)) if logits_RV is None else logits_RV,
        predicts_R=np.arange(width),
        temperature=temperature,
        state=state,
    )


def bytes_of(refined: Refined) -> bytes:
    return b"".join(BYTES.tokens_V[token] or b"" for token in refined.path_ids_R)
