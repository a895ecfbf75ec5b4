"""A draft model beside the model: it writes the next few tokens of AR requests, one forward of the model checks them.

Speculative decoding in three moves: `propose` runs the same request some tokens ahead on the small model and writes
what it found into the canvas as drafts; the next `denoise` feeds them; `Verify` keeps what the model itself would say.
"""

from collections.abc import Sequence

import numpy as np

from unmask.cache.block_causal import BlockCausalCache
from unmask.core.canvas import Delta
from unmask.core.errors import ConfigError
from unmask.core.request import Mode
from unmask.decoding.rules import is_finished
from unmask.engine.runner import denoise
from unmask.engine.sequence import Decoding, Running
from unmask.engine.settings import EngineSettings, cache_shape, modes_of
from unmask.models.config import Traits
from unmask.models.loading import Loaded

# Shape legend: L canvas length, W writes.

Batch = Sequence[tuple[Running, int]]
"""Sequences, each with the most clean rows it may feed."""


class DraftModel:
    """Drafts for requests in AR mode that neither draft by look-up nor are constrained.

    A request's drafts are what the draft model answers under the same rule and the same random stream: at any
    temperature a draft is wrong only where the two models' distributions part, and with equal weights never. The
    answer does not depend on the draft model at all.

    Source: speculative decoding, arXiv 2211.17192 section 2; drafting with the verifier's random numbers:
    drafter-invariant speculative decoding, arXiv 2408.07978.
    Departs from the source: same-noise matching instead of rejection sampling, with one uniform number through the
    inverse distribution function instead of Gumbel noise.

    Args:
        loaded: the draft model.
        target: traits of the model whose requests are drafted.
        settings: `num_drafts` and `max_prefill_rows` are read.

    Raises:
        ConfigError: the two models cannot work together.
    """

    def __init__(self, loaded: Loaded, target: Traits, settings: EngineSettings) -> None:
        _check_pair(loaded.traits, target)
        self._model = loaded.model
        self._shape = cache_shape(loaded.config, loaded.traits)
        self._max_positions = loaded.traits.max_positions
        self._num_drafts = settings.num_drafts
        self._max_prefill_rows = settings.max_prefill_rows

    def join(self, sequence: Running) -> None:
        """Gives a new sequence a draft of its own, if it can make use of one; allocates nothing yet."""
        speculates = sequence.params.lookup is not None or sequence.request.constraint is not None
        if sequence.params.mode is Mode.AR and not speculates:
            sequence.draft = Decoding(
                rule=sequence.rule,
                random=sequence.random,
                canvas=sequence.canvas,
                cache=BlockCausalCache(self._shape),
            )

    def propose(self, batch: Batch) -> list[tuple[Running, int]]:
        """Writes drafts into the canvases that the next forward reads; the prompts of the others are prefilled along.

        Args:
            batch: what `denoise` is about to be given.

        Returns:
            The batch with as many more rows as there are drafts.
        """
        wanted = [self._num_wanted(sequence, rows) for sequence, rows in batch]
        for sequence, _ in batch:
            _catch_up(sequence)
        for done in range(max(wanted, default=0)):
            drafting = [
                # A prompt is read in the pieces in which the model reads it; one that lags behind catches up by itself.
                (sequence.draft, rows if rows < sequence.num_pending else self._max_prefill_rows)
                for (sequence, rows), most in zip(batch, wanted, strict=True)
                if sequence.draft is not None and done < most and _goes_on(sequence, sequence.draft, done)
            ]
            if not drafting:
                break
            denoise(self._model, drafting)
        return [(sequence, rows + _write_drafts(sequence)) for sequence, rows in batch]

    def _num_wanted(self, sequence: Running, rows: int) -> int:
        """How many forwards the draft model should make for a sequence now."""
        if sequence.draft is None:
            return 0
        final = sequence.canvas.num_final
        # The model's forward yields one token more than it accepts; the draft model may have the shorter context.
        wanted = max(min(self._num_drafts, sequence.canvas.limit - final - 1, self._max_positions - final), 0)
        return wanted if rows >= sequence.num_pending else min(wanted, 1)  # else the prompt goes on after this forward


def _check_pair(draft: Traits, target: Traits) -> None:
    if Mode.AR not in modes_of(target):
        raise ConfigError("a draft model drafts for mode 'ar', which this model cannot run; leave the draft model out")
    if Mode.AR not in modes_of(draft):
        raise ConfigError(
            f"a draft model must run mode 'ar', but this one has attention {draft.attention.value!r}; take a causal one"
        )
    if draft.vocab_size != target.vocab_size:
        raise ConfigError(
            f"the draft model has a vocabulary of {draft.vocab_size} ids, the model one of {target.vocab_size}; "
            "take a draft model of the same family, with the same tokenizer"
        )


def _catch_up(sequence: Running) -> None:
    """Puts the draft where the sequence is; what the draft model has computed of that text is kept."""
    if sequence.draft is not None:
        # The text is the accepted drafts and one token of the model's own: it departs from the draft there or nowhere.
        sequence.draft.cache.stored = min(sequence.draft.cache.stored, sequence.canvas.num_final - 1)
        sequence.draft.canvas = sequence.canvas


def _goes_on(sequence: Running, draft: Decoding, done: int) -> bool:
    """Whether the draft has read all of the text (each forward then yields a token) and its answer has not ended."""
    return draft.canvas.num_final == sequence.canvas.num_final + done and not is_finished(
        draft.canvas, sequence.eos_ids
    )


def _num_drafted(sequence: Running) -> int:
    """Tokens by which the draft is ahead."""
    return 0 if sequence.draft is None else sequence.draft.canvas.num_final - sequence.canvas.num_final


def _write_drafts(sequence: Running) -> int:
    """Puts the draft's tokens into the canvas, still open; returns their number."""
    num_drafts, canvas = _num_drafted(sequence), sequence.canvas
    if sequence.draft is not None and num_drafts:
        end = canvas.num_final + num_drafts
        drafts = Delta(
            positions_W=np.arange(canvas.num_final, end),
            ids_W=sequence.draft.canvas.ids_L[canvas.num_final : end],
            open_W=np.ones(num_drafts, np.bool_),
            num_final=canvas.num_final,
            window_start=end,
            length=end,
        )
        sequence.canvas = canvas.apply(drafts)
    return num_drafts
