"""Bytes of tokens, and classes of tokens against walking every token from every state."""

import json

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models

from tests.grammar.brute import EOS, FILLER, SPECIAL, draw_toy
from tests.tiny import EOS_ID, byte_tokenizer
from unmask.core.errors import CheckpointError, RequestError
from unmask.grammar.build import literal, nothing, repeat, union
from unmask.grammar.schema import compile_schema
from unmask.grammar.tokens import NEVER, Vocabulary, classify, token_bytes
from unmask.text.tokenizer import Tokenizer as TextTokenizer

# --- bytes ---------------------------------------------------------------------------------------------------------


def test_byte_level_tokens_spell_what_the_tokenizer_decodes() -> None:
    backend = byte_tokenizer()
    backend.add_tokens([AddedToken("<tool_call>", special=False), AddedToken("naïve", special=False)])
    spelled = token_bytes(json.loads(backend.to_str()))
    text = TextTokenizer(backend)
    assert len(spelled) == text.vocab_size
    for i, token in enumerate(spelled):
        assert token is None if i in text.special_ids else token == text.token_bytes(i)
    assert sorted(token for token in spelled if token and len(token) == 1) == [bytes([byte]) for byte in range(256)]


def sentencepiece_tokenizer() -> Tokenizer:
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "é", "▁a", "▁▁", "日本"]
    tokenizer = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in pieces[:3]])
    tokenizer.add_tokens([AddedToken("\n\n", special=False)])
    return tokenizer


def test_sentencepiece_tokens_spell_what_the_tokenizer_decodes() -> None:
    tokenizer = sentencepiece_tokenizer()
    spelled = token_bytes(json.loads(tokenizer.to_str()), num_rows=280)
    size = tokenizer.get_vocab_size()
    assert spelled[:3] == (None, None, None)
    assert spelled[size:] == (None,) * (280 - size)
    assert spelled[3:259] == tuple(bytes([byte]) for byte in range(256))
    for i in range(259, size):
        assert (spelled[i] or b"").decode() == tokenizer.decode([i])


def test_unigram_vocabularies_are_lists_and_name_the_unknown_by_id() -> None:
    description = {
        "model": {"type": "Unigram", "unk_id": 1, "vocab": [["<pad>", 0.0], ["<unk>", 0.0], ["▁the", -1.5]]},
        "decoder": {"type": "Metaspace", "replacement": "▁"},
        "added_tokens": [{"id": 0, "content": "<pad>", "special": True}],
    }
    assert token_bytes(description) == (None, None, b" the")
    assert token_bytes(description, num_rows=2) == (None, None)


def test_other_tokenizers_are_refused() -> None:
    with pytest.raises(CheckpointError, match="neither byte-level BPE nor sentencepiece"):
        token_bytes({"model": {"type": "WordPiece", "vocab": {"a": 0}}, "decoder": {"type": "WordPiece"}})


def test_equal_vocabularies_have_equal_fingerprints() -> None:
    assert Vocabulary((b"ab", b"c", None)).fingerprint == Vocabulary((b"ab", b"c", b"")).fingerprint
    assert Vocabulary((b"ab", b"c")).fingerprint != Vocabulary((b"a", b"bc")).fingerprint


# --- classes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(25))
def test_maps_and_distances_equal_walking_every_token_from_every_state(seed: int) -> None:
    toy = draw_toy(np.random.default_rng(seed))
    automaton = toy.automaton
    classes = classify(automaton, toy.vocabulary, eos_ids=[EOS], filler_ids=[FILLER])
    end = automaton.num_states
    reachable, queue = {automaton.start}, [automaton.start]
    for state in queue:
        for token in toy.vocabulary.tokens_V:
            target = toy.read(state, token) if token else -1
            if target >= 0 and np.isfinite(toy.shortest(target)) and target not in reachable:
                reachable.add(target)
                queue.append(target)
    for state in range(automaton.num_states):
        shortest = toy.shortest(state)
        assert classes.distance_S[state] == (shortest if np.isfinite(shortest) else -1)
    for state in sorted(reachable):
        for token, text in enumerate(toy.vocabulary.tokens_V):
            target = toy.read(state, text) if text else -1
            expected = target if target >= 0 and np.isfinite(toy.shortest(target)) else -1
            if token == EOS and automaton.accepting_S[state]:
                expected = end
            assert classes.step(state, token) == expected
            assert classes.maps_CS[classes.class_V[token], state] == expected
    assert classes.step(end, EOS) == classes.step(end, FILLER) == end
    assert all(classes.step(end, token) == -1 for token in range(SPECIAL, toy.size))
    assert classes.class_V[SPECIAL] == NEVER
    assert classes.step(-1, EOS) == classes.step(0, toy.size) == -1


def test_tokens_of_one_class_do_the_same_and_of_two_do_not() -> None:
    vocabulary = Vocabulary((None, *(bytes([byte]) for byte in range(256)), b"ab", b"ba", b'a"', b'\\"a', b"12", b""))
    automaton = compile_schema({"type": "string"})
    classes = classify(automaton, vocabulary, eos_ids=[0])
    columns: dict[bytes, int] = {}
    for token, text in enumerate(vocabulary.tokens_V[1:], start=1):
        walked = [walk(automaton.next_SB, state, text or b"\xff") for state in range(automaton.num_states)]
        dead = all(state < 0 for state in walked)
        token_class = int(classes.class_V[token])
        assert (token_class == NEVER) == dead
        if not dead:
            assert columns.setdefault(np.array(walked).tobytes(), token_class) == token_class
    assert len(set(columns.values())) == len(columns)


def walk(next_SB: np.ndarray, state: int, text: bytes) -> int:
    for byte in text:
        state = int(next_SB[state, byte]) if state >= 0 else -1
    return state


def test_a_real_vocabulary_with_a_schema_follows_every_valid_text() -> None:
    vocabulary = Vocabulary(token_bytes(json.loads(byte_tokenizer().to_str()), num_rows=272))
    automaton = compile_schema(
        {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}, "required": ["n"]}
    )
    classes = classify(automaton, vocabulary, eos_ids=[EOS_ID])
    for text in (b'{"n": 0}', '{"n": -12, "s": "né\\n日"}'.encode()):
        state = classes.start
        for position, byte in enumerate(text):
            assert classes.step(state, EOS_ID) == -1, position
            state = classes.step(state, vocabulary.tokens_V.index(bytes([byte])))
        assert classes.distance_S[state] == 0
        assert classes.step(state, EOS_ID) == classes.end
    assert classes.distance_S[classes.start] == len('{"n": 0}')


def test_ends_count_as_such_even_with_bytes() -> None:
    classes = classify(literal(b"a"), Vocabulary((b"a", b"a")), eos_ids=[1])
    assert classes.step(classes.start, 1) == -1
    assert classes.step(classes.step(classes.start, 0), 1) == classes.end


def test_a_language_that_the_tokens_cannot_spell_is_refused() -> None:
    for automaton in (literal(b"abc"), nothing()):
        with pytest.raises(RequestError, match="no valid text") as caught:
            classify(automaton, Vocabulary((None, b"a", b"b")), eos_ids=[0], param="response_format")
        assert caught.value.param == "response_format"


def test_states_that_tokens_cannot_leave_are_not_entered() -> None:
    """ "ad" needs a token that does not exist, so "a" must not be followed by nothing."""
    automaton = union(literal(b"ad"), literal(b"ab"), literal(b"ac"))
    classes = classify(automaton, Vocabulary((None, b"a", b"ab", b"e")), eos_ids=[0])
    assert classes.step(classes.start, 1) == -1
    assert classes.step(classes.start, 2) >= 0
    assert classes.class_V.tolist()[1] == classes.class_V.tolist()[3] == NEVER


def test_too_many_transitions_are_refused() -> None:
    automaton = repeat(union(literal(b"a"), literal(b"b")), 0, 50)
    with pytest.raises(RequestError, match="transitions between tokens"):
        classify(automaton, Vocabulary((None, b"a", b"b", b"aa")), eos_ids=[0], max_edges=60)


def test_ends_outside_the_head_are_a_mistake() -> None:
    for ends in ([], [5]):
        with pytest.raises(ValueError, match="rows of the head"):
            classify(literal(b"a"), Vocabulary((None, b"a")), eos_ids=ends)
