"""The specification of constrained decoding, by trying everything: for automata and vocabularies of a few entries."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from tests.tiny import EOS_ID, byte_tokenizer
from unmask.grammar.automaton import Automaton, from_edges
from unmask.grammar.constraint import Constraint
from unmask.grammar.tokens import Vocabulary, token_bytes

EOS, FILLER, SPECIAL = 0, 1, 2
"""Ids of every toy vocabulary; the others spell texts over "ab"."""

BYTES = Vocabulary(token_bytes(json.loads(byte_tokenizer().to_str()), num_rows=272))
"""The tiny checkpoint's: one token per byte."""
PAD_ID = 0


@dataclass(frozen=True)
class Toy:
    automaton: Automaton
    vocabulary: Vocabulary

    @property
    def size(self) -> int:
        return len(self.vocabulary.tokens_V)

    def shortest(self, state: int) -> float:
        """Fewest tokens to an accepting state, by relaxing all distances as often as there are states."""
        automaton = self.automaton
        distance = [0.0 if accepting else np.inf for accepting in automaton.accepting_S]
        for _ in distance:
            for source in range(automaton.num_states):
                for token in self.vocabulary.tokens_V:
                    target = self.read(source, token) if token else -1
                    if target >= 0:
                        distance[source] = min(distance[source], 1 + distance[target])
        return distance[state]

    def read(self, state: int, text: bytes) -> int:
        for byte in text:
            state = int(self.automaton.next_SB[state, byte]) if state >= 0 else -1
        return state

    def accepts(self, tokens: tuple[int, ...], room: int) -> bool:
        """Whether the tokens, with `room` more behind them, can be a text, EOS and filler."""
        state, ended = self.automaton.start, False
        for token in tokens:
            if ended:
                if token not in (EOS, FILLER):
                    return False
            elif token == EOS:
                ended = bool(self.automaton.accepting_S[state])
                if not ended:
                    return False
            else:
                state = self.read(state, self.vocabulary.tokens_V[token] or b"\0")
                if state < 0:
                    return False
        return ended or self.shortest(state) <= room

    def fillings(self, width: int, room: int) -> Iterator[tuple[int, ...]]:
        return (tokens for tokens in product(range(self.size), repeat=width) if self.accepts(tokens, room))


def draw_toy(rng: np.random.Generator) -> Toy:
    """A random automaton of up to 5 states over "ab" whose shortest text has tokens, and 3 or 4 tokens that spell."""
    texts = [b"a", b"b", b"ab", b"ba", b"aa", b"bb", b"aba", b"bab"]
    while True:
        num_states = int(rng.integers(1, 6))
        edges: list[dict[int, int]] = []
        for _ in range(num_states):
            out: dict[int, int] = {}
            for byte in b"ab":
                target = int(rng.integers(-1, num_states))
                if target >= 0:
                    out[target] = out.get(target, 0) | 1 << byte
            edges.append(out)
        automaton = from_edges(edges, [state for state in range(num_states) if rng.random() < 0.4])
        spelled = [texts[i] for i in rng.permutation(len(texts))[: int(rng.integers(3, 5))]]
        toy = Toy(automaton, Vocabulary((None, None, None, *spelled)))
        if np.isfinite(toy.shortest(automaton.start)):
            return toy


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def compile_toy(toy: Toy) -> Constraint:
    return Constraint.compile(toy.automaton, toy.vocabulary, eos_ids=[EOS], filler_ids=[FILLER])


def compile_bytes(automaton: Automaton, vocabulary: Vocabulary = BYTES) -> Constraint:
    return Constraint.compile(automaton, vocabulary, eos_ids=[EOS_ID], filler_ids=[PAD_ID])
