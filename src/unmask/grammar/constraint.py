"""A constraint on an answer: what its positions may become, given what is decided and how many tokens are left.

Compiled once per (automaton, vocabulary, end ids), immutable, and free of any state of a request: a request's state is
its canvas.

Shape suffixes: L positions of the canvas, R rows read, V rows of the model's head, W positions of the lattice.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from unmask.core.canvas import BoolArray, IntArray
from unmask.core.constraint import Refined
from unmask.core.errors import EngineError, RequestError
from unmask.grammar.automaton import DEAD, Automaton
from unmask.grammar.lattice import FloatArray, Lattice, Logits, reduce_row
from unmask.grammar.network import ENDED, OPEN, Layer, Network, Selection
from unmask.grammar.tokens import TokenClasses, Vocabulary, classify


@dataclass(frozen=True, kw_only=True, eq=False)
class Constraint:
    """The language of the answer in tokens.

    Args:
        automaton: the language in bytes.
        vocabulary: bytes of each row of the model's head.
        classes: `classify(automaton, vocabulary, ...)`.
        encode: text to token ids, specials not parsed; without it no text is forced.
    """

    automaton: Automaton
    vocabulary: Vocabulary
    classes: TokenClasses
    encode: Callable[[str], Sequence[int]] | None = None

    @classmethod
    def compile(
        cls,
        automaton: Automaton,
        vocabulary: Vocabulary,
        *,
        eos_ids: Collection[int],
        filler_ids: Collection[int] = (),
        encode: Callable[[str], Sequence[int]] | None = None,
        param: str | None = None,
    ) -> "Constraint":
        """Lifts an automaton to tokens.

        Args:
            automaton: as `unmask.grammar` builds them.
            vocabulary: exactly as many tokens as the logits have columns.
            eos_ids: end the answer; at least one.
            filler_ids: what may fill the positions behind the end, besides these (the model's padding).
            encode: as in the class.
            param: the request field that errors name.

        Raises:
            RequestError: no text of the language can be written with these tokens, or it takes too many transitions.
        """
        classes = classify(automaton, vocabulary, eos_ids=eos_ids, filler_ids=filler_ids, param=param)
        compiled = cls(automaton=automaton, vocabulary=vocabulary, classes=classes, encode=encode)
        compiled.network.prepare()
        return compiled

    @cached_property
    def network(self) -> Network:
        """The classes, prepared for lattices."""
        return Network(classes=self.classes)

    @property
    def start(self) -> int:
        """State before the answer."""
        return self.classes.start

    @property
    def minimum_tokens(self) -> int:
        """Fewest tokens of any accepted answer, EOS not counted."""
        return self.shortest(self.start)

    def shortest(self, state: int) -> int:
        """Fewest tokens from a state to where the answer may end, EOS not counted; -1 where there is no way."""
        return int(self.classes.distance_S[state]) if state != DEAD else DEAD

    def check_max_tokens(self, max_tokens: int, param: str = "max_tokens") -> None:
        """Admission of a request.

        Raises:
            RequestError: no accepted answer is that short.
        """
        if max_tokens < self.minimum_tokens:
            raise RequestError(
                f"max_tokens is {max_tokens}, but the shortest answer the schema allows has {self.minimum_tokens} "
                f"tokens; give at least {self.minimum_tokens}",
                param=param,
            )

    def walk(self, ids: Sequence[int], state: int | None = None) -> int:
        """The state behind some tokens, from the start or another state; -1 if they leave the language."""
        state = self.start if state is None else state
        for token in ids:
            state = self.classes.step(state, token)
        return state

    def is_complete(self, state: int) -> bool:
        """Whether the answer may end here (or has ended)."""
        return self.shortest(state) == 0

    def has_ended(self, state: int) -> bool:
        """Whether EOS has come."""
        return state == self.classes.end

    def must_end(self, state: int) -> bool:
        """Whether nothing but EOS may follow."""
        return self.is_complete(state) and (self.has_ended(state) or not (self.automaton.next_SB[state] >= 0).any())

    def forced_text(self, *, room: int, state: int | None = None) -> list[int]:
        """Tokens that may be placed before any forward: the text that every accepted continuation begins with.

        The automaton takes every way to cut a text into tokens, the model was trained on one. So the forced text is
        encoded as the model would read it, and cut before the first token that a longer one could replace: one that
        begins at the same place and goes on behind the forced text.

        Args:
            room: tokens left; the result leaves enough of them to complete the answer.
            state: where; the start by default.

        Returns:
            Ids, possibly none.
        """
        state = self.start if state is None else state
        forced, ids = self._forced_bytes(state), list[int]()
        if self.encode is None or not forced:
            return ids
        try:
            encoded = self.encode(forced.decode())
        except UnicodeDecodeError:  # forced up to within a character
            encoded = self.encode(forced.decode(errors="ignore"))
        for token in encoded:
            following = self.classes.step(state, token)
            if following == DEAD or self.shortest(following) > room - len(ids) - 1:
                break
            spelled = self.vocabulary.tokens_V[token] or b""
            if not forced.startswith(spelled) or self._overruns(state, forced):
                break
            ids.append(token)
            state, forced = following, forced[len(spelled) :]
        return ids

    def _forced_bytes(self, state: int) -> bytes:
        """The longest text that every accepted continuation begins with."""
        text = bytearray()
        while state < self.automaton.num_states and not self.automaton.accepting_S[state]:
            following = np.flatnonzero(self.automaton.next_SB[state] >= 0)
            if len(following) != 1:
                break
            text.append(int(following[0]))
            state = int(self.automaton.next_SB[state, following[0]])
        return bytes(text)

    def _overruns(self, state: int, text: bytes) -> bool:
        """Whether a token that can stand here goes on behind the text."""
        tokens = self.vocabulary.by_spelling
        at = bisect_right(tokens, text, key=lambda entry: entry[0])
        while at < len(tokens) and tokens[at][0].startswith(text):
            if self.classes.step(state, tokens[at][1]) != DEAD:
                return True
            at += 1
        return False

    def refine(
        self,
        *,
        ids_L: IntArray,
        open_L: BoolArray,
        answer_start: int,
        window_end: int,
        limit: int,
        logits_RV: Logits,
        predicts_R: IntArray,
        temperature: float = 0.0,
        uniforms_R2: FloatArray | None = None,
        state: int | None = None,
    ) -> Refined:
        """Refines the model's belief.

        The lattice reaches from the first open position of the answer to the end of the window, or to the last decided
        position if that is later; all decided positions in it are evidence. A position that may be edited must be
        passed as open. Of an open position that no row predicts nothing is believed. AR is a window of one position.

        Args:
            ids_L: the canvas.
            open_L: positions still undecided; those behind the end of the canvas are open too.
            answer_start: first position of the constrained text, all positions from here on are constrained.
            window_end: position behind the window.
            limit: position at which the answer must end. Behind it only EOS and filler stand.
            logits_RV: float32 or float64, one row for each value of `predicts_R`.
            predicts_R: positions in [answer_start, window_end); of equal ones the last row counts.
            temperature: 0 takes the most probable accepted filling, else one is drawn from the beliefs at that
                temperature, given the constraint. (Exact for rows that come before all open positions without one.)
            uniforms_R2: in [0, 1), for each row; only and always if `temperature` > 0.
            state: the state before `answer_start`, if the constrained text began earlier; the start by default.

        Raises:
            EngineError: the decided tokens have no accepted completion within the limit; cannot happen if what was
                decided came from earlier calls and `check_max_tokens` passed.
        """
        if logits_RV.shape != (len(predicts_R), len(self.vocabulary.tokens_V)):
            raise ValueError(f"logits of shape {logits_RV.shape} for {len(predicts_R)} rows of this vocabulary")
        if len(predicts_R) and not answer_start <= predicts_R.min() <= predicts_R.max() < window_end:
            raise ValueError(f"rows must predict positions in [{answer_start}, {window_end})")
        if temperature > 0 and (uniforms_R2 is None or uniforms_R2.shape != (len(predicts_R), 2)):
            raise ValueError("drawing needs two uniforms for each row")
        window = self._window(ids_L, open_L, answer_start, window_end, limit, state)
        row_at = {int(position) - window.begin: row for row, position in enumerate(predicts_R)}
        layers = self.network.layers(window.start, window.evidence_W, window.final_S)
        logits_W = [logits_RV[row_at[index]] if index in row_at else None for index in range(len(layers))]
        believed, *others = self._lattices(window, layers, logits_W, {1.0, temperature or 1.0})
        if temperature > 0 and uniforms_R2 is not None:
            uniforms_W2 = np.full((len(layers), 2), np.nan)
            for index, row in row_at.items():
                if index >= 0:
                    uniforms_W2[index] = uniforms_R2[row]
            path = (others or [believed])[0].draw(uniforms_W2)
        else:
            path = believed.best()
        return _answer(believed, window, path, ids_L, predicts_R)

    def _lattices(
        self, window: "_Window", layers: Sequence[Layer], logits_W: Sequence[Logits | None], temperatures: set[float]
    ) -> list[Lattice]:
        """One per temperature, that of 1 first."""
        selections = self._selections(layers)
        lattices: list[Lattice] = []
        for temperature in sorted(temperatures, key=lambda temperature: temperature != 1):
            rows = [
                None if decided else reduce_row(logits_V, selection, temperature, len(self.vocabulary.tokens_V))
                for decided, logits_V, selection in zip(window.decided_W, logits_W, selections, strict=True)
            ]
            lattices.append(
                Lattice(network=self.network, start=window.start, final_S=window.final_S, layers_W=layers, rows_W=rows)
            )
        return lattices

    def _window(
        self, ids_L: IntArray, open_L: BoolArray, answer_start: int, window_end: int, limit: int, state: int | None
    ) -> "_Window":
        """Where the lattice lies, what is known there, and in which state it begins."""
        decided = answer_start + np.flatnonzero(~open_L[answer_start:])
        is_open = np.flatnonzero(open_L[answer_start:])
        begin = answer_start + (int(is_open[0]) if len(is_open) else max(len(open_L) - answer_start, 0))
        end = max(window_end, int(decided[-1]) + 1 if len(decided) else begin, begin)
        state = self.walk(ids_L[answer_start : min(begin, limit)].tolist(), state)
        if begin > limit and self.is_complete(state):
            state = self.classes.end  # what was decided behind the limit is filler
        if state == DEAD:
            raise EngineError("the decided tokens are no beginning of a text of the constraint")
        decided_W = np.zeros(end - begin, dtype=np.bool_)
        decided_W[decided[decided >= begin] - begin] = True
        positions_W = np.arange(begin, end)
        evidence_W = np.full(end - begin, OPEN)
        evidence_W[decided_W] = self.classes.class_V[ids_L[positions_W[decided_W]]]
        evidence_W[positions_W >= limit] = ENDED
        distance_S = self.classes.distance_S
        return _Window(
            begin=begin,
            start=state,
            evidence_W=evidence_W.tolist(),
            decided_W=decided_W,
            final_S=(distance_S >= 0) & (distance_S <= max(limit - end, 0)),
        )

    def _selections(self, layers: Sequence[Layer]) -> list[Selection]:
        """What can stand at each position; positions alike share one."""
        known: dict[bytes, Selection] = {}
        selections: list[Selection] = []
        for layer in layers:
            groups = np.unique(layer.group_P[layer.group_P >= 0])
            key = groups.tobytes()
            if key not in known:
                known[key] = self.network.select(groups)
            selections.append(known[key])
        return selections


@dataclass(frozen=True, kw_only=True, eq=False)
class _Window:
    """The lattice of one call: its first position, the state before it, what is known, and how it may end."""

    begin: int
    start: int
    evidence_W: list[int]
    decided_W: BoolArray
    final_S: BoolArray


def _answer(
    lattice: Lattice, window: _Window, path: list[int | None], ids_L: IntArray, predicts_R: IntArray
) -> Refined:
    """Reads the path and its marginals at the positions of the rows."""
    path_ids_R = np.zeros(len(predicts_R), dtype=np.int64)
    confidence_R = np.ones(len(predicts_R))
    forced_R = np.ones(len(predicts_R), dtype=np.bool_)
    for row, position in enumerate(map(int, predicts_R)):
        index = position - window.begin
        token = path[index] if index >= 0 else None
        if token is None:
            path_ids_R[row] = ids_L[position]
            continue
        path_ids_R[row] = token
        confidence_R[row] = np.exp(lattice.log_marginal(index, token))
        forced_R[row] = lattice.is_forced(index)
    return Refined(path_ids_R=path_ids_R, confidence_R=confidence_R, forced_R=forced_R, log_z=lattice.log_z)


@dataclass(kw_only=True, eq=False)
class ConstraintCache:
    """Compiled constraints, least recently used out first. Safe to share between threads.

    Args:
        capacity: constraints kept; at least 1.
    """

    capacity: int = 64
    _entries: dict[Hashable, Constraint] = field(default_factory=dict[Hashable, Constraint], init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def get(
        self,
        source: Hashable,
        build: Callable[[], Automaton],
        vocabulary: Vocabulary,
        *,
        eos_ids: Collection[int],
        filler_ids: Collection[int] = (),
        encode: Callable[[str], Sequence[int]] | None = None,
        param: str | None = None,
    ) -> Constraint:
        """The constraint, compiled if it is not there.

        Args:
            source: what the language is made of: equal values must mean equal languages (a schema as sorted JSON).
            build: makes the automaton; called only if the constraint is not there.
            vocabulary: as in `Constraint.compile`, like all below.
            eos_ids: end the answer.
            filler_ids: may fill the positions behind the end.
            encode: of the vocabulary's tokenizer.
            param: the request field that errors name.

        Raises:
            RequestError: from `build` or `Constraint.compile`; nothing is kept then.
        """
        key = (source, vocabulary.fingerprint, frozenset(eos_ids), frozenset(filler_ids))
        with self._lock:
            found = self._entries.pop(key, None)
            if found is not None:
                self._entries[key] = found
                return found
        compiled = Constraint.compile(
            build(), vocabulary, eos_ids=eos_ids, filler_ids=filler_ids, encode=encode, param=param
        )
        with self._lock:
            self._entries[key] = compiled
            while len(self._entries) > self.capacity:
                del self._entries[next(iter(self._entries))]
        return compiled
