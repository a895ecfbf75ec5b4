"""From bytes to tokens: which tokens do the same to an automaton, and what that is.

Two tokens that lead from every state to the same state are one class. A vocabulary of 50 000 tokens has a few hundred
classes, so everything behind this module works on classes.

Shape suffixes: V rows of the model's head, S states (END is the last), B the 256 bytes, K kinds of bytes, C token
classes, E class edges, N all bytes of a vocabulary in a row, F maps found so far.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from unmask.core.canvas import BoolArray, IntArray
from unmask.core.errors import CheckpointError, RequestError
from unmask.grammar.automaton import DEAD, Automaton
from unmask.grammar.build import TooLargeError

NEVER = 0
"""The class of tokens that no accepted text holds."""

_DEAD_MAP, _IDENTITY, _UNKNOWN = 0, 1, -1
_AT_ONCE = 1_000_000
"""Entries of maps that are worked on at a time: bounds the memory."""


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The bytes of every token.

    Args:
        tokens_V: bytes of each id, one for each row of the model's logits; None (or no bytes at all) for special ids
            and for rows without a token.
    """

    tokens_V: tuple[bytes | None, ...]

    @cached_property
    def bytes_N(self) -> NDArray[np.uint8]:
        """uint8: all tokens in a row."""
        return np.frombuffer(b"".join(token or b"" for token in self.tokens_V), dtype=np.uint8)

    @cached_property
    def lengths_V(self) -> IntArray:
        """int64: bytes of each token."""
        return np.array([len(token or b"") for token in self.tokens_V], dtype=np.int64)

    @cached_property
    def fingerprint(self) -> bytes:
        """Equal for equal vocabularies."""
        digest = hashlib.blake2b(self.lengths_V.tobytes(), digest_size=16)
        digest.update(self.bytes_N.tobytes())
        return digest.digest()

    @cached_property
    def by_spelling(self) -> tuple[tuple[bytes, int], ...]:
        """Every token that has bytes, with its id, in the order of its bytes."""
        return tuple(sorted((token, i) for i, token in enumerate(self.tokens_V) if token))


def token_bytes(tokenizer_json: Mapping[str, object], num_rows: int | None = None) -> tuple[bytes | None, ...]:
    """The bytes of every token of a `tokenizer.json`.

    Args:
        tokenizer_json: the parsed file: byte-level BPE (GPT-2, Llama 3, Qwen), or a sentencepiece vocabulary (BPE or
            unigram) with "▁" for a space and `<0x0A>` for single bytes (Llama 2, Gemma).
        num_rows: rows of the model's head; more than the vocabulary has are rows without a token. None: as many as ids.

    Returns:
        Per id its bytes; None for special ids, the unknown token and ids without a token.

    Raises:
        CheckpointError: the tokenizer is of another kind, so what its tokens spell is not known.
    """
    vocabulary, unknown = _vocabulary(_mapping(tokenizer_json.get("model")))
    kinds = _kinds(tokenizer_json.get("decoder"))
    if "ByteLevel" in kinds:
        spell = _byte_level
    elif "ByteFallback" in kinds or "Metaspace" in kinds:
        spell = _sentencepiece
    else:
        raise CheckpointError(
            "the tokenizer is neither byte-level BPE nor sentencepiece; structured output needs one of these"
        )
    spelled: dict[int, bytes | None] = {i: spell(token) for token, i in vocabulary.items()}
    if unknown is not None:
        spelled[vocabulary.get(unknown, -1)] = None
    for entry in cast("Sequence[object]", tokenizer_json.get("added_tokens") or ()):
        added = _mapping(entry)
        content = str(added["content"])
        text = content if spell is _byte_level else content.replace("▁", " ")
        spelled[int(cast("int", added["id"]))] = None if added.get("special") else text.encode()
    if num_rows is None:
        num_rows = max(spelled, default=-1) + 1
    return tuple(spelled.get(i) for i in range(num_rows))


def _vocabulary(model: Mapping[str, object]) -> tuple[dict[str, int], str | None]:
    """Token -> id, and the unknown token."""
    vocabulary, unknown = model.get("vocab"), model.get("unk_token")
    if isinstance(vocabulary, Mapping):
        return dict(cast("Mapping[str, int]", vocabulary)), None if unknown is None else str(unknown)
    pieces = [str(piece[0]) for piece in cast("Sequence[Sequence[object]]", vocabulary or ())]
    unknown_id = model.get("unk_id")
    return {piece: i for i, piece in enumerate(pieces)}, None if unknown_id is None else pieces[cast("int", unknown_id)]


def _kinds(description: object) -> set[str]:
    """All "type" entries of a decoder, those inside sequences included."""
    fields = _mapping(description)
    parts = cast("Sequence[object]", fields.get("decoders") or ())
    return {str(fields.get("type"))}.union(*(_kinds(part) for part in parts))


def _mapping(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins -> bytes."""
    keep = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    moved = sorted(set(range(256)).difference(keep))
    return {chr(byte): byte for byte in keep} | {chr(256 + i): byte for i, byte in enumerate(moved)}


_ALPHABET = _byte_alphabet()


def _byte_level(token: str) -> bytes:
    if any(char not in _ALPHABET for char in token):  # an added token, spelled as it is
        return token.encode()
    return bytes([_ALPHABET[char] for char in token])


def _sentencepiece(token: str) -> bytes:
    if len(token) == len("<0x00>") and token.startswith("<0x") and token.endswith(">"):
        return bytes.fromhex(token[3:5])
    return token.replace("▁", " ").encode()


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenClasses:
    """An automaton over tokens: the states of the byte automaton, and END behind them.

    EOS leads from where a text may end to END, where only EOS and the filler follow. Every edge lies on a way from the
    start to an accepting state.

    Attributes:
        class_V: int32, the class of each token; `NEVER` (0) for tokens that are never allowed.
        class_E: int32, class of each edge; edges are in the order of class, then source.
        source_E: int32, state before it.
        target_E: int32, state behind it.
        distance_S: int32, fewest tokens to an accepting state (0 there and in END); -1 where there is no way.
        start: state before the first token.
    """

    class_V: NDArray[np.int32]
    class_E: NDArray[np.int32]
    source_E: NDArray[np.int32]
    target_E: NDArray[np.int32]
    distance_S: NDArray[np.int32]
    start: int

    @property
    def num_states(self) -> int:
        """States, END included."""
        return len(self.distance_S)

    @property
    def end(self) -> int:
        """The state END."""
        return len(self.distance_S) - 1

    @cached_property
    def num_classes(self) -> int:
        """Classes, `NEVER` included."""
        return int(self.class_V.max(initial=0)) + 1

    @cached_property
    def edges_from_C(self) -> IntArray:
        """int64 [C + 1]: class c has the edges from the c-th value up to the next."""
        return np.searchsorted(self.class_E, np.arange(self.num_classes + 1))

    @cached_property
    def maps_CS(self) -> NDArray[np.int32]:
        """int32 [C, S]: the state behind a token of the class, or -1. Large: for small automata."""
        maps_CS = np.full((self.num_classes, self.num_states), DEAD, dtype=np.int32)
        maps_CS[self.class_E, self.source_E] = self.target_E
        return maps_CS

    @cached_property
    def _steps(self) -> dict[int, int]:
        keys_E = self.source_E.astype(np.int64) * self.num_classes + self.class_E
        return dict(zip(keys_E.tolist(), self.target_E.tolist(), strict=True))

    @cached_property
    def _class_of(self) -> list[int]:
        return self.class_V.tolist()

    def step(self, state: int, token: int) -> int:
        """The state behind a token; -1 where it cannot stand, and from -1."""
        if state < 0 or not 0 <= token < len(self._class_of):
            return DEAD
        return self._steps.get(state * self.num_classes + self._class_of[token], DEAD)


def classify(
    automaton: Automaton,
    vocabulary: Vocabulary,
    *,
    eos_ids: Collection[int],
    filler_ids: Collection[int] = (),
    max_edges: int = 2_000_000,
    param: str | None = None,
) -> TokenClasses:
    """Lifts an automaton over bytes to tokens.

    All tokens are read at once, byte after byte; what a beginning does to the states is computed once for each kind of
    next byte, and beginnings that do the same are one from there on.

    Args:
        automaton: over bytes, without useless states (as `unmask.grammar` builds them).
        vocabulary: bytes of the tokens.
        eos_ids: end the text; at least one. They count as such even if they have bytes.
        filler_ids: what may follow EOS besides EOS itself.
        max_edges: bound on the work and on the memory.
        param: the request field that errors name.

    Raises:
        RequestError: no text of the language can be spelled with these tokens.
        TooLargeError: there are more than `max_edges`.
    """
    maps = _Maps(automaton, max_edges=max_edges, param=param)
    map_V = maps.read(vocabulary)
    end_ids = np.array(sorted(eos_ids), dtype=np.int64)
    filler = np.array(sorted(set(filler_ids).difference(eos_ids)), dtype=np.int64)
    if not len(end_ids) or end_ids[0] < 0 or end_ids[-1] >= len(map_V) or (filler >= len(map_V)).any():
        raise ValueError(f"eos ids {sorted(eos_ids)} and filler ids {filler.tolist()} must be rows of the head")
    end = automaton.num_states
    accepting = np.flatnonzero(automaton.accepting_S)
    map_V[end_ids] = maps.add(np.append(accepting, end), np.full(len(accepting) + 1, end))
    if len(filler):
        map_V[filler] = maps.add(np.array([end]), np.array([end]))
    # The end comes first, whatever its ids: a tie between ending and going on ends.
    used, first, class_V = np.unique(map_V, return_index=True, return_inverse=True)
    first[used == _DEAD_MAP] = -2
    first[np.isin(used, map_V[end_ids])] = -1
    order = np.argsort(first, kind="stable")
    class_V = np.argsort(order)[class_V] + (used[order[0]] != _DEAD_MAP)
    chosen = [maps.of(int(index)) for index in used[order] if index != _DEAD_MAP]
    sizes = [len(source) for source, _ in chosen]
    distance_S, edges = _trimmed(
        np.repeat(np.arange(1, len(chosen) + 1), sizes),
        np.concatenate([source for source, _ in chosen]),
        np.concatenate([target for _, target in chosen]),
        np.append(automaton.accepting_S, True),
        automaton.start,
    )
    if distance_S[automaton.start] < 0:
        raise RequestError("no valid text can be written with the tokens of this model", param=param)
    return _packed(class_V, edges, distance_S, automaton.start)


class _Maps:
    """What beginnings of tokens do to the states: partial maps, held as their (source, target) lists; no two equal."""

    def __init__(self, automaton: Automaton, *, max_edges: int, param: str | None) -> None:
        self._kind_B = automaton.byte_class_B
        self._num_kinds = automaton.num_classes
        _, representative_K = np.unique(self._kind_B, return_index=True)
        self._next_SK = automaton.next_SB[:, representative_K]
        self._max_edges, self._param = max_edges, param
        self._maps: list[tuple[IntArray, IntArray]] = []
        self._numbers: dict[bytes, int] = {}
        self._size = 0
        states = np.arange(automaton.num_states)
        self.add(states[:0], states[:0])
        self.add(states, states)
        self._next_FK = np.full((64, self._num_kinds), _UNKNOWN, dtype=np.int64)

    def of(self, index: int) -> tuple[IntArray, IntArray]:
        return self._maps[index]

    def add(self, source: IntArray, target: IntArray) -> int:
        """The number of a map; a new one if there is none like it. Sources ascend."""
        key = source.astype(np.int32).tobytes() + target.astype(np.int32).tobytes()
        number = self._numbers.setdefault(key, len(self._maps))
        if number == len(self._maps):
            self._maps.append((source, target))
            self._size += len(source)
            if self._size > self._max_edges:
                raise TooLargeError(
                    f"needs more than {self._max_edges} transitions between tokens; use smaller bounds or less of it",
                    param=self._param,
                )
        return number

    def read(self, vocabulary: Vocabulary) -> IntArray:
        """int64 [V]: the map of each token; the dead one for those without bytes."""
        map_V = np.full(len(vocabulary.tokens_V), _DEAD_MAP, dtype=np.int64)
        lengths_V = vocabulary.lengths_V
        starts_V = np.cumsum(lengths_V) - lengths_V
        alive = np.flatnonzero(lengths_V > 0)
        map_V[alive] = _IDENTITY
        depth = 0
        while len(alive):
            kind = self._kind_B[vocabulary.bytes_N[starts_V[alive] + depth]]
            reached = self._extend(map_V[alive] * self._num_kinds + kind)
            map_V[alive] = reached
            depth += 1
            alive = alive[(reached != _DEAD_MAP) & (lengths_V[alive] > depth)]
        return map_V

    def _extend(self, keys: IntArray) -> IntArray:
        """The maps behind one more byte; a key is map * K + kind."""
        known = self._next_FK.reshape(-1)
        found = known[keys]
        missing = np.unique(keys[found == _UNKNOWN])
        if len(missing):
            sizes = np.array([len(self._maps[int(key) // self._num_kinds][0]) for key in missing])
            cuts = np.flatnonzero(np.diff(np.cumsum(sizes) // _AT_ONCE)) + 1
            for part in np.split(missing, cuts):
                self._compose(part)
            found = self._next_FK.reshape(-1)[keys]
        return found

    def _compose(self, keys: IntArray) -> None:
        before, kinds = np.divmod(keys, self._num_kinds)
        numbers: list[int] = before.tolist()
        pieces = [self._maps[number] for number in numbers]
        sizes = np.array([len(source) for source, _ in pieces])
        source = np.concatenate([source for source, _ in pieces])
        target = self._next_SK[np.concatenate([target for _, target in pieces]), np.repeat(kinds, sizes)]
        live = target >= 0
        ends = np.cumsum(live)[np.cumsum(sizes) - 1]
        source, target = source[live], target[live].astype(np.int64)
        first = 0
        reached: list[int] = []
        for last in map(int, ends):
            reached.append(self.add(source[first:last], target[first:last]))
            first = last
        rows = len(self._next_FK)
        if len(self._maps) > rows:
            grown = np.full((2 * len(self._maps), self._num_kinds), _UNKNOWN, dtype=np.int64)
            grown[:rows] = self._next_FK
            self._next_FK = grown
        self._next_FK[before, kinds] = reached


_EdgeLists = tuple[IntArray, IntArray, IntArray]


def _trimmed(
    class_E: IntArray, source_E: IntArray, target_E: IntArray, accepting_S: BoolArray, start: int
) -> tuple[NDArray[np.int32], _EdgeLists]:
    """Tokens to an accepting state, and the edges that lie on a way there from the start."""
    num_states = len(accepting_S)
    pairs = np.unique(source_E * num_states + target_E)
    source_P, target_P = np.divmod(pairs, num_states)
    distance_S = _distances(target_P, source_P, accepting_S)
    at_start = np.zeros(num_states, dtype=np.bool_)
    at_start[start] = True
    useful_S = (distance_S >= 0) & (_distances(source_P, target_P, at_start) >= 0)
    kept = useful_S[source_E] & useful_S[target_E]
    return distance_S, (class_E[kept], source_E[kept], target_E[kept])


def _distances(from_P: IntArray, to_P: IntArray, sources_S: BoolArray) -> NDArray[np.int32]:
    distance_S = np.full(len(sources_S), -1, dtype=np.int32)
    frontier_S, steps = sources_S, 0
    while frontier_S.any():
        distance_S[frontier_S] = steps
        reached_S = np.zeros(len(sources_S), dtype=np.bool_)
        reached_S[to_P[frontier_S[from_P]]] = True
        frontier_S, steps = reached_S & (distance_S < 0), steps + 1
    return distance_S


def _packed(class_V: IntArray, edges: _EdgeLists, distance_S: NDArray[np.int32], start: int) -> TokenClasses:
    """Numbers the classes that have edges left from 1; the others are never allowed."""
    class_E, source_E, target_E = edges
    used, class_E = np.unique(class_E, return_inverse=True)
    number = np.zeros(int(class_V.max(initial=0)) + 1, dtype=np.int32)
    number[used] = np.arange(1, len(used) + 1)
    return TokenClasses(
        class_V=number[class_V],
        class_E=(class_E + 1).astype(np.int32),
        source_E=source_E.astype(np.int32),
        target_E=target_E.astype(np.int32),
        distance_S=distance_S,
        start=start,
    )
