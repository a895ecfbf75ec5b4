"""AR mode with drafts copied from the text so far: prompt look-up decoding."""

from dataclasses import dataclass, replace

import numpy as np

from unmask.core.canvas import Canvas, Delta, IntArray
from unmask.core.errors import ConfigError
from unmask.core.plan import Reads
from unmask.decoding.belief import Belief
from unmask.decoding.randomness import RandomStream
from unmask.decoding.rules import Verify, Window
from unmask.decoding.sampling import Sampling

# Shape legend: L text length, D drafts, G length of an n-gram.


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """AR mode, several tokens a forward where the answer repeats what was said before.

    The drafts are what followed the most recent earlier occurrence of the text's last n-gram; the longest n-gram that
    occurs wins. `Verify` checks them causally, so the ids are plain AR's at temperature 0, and at any other with the
    same seed, whatever the drafts are. Needs what `Verify` needs: a causal context and a window of 0.

    Source: prompt lookup decoding (Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding), as transformers has it
    under `prompt_lookup_num_tokens`; copying after a matching n-gram and checking the copy in one forward goes back to
    LLMA, arXiv 2304.04487 (there from given references).
    Departs from the source: the most recent occurrence instead of the first (what an agent's turn repeats is usually
    near); a copy that reaches the text's end goes on with its own beginning, so a loop is drafted whole; drafts end
    with an end-of-sequence id instead of before it, which saves the forward that would decide it.

    Attributes:
        window: of size 0; its mask id is never drafted.
        sampling: how tokens are drawn.
        num_drafts: most drafts a forward, >= 1.
        max_ngram: longest n-gram looked up.
        min_ngram: shortest; 1 <= min_ngram <= max_ngram.
    """

    window: Window
    sampling: Sampling
    num_drafts: int
    max_ngram: int = 3
    min_ngram: int = 1

    def __post_init__(self) -> None:
        if self.window.size != 0:
            raise ConfigError(f"look-up drafts need a window of 0, got {self.window.size}")
        if self.num_drafts < 1:
            raise ConfigError(f"num_drafts must be at least 1, got {self.num_drafts}")
        if not 1 <= self.min_ngram <= self.max_ngram:
            raise ConfigError(f"min_ngram must be between 1 and max_ngram {self.max_ngram}, got {self.min_ngram}")

    def reads(self, canvas: Canvas) -> Reads:
        """The causal rows of the drafts and of the token after them."""
        return self._verify.reads(canvas)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and its drafts: the forward that ends the prefill verifies them already."""
        canvas = self._verify.begin(prompt_ids, max_tokens)
        drafts_D = self._drafts(prompt_ids, canvas.limit)
        return replace(
            canvas,
            ids_L=np.concatenate((canvas.ids_L, drafts_D)),
            open_L=np.concatenate((canvas.open_L, np.ones(drafts_D.shape, np.bool_))),
            window_start=canvas.window_start + drafts_D.shape[0],
        )

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Accepts drafts, adds the causal token after them, and looks up the next drafts."""
        delta = self._verify.step(canvas, belief, random)  # writes final tokens only: the window is empty
        text_L = np.concatenate((canvas.ids_L[: canvas.num_final], delta.ids_W))
        drafts_D = self._drafts(text_L, canvas.limit)
        length = delta.length + drafts_D.shape[0]
        return replace(
            delta,
            positions_W=np.concatenate((delta.positions_W, np.arange(delta.length, length))),
            ids_W=np.concatenate((delta.ids_W, drafts_D)),
            open_W=np.concatenate((delta.open_W, np.ones(drafts_D.shape, np.bool_))),
            window_start=length,
            length=length,
        )

    @property
    def _verify(self) -> Verify:
        return Verify(window=self.window, sampling=self.sampling)

    def _drafts(self, text_L: IntArray, limit: int) -> IntArray:
        """Drafts that can be of use: none that can never be drawn, none after an EOS, none at the last position."""
        room = limit - text_L.shape[0] - 1  # a forward yields one token more than it accepts
        drafts_D = continuation(text_L, min(self.num_drafts, room), max_ngram=self.max_ngram, min_ngram=self.min_ngram)
        impossible = np.flatnonzero(np.isin(drafts_D, self.sampling.banned_ids))
        drafts_D = drafts_D[: impossible[0]] if impossible.size else drafts_D
        ends = np.flatnonzero(np.isin(drafts_D, list(self.window.eos_ids)))
        return drafts_D[: ends[0] + 1] if ends.size else drafts_D


def continuation(text_L: IntArray, num_tokens: int, *, max_ngram: int, min_ngram: int) -> IntArray:
    """What followed the most recent earlier occurrence of the text's last n-gram.

    Args:
        text_L: token ids, int64.
        num_tokens: how many ids to return; below 1 none.
        max_ngram: size of the n-gram that is tried first.
        min_ngram: size of the last.

    Returns:
        `num_tokens` ids, or none if not even the shortest n-gram occurred before. A copy that reaches the end of the
        text continues with the ids copied so far.
    """
    length = text_L.shape[0]
    for size in range(min(max_ngram, length - 1), min_ngram - 1, -1) if num_tokens > 0 else ():
        ngrams = np.lib.stride_tricks.sliding_window_view(text_L[:-1], size)
        occurrences = np.flatnonzero((ngrams == text_L[-size:]).all(1))
        if occurrences.size:
            start = int(occurrences[-1]) + size
            return text_L[start + np.arange(num_tokens) % (length - start)]
    return text_L[:0]
