"""Decoding rules: which positions to write this step. Pure functions of canvas, belief and random stream."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from unmask.core.canvas import BoolArray, Canvas, Delta, IntArray
from unmask.core.plan import Reads, masked_reads, verifying_reads
from unmask.decoding.belief import Belief
from unmask.decoding.randomness import Purpose, RandomStream
from unmask.decoding.sampling import Sampling

# Shape legend: R rows read, W writes or window, P prompt length, V vocabulary.


@dataclass(frozen=True, kw_only=True)
class Window:
    """How the next stretch of masks is laid out.

    Attributes:
        size: positions denoised together.
        mask_token_id: id put into open positions; never emitted.
        eos_ids: ids that end the answer.
        align: 1 to start windows anywhere; B for block-causal models, whose blocks are multiples of B.
    """

    size: int
    mask_token_id: int
    eos_ids: frozenset[int]
    align: int = 1

    def lay_out(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The first canvas: the prompt, then masks to the end of the first window (of its block, if aligned)."""
        num_prompt = prompt_ids.shape[0]
        start = num_prompt // self.align * self.align
        masks = np.full(max(start + self.size - num_prompt, 0), self.mask_token_id, np.int64)
        return Canvas(
            ids_L=np.concatenate((prompt_ids, masks)),
            open_L=np.arange(num_prompt + masks.shape[0]) >= num_prompt,
            prompt_length=num_prompt,
            num_final=num_prompt,
            window_start=start,
            limit=num_prompt + max_tokens,
        )


class DecodingRule(Protocol):
    """Chooses what one step writes. Implementations are frozen dataclasses: equal settings are equal values."""

    def reads(self, canvas: Canvas) -> Reads:
        """Which predictions the next step needs; the head runs on nothing else."""
        ...

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The first canvas: the prompt and, if the rule has one, its first window."""
        ...

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """One step; always makes progress (something becomes final, closed or newly drafted)."""
        ...


@runtime_checkable
class SelfConditioned(Protocol):
    """A decoding rule that also tells the model what it said in the step before."""

    def conditioning(self, canvas: Canvas) -> Tensor | None:
        """Logits for the rows of the window, float32 [W, V], from the rule's memory; None to tell nothing."""
        ...


def is_finished(canvas: Canvas, eos_ids: frozenset[int]) -> bool:
    """Whether the answer ended: a final EOS, or the limit."""
    return canvas.num_final >= canvas.limit or bool(np.isin(canvas.answer_L, list(eos_ids)).any())


def visible_answer(canvas: Canvas, eos_ids: frozenset[int]) -> IntArray:
    """The final answer ids a caller may see: cut at the limit and before the first EOS."""
    answer = canvas.answer_L[: canvas.limit - canvas.prompt_length]
    ends = np.flatnonzero(np.isin(answer, list(eos_ids)))
    return answer[: ends[0]] if ends.size else answer


@dataclass(frozen=True, kw_only=True)
class Unmask:
    """Diffusion mode: decide the most confident masked positions of the window, all in parallel.

    With `quota` 0 every position whose confidence reaches `threshold` is decided, and always the best one
    (Source: Fast-dLLM, arXiv 2505.22618 section 3.3). With `quota` k exactly the k best are decided
    (Source: LLaDA low-confidence order, arXiv 2502.09992 appendix B). Confidence is the largest probability of the
    position at temperature 1, so the set decided is a function of the canvas (Departs from the source: LLaDA uses the
    probability of the drawn token). Ties go to the lowest position. A window ends early at an EOS with nothing open
    before it.
    """

    window: Window
    sampling: Sampling
    threshold: float = 0.9
    quota: int = 0

    def reads(self, canvas: Canvas) -> Reads:
        """Every masked row."""
        return masked_reads(canvas)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and the first window, which shares its block with the prompt's tail if blocks are aligned."""
        return self.window.lay_out(prompt_ids, max_tokens)

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Decides positions; when the window is done, makes it final and opens the next."""
        uniforms = [
            random.uniform(block=canvas.block, step=canvas.step, position=int(position), purpose=Purpose.TOKEN)
            for position in (belief.predicts_R if self.sampling.temperature > 0 else ())
        ]
        ids, confidence = self.sampling.choose(belief.logits_RV, uniforms)
        ids_R, confidence_R = ids.numpy(), confidence.numpy()
        chosen = self._decide(confidence_R, belief.predicts_R < canvas.limit)
        positions, written = belief.predicts_R[chosen], ids_R[chosen]
        ids_L, open_L = canvas.ids_L.copy(), canvas.open_L.copy()
        ids_L[positions], open_L[positions] = written, False
        num_final = final_prefix(ids_L, open_L, canvas, self.window.eos_ids)
        opened = np.zeros(0, np.int64)
        window_start = canvas.window_start
        if num_final == canvas.length:
            window_start = canvas.length
            opened = np.arange(canvas.length, canvas.length + self.window.size)
        return Delta(
            positions_W=np.concatenate((positions, opened)),
            ids_W=np.concatenate((written, np.full(opened.shape, self.window.mask_token_id))),
            open_W=np.concatenate((np.zeros(positions.shape, np.bool_), np.ones(opened.shape, np.bool_))),
            num_final=num_final,
            window_start=window_start,
            length=canvas.length + opened.shape[0],
        )

    def _decide(self, confidence_R: np.ndarray, wanted_R: BoolArray) -> BoolArray:
        """Which rows to decide: at least one, and none past the limit."""
        confidence_R = np.where(wanted_R, confidence_R, -1.0)
        if self.quota:
            best = np.argsort(-confidence_R, kind="stable")[: self.quota]
            return np.isin(np.arange(confidence_R.shape[0]), best) & wanted_R
        chosen = confidence_R >= self.threshold
        chosen[int(confidence_R.argmax())] = True
        return chosen


def final_prefix(ids_L: IntArray, open_L: BoolArray, canvas: Canvas, eos_ids: frozenset[int]) -> int:
    """Length of the decided prefix, cut after the first EOS of the answer."""
    undecided = np.flatnonzero(open_L)
    end = int(undecided[0]) if undecided.size else ids_L.shape[0]
    ends = np.flatnonzero(np.isin(ids_L[canvas.prompt_length : end], list(eos_ids)))
    if ends.size:
        return canvas.prompt_length + int(ends[0]) + 1
    return end


@dataclass(frozen=True, kw_only=True)
class Verify:
    """Verified mode and, with a window of 0, AR mode: every emitted token is the causal rows' own choice.

    One forward feeds the drafts of the last one as clean causal rows, followed by a window of masks. The causal rows
    say what AR would emit; the longest agreeing run of drafts and one token more become final, so a forward always
    yields at least one token. If all drafts agreed, the masked rows' choices are the next drafts (they saw the right
    text); otherwise a window of masks opens right after the corrected token.

    A token depends on the causal logits of its position and on a random number keyed by that position alone. Rows are
    bit-independent of one another, so the ids equal AR's: at temperature 0, and at any other with the same seed.
    Needs a causal context and aligned windows of any start (align 1).

    Source: TiDAR, arXiv 2511.08923 section 3.2; speculative verification, arXiv 2211.17192.
    Departs from the source: greedy/same-noise matching instead of rejection sampling; no drafts for every possible
    rejection point; drafts are dropped after a rejection.
    """

    window: Window
    sampling: Sampling

    def reads(self, canvas: Canvas) -> Reads:
        """The causal rows, which decide, and the masked ones, which draft."""
        return verifying_reads(canvas)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and a window of masks."""
        return self.window.lay_out(prompt_ids, max_tokens)

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Accepts drafts, adds the causal token after them, and lays out the next drafts and window."""
        uniforms = [
            random.uniform(block=0, step=0, position=int(position), purpose=Purpose.TOKEN)
            for position in (belief.predicts_R if self.sampling.temperature > 0 else ())
        ]
        ids_R = self.sampling.draw(belief.logits_RV, uniforms).numpy()
        causal_ids, masked_ids = ids_R[belief.causal_R], ids_R[~belief.causal_R]
        drafts = canvas.ids_L[canvas.num_final : canvas.window_start]
        agree = causal_ids[:-1] == drafts
        accepted = int(agree.argmin()) if not agree.all() else drafts.shape[0]
        emitted = causal_ids[: accepted + 1]
        num_final = canvas.num_final + emitted.shape[0]
        drafted = masked_ids if accepted == drafts.shape[0] else masked_ids[:0]
        masks = np.full(self.window.size, self.window.mask_token_id, np.int64)
        written = np.concatenate((emitted, drafted, masks))
        return Delta(
            positions_W=np.arange(canvas.num_final, canvas.num_final + written.shape[0]),
            ids_W=written,
            open_W=np.arange(written.shape[0]) >= emitted.shape[0],
            num_final=num_final,
            window_start=num_final + drafted.shape[0],
            length=canvas.num_final + written.shape[0],
        )
