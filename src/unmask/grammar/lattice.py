"""Exact decoding over a window: all accepted ways to fill it, weighed at once.

The lattice of a window has one layer per position; a layer holds the (state, state) pairs that some accepted filling
passes there. Weights are products over positions, so maxima, sums and draws over all fillings are one pass over it.

Shape suffixes: W positions of the window, V rows of the model's head, T tokens of a selection, S states (END is the
last), C token classes, P pairs of a layer, G groups: distinct sets of classes that join two states.

Source: DINGO, arXiv 2505.23061 (the dynamic program over positions and states of the automaton).
Departs from the source: it runs on classes of tokens that are told apart by nothing; besides the best filling it gives
the partition function, exact marginals and exact draws; decided tokens are evidence at any position; the last state is
restricted to those that can still be completed within the tokens left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unmask.core.canvas import BoolArray, IntArray
from unmask.grammar.network import Layer, Network, Selection

FloatArray = NDArray[np.float64]
Logits = NDArray[np.float32] | NDArray[np.float64]

_FLOOR = -1e4
"""Log-probability (before normalising) of tokens that the logits exclude, relative to the best token of the row. Its
exponential is 0 next to any other, yet a position where all allowed tokens are excluded keeps a way through."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Row:
    """The model's belief about one position, reduced to what the lattice needs.

    Attributes:
        selection: the tokens that can stand there.
        log_p_T: log-probability of each token of the selection, over the whole vocabulary.
        best_G: log-probability of the best token per group of the selection.
        sum_G: log of the probability of the whole group.
    """

    selection: Selection
    log_p_T: FloatArray
    best_G: FloatArray
    sum_G: FloatArray


def reduce_row(logits_V: Logits | None, selection: Selection, temperature: float, num_rows: int) -> Row:
    """Maxima and sums per group.

    Args:
        logits_V: float32 or float64; None is a model that knows nothing. NaN counts as excluded.
        selection: the tokens that can stand there.
        temperature: divides the logits; > 0.
        num_rows: V, for None.
    """
    if logits_V is None:
        log_p_T = np.full(len(selection.tokens), -np.log(num_rows))
    else:
        scaled_V = _scaled(logits_V, temperature)
        log_p_T = scaled_V[selection.tokens].astype(np.float64)
        log_p_T -= np.log(np.exp(scaled_V).sum(dtype=np.float64))
    best_C = np.maximum.reduceat(log_p_T, selection.token_from)
    spread_T = np.exp(log_p_T - np.repeat(best_C, selection.token_counts))
    sum_C = best_C + np.log(np.add.reduceat(spread_T, selection.token_from))
    best_G = np.maximum.reduceat(best_C[selection.member], selection.member_from)
    sum_M = sum_C[selection.member]
    top_G = np.maximum.reduceat(sum_M, selection.member_from)
    spread_M = np.exp(sum_M - np.repeat(top_G, selection.member_counts))
    sum_G = top_G + np.log(np.add.reduceat(spread_M, selection.member_from))
    return Row(selection=selection, log_p_T=log_p_T, best_G=best_G, sum_G=sum_G)


def _scaled(logits_V: Logits, temperature: float) -> Logits:
    """Logits over temperature, at most 0 and at least `_FLOOR`."""
    top = float(logits_V.max())
    if not np.isfinite(top):
        largest = float(np.finfo(logits_V.dtype).max) / 4
        logits_V = np.minimum(logits_V, logits_V.dtype.type(largest))
        logits_V[np.isnan(logits_V)] = -np.inf
        top = float(logits_V.max())
        if top == -np.inf:
            return np.zeros_like(logits_V)
    with np.errstate(over="ignore"):  # what overflows lands on the floor
        scaled_V = logits_V - logits_V.dtype.type(top)
        scaled_V /= logits_V.dtype.type(max(temperature, 1e-6))
    return np.maximum(scaled_V, logits_V.dtype.type(_FLOOR), out=scaled_V)


@dataclass(frozen=True, kw_only=True, eq=False)
class Lattice:
    """All accepted fillings of a window under one product of beliefs.

    Args:
        network: the automaton.
        start: state before the window.
        final_S: states in which the window may end.
        layers_W: from `Network.layers`, of the same start and end.
        rows_W: belief per position; None where the token is decided.
    """

    network: Network
    start: int
    final_S: BoolArray
    layers_W: Sequence[Layer]
    rows_W: Sequence[Row | None]

    def _weights(self, index: int, *, best: bool = False) -> FloatArray:
        """Log-weight of each pair of a layer."""
        row, layer = self.rows_W[index], self.layers_W[index]
        if row is None:
            return np.zeros(len(layer.group_P))
        weights_G = np.full(len(self.network.groups), -np.inf)
        weights_G[row.selection.groups] = row.best_G if best else row.sum_G
        return weights_G[layer.group_P]

    def _completions(self, *, best: bool) -> list[FloatArray]:
        """Per position and state, the log-weight of all (or of the best) ways from before it to the end."""
        behind_S = np.where(self.final_S, 0.0, -np.inf)
        completions = [behind_S]
        for index in range(len(self.layers_W) - 1, -1, -1):
            layer = self.layers_W[index]
            weights_P = self._weights(index, best=best) + behind_S[layer.target_P]
            behind_S = _gather(layer.source_P, weights_P, len(behind_S), best=best)
            completions.append(behind_S)
        return completions[::-1]

    @cached_property
    def _sums(self) -> list[FloatArray]:
        return self._completions(best=False)

    @cached_property
    def _arrivals(self) -> list[FloatArray]:
        """Per position and state, the log-weight of all ways from the start to before it."""
        before_S = np.full(len(self.final_S), -np.inf)
        before_S[self.start] = 0.0
        arrivals = [before_S]
        for index, layer in enumerate(self.layers_W):
            weights_P = self._weights(index) + before_S[layer.source_P]
            before_S = _gather(layer.target_P, weights_P, len(before_S), best=False)
            arrivals.append(before_S)
        return arrivals

    @property
    def log_z(self) -> float:
        """Log-probability that tokens drawn independently at the open positions make an accepted filling."""
        return float(self._sums[0][self.start])

    def log_marginal(self, index: int, token: int) -> float:
        """Log-probability of a token at an open position, given the constraint and the evidence.

        Args:
            index: position in the window; must be open.
            token: -inf for one that cannot stand there.
        """
        row = self.rows_W[index]
        if row is None:
            raise ValueError(f"position {index} of the window is decided")
        selection, token_class = row.selection, int(self.network.classes.class_V[token])
        place = int(np.searchsorted(selection.classes, token_class))
        if place == len(selection.classes) or selection.classes[place] != token_class:
            return -np.inf
        source_P, target_P = self.network.edges_of(token_class)
        ways_P = self._arrivals[index][source_P] + self._sums[index + 1][target_P]
        top = ways_P.max()
        first = int(selection.token_from[place])
        at = first + int(np.searchsorted(selection.tokens[first : first + selection.token_counts[place]], token))
        total = top + np.log(np.exp(ways_P - top).sum()) + row.log_p_T[at]
        return min(float(total - self.log_z), 0.0)

    def is_forced(self, index: int) -> bool:
        """Whether only one token can stand at a position, whatever is believed."""
        row = self.rows_W[index]
        return row is None or len(row.selection.tokens) == 1

    def best(self) -> list[int | None]:
        """The most probable accepted filling: its tokens, None where decided. Of equals the first in a fixed order."""
        completions = self._completions(best=True)
        state, path = self.start, list[int | None]()
        for index, layer in enumerate(self.layers_W):
            here = np.flatnonzero(layer.source_P == state)
            values = self._weights(index, best=True)[here] + completions[index + 1][layer.target_P[here]]
            pair = int(here[int(values.argmax())])
            row = self.rows_W[index]
            if row is None:
                path.append(None)
            else:
                tokens, log_p = self._choices(row, int(layer.group_P[pair]))
                path.append(int(tokens[int(log_p.argmax())]))
            state = int(layer.target_P[pair])
        return path

    def draw(self, uniforms_W2: FloatArray) -> list[int | None]:
        """An exact draw from the product of beliefs, given the constraint and the evidence.

        Args:
            uniforms_W2: in [0, 1): the first chooses the next state, the second the token. NaN takes the most probable
                instead.

        Returns:
            Tokens, None where decided.
        """
        state, path = self.start, list[int | None]()
        for index, layer in enumerate(self.layers_W):
            here = np.flatnonzero(layer.source_P == state)
            values = self._weights(index)[here] + self._sums[index + 1][layer.target_P[here]]
            pair = int(here[_pick(values, float(uniforms_W2[index, 0]))])
            row = self.rows_W[index]
            if row is None:
                path.append(None)
            else:
                tokens, log_p = self._choices(row, int(layer.group_P[pair]))
                path.append(int(tokens[_pick(log_p, float(uniforms_W2[index, 1]))]))
            state = int(layer.target_P[pair])
        return path

    @staticmethod
    def _choices(row: Row, group: int) -> tuple[IntArray, FloatArray]:
        """Tokens of a group and their log-probabilities."""
        selection = row.selection
        at = int(np.searchsorted(selection.groups, group))
        first = selection.member_from[at]
        members = selection.member[first : first + selection.member_counts[at]]
        chosen_C = np.zeros(len(selection.classes), dtype=np.bool_)
        chosen_C[members] = True
        chosen_T = np.repeat(chosen_C, selection.token_counts)
        return selection.tokens[chosen_T], row.log_p_T[chosen_T]


def _gather(index_P: IntArray, values_P: FloatArray, num_states: int, *, best: bool) -> FloatArray:
    """Maximum or log of the sum of exponentials, per state; -inf for states without a value."""
    top_S = np.full(num_states, -np.inf)
    np.maximum.at(top_S, index_P, values_P)
    if best:
        return top_S
    sum_S = np.bincount(index_P, weights=np.exp(values_P - top_S[index_P]), minlength=num_states)
    touched_S = sum_S > 0
    top_S[touched_S] += np.log(sum_S[touched_S])
    return top_S


def _pick(log_weights: FloatArray, uniform: float) -> int:
    """Inverts the distribution function; never an entry of weight 0."""
    if np.isnan(uniform):
        return int(log_weights.argmax())
    cumulative = np.cumsum(np.exp(log_weights - log_weights.max()))
    total = float(cumulative[-1])
    last = int(np.searchsorted(cumulative, total))  # the last that adds anything
    return min(int(np.searchsorted(cumulative, uniform * total, side="right")), last)
