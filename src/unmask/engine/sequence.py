"""One running sequence: its canvas, cache, rule and random stream, and what was already told to its caller."""

import time
from dataclasses import dataclass, field

import numpy as np

from unmask.cache.block_causal import BlockCausalCache, CacheShape
from unmask.core.canvas import Canvas
from unmask.core.request import Chunk, FinishReason, Request, SamplingParams
from unmask.decoding.randomness import RandomStream
from unmask.decoding.rules import DecodingRule, is_finished, visible_answer


@dataclass(kw_only=True)
class Decoding:
    """One canvas on its way through one model: all that a forward needs and changes.

    Attributes:
        rule: its decoding rule.
        random: its random stream.
        canvas, cache: replaced and written by the runner.
        num_forwards: forwards it took part in.
    """

    rule: DecodingRule
    random: RandomStream
    canvas: Canvas
    cache: BlockCausalCache
    num_forwards: int = 0

    @property
    def num_pending(self) -> int:
        """Clean rows not in the cache yet: the prompt at first, later the last window's tokens."""
        return self.canvas.window_start - self.cache.stored


@dataclass(kw_only=True)
class Running(Decoding):
    """State of one request from admission to its last chunk; owned by the engine loop.

    Attributes:
        request: as given.
        params: with defaults filled.
        eos_ids: ids that end the answer.
        num_reserved: cached positions counted against the engine's budget.
        deadline: `time.monotonic()` second after which it is aborted, or None.
        num_emitted: answer tokens already put into chunks.
        num_prefix_cached: prompt tokens taken over from an earlier sequence.
        draft: the same request on its way through a draft model, or None.
    """

    request: Request
    params: SamplingParams
    eos_ids: frozenset[int]
    num_reserved: int
    deadline: float | None
    num_emitted: int = 0
    draft: Decoding | None = None
    num_prefix_cached: int = 0
    _drafts_shown: tuple[int, ...] = field(default=(), repr=False)

    @classmethod
    def start(
        cls, request: Request, params: SamplingParams, rule: DecodingRule, shape: CacheShape, eos_ids: frozenset[int]
    ) -> "Running":
        """Lays out the canvas; the cache allocates nothing before the first forward."""
        prompt = np.array(request.prompt_ids, np.int64)
        return cls(
            request=request,
            params=params,
            rule=rule,
            eos_ids=eos_ids,
            random=RandomStream(seed=params.seed, choice=request.choice),
            canvas=rule.begin(prompt, params.max_tokens),
            cache=BlockCausalCache(shape),
            num_reserved=len(request.prompt_ids) + params.max_tokens + 2 * (params.block_size or 0),
            deadline=None if request.timeout_s is None else time.monotonic() + request.timeout_s,
        )

    @property
    def num_draft_forwards(self) -> int:
        """Forwards of the draft model for this request."""
        return 0 if self.draft is None else self.draft.num_forwards

    @property
    def is_prefilling(self) -> bool:
        """Whether the prompt has not been fed to its end."""
        align = self.cache.shape.align
        end = min(self.canvas.prompt_length // align * align, self.canvas.window_start)  # a fixed canvas has no prefill
        return self.cache.stored < end - 1

    def take_chunk(self) -> Chunk | None:
        """What changed for the caller since the last call; None if nothing did."""
        answer = visible_answer(self.canvas, self.eos_ids)
        fresh = tuple(answer[self.num_emitted :].tolist())
        self.num_emitted = int(answer.shape[0])
        reason: FinishReason | None = None
        if is_finished(self.canvas, self.eos_ids):
            reason = FinishReason.STOP if self._is_whole() else FinishReason.LENGTH
        drafts = self._drafts() if self.request.drafts and reason is None else ()
        if not fresh and reason is None and drafts == self._drafts_shown:
            return None
        self._drafts_shown = drafts
        return Chunk(
            token_ids=fresh,
            draft_ids=drafts,
            num_forwards=self.num_forwards,
            num_draft_forwards=self.num_draft_forwards,
            num_prefix_cached=self.num_prefix_cached,
            finish_reason=reason,
        )

    def _is_whole(self) -> bool:
        """Whether the answer ended by itself: at an EOS, or where its constraint lets nothing else follow."""
        answer = self.canvas.answer_L[: self.params.max_tokens]
        constraint = self.request.constraint
        ended = bool(np.isin(answer, list(self.eos_ids)).any())
        return ended or (constraint is not None and constraint.must_end(constraint.walk(answer.tolist())))

    def _drafts(self) -> tuple[int, ...]:
        """Everything after the final prefix; masked positions are -1."""
        canvas = self.canvas
        masked = canvas.open_L & (np.arange(canvas.length) >= canvas.window_start)
        return tuple(np.where(masked, -1, canvas.ids_L)[canvas.num_final : canvas.limit].tolist())
