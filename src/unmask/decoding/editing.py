"""LLaDA2.x: a confidence threshold over a floor of tokens per step (2.0), and edits of decided tokens (2.1)."""

from dataclasses import dataclass

import numpy as np

from unmask.core.canvas import BoolArray, Canvas, Delta, IntArray
from unmask.core.errors import ConfigError
from unmask.core.plan import Reads
from unmask.decoding.belief import Belief
from unmask.decoding.block_steps import (
    by_floor,
    check_block,
    even_quotas,
    generated_reads,
    open_reads,
    propose,
    settle,
)
from unmask.decoding.randomness import RandomStream
from unmask.decoding.rules import Window
from unmask.decoding.sampling import Sampling

# Shape legend: R rows read, L canvas length.


@dataclass(frozen=True, kw_only=True)
class Floor:
    """How fast LLaDA2.0 decides a block.

    Attributes:
        threshold: every position whose confidence is strictly above it is decided, if they are enough.
        num_steps: a block of B is spread over so many steps at most: each decides at least B / num_steps positions.
    """

    threshold: float = 0.95
    num_steps: int = 32

    def __post_init__(self) -> None:
        if self.num_steps < 1:
            raise ConfigError(f"num_steps must be at least 1, got {self.num_steps}")


LLADA20_QUALITY = Floor()
"""LLaDA2.0-mini and -flash as released (2.55 tokens per forward for mini; blocks of 32)."""
LLADA20_SPEED = Floor(threshold=0.85)
"""The faster setting of the report: 3.31 tokens per forward at a lower score."""


@dataclass(frozen=True, kw_only=True)
class Llada20:
    """Decodes LLaDA2.0: a position is decided once and never changed.

    Source: LLaDA2.0, arXiv 2512.15745, and `generate` of its modelling file.
    Departs from the source: a confidence is the probability of the likeliest token at temperature 1; ties go to the
    lowest position; an answer ends at an EOS as soon as nothing before it is open, and what stands behind a
    decided EOS is not decided any more; the mask id is never predicted.

    With `parity` a block is decided whole, positions past the limit included; the run ends after the block that holds
    an EOS, or with `eos_early_stop` as the default does; the mask id may be predicted (the position stays masked) and
    only what is left after the last step is decided with it banned, where the official code leaves masks in the text.

    Attributes:
        window: one block.
        sampling: how tokens are drawn.
        floor: how fast.
        eos_early_stop: only with `parity`: stop inside a block.
        parity: reproduce the official code, quirks included.
    """

    window: Window
    sampling: Sampling
    floor: Floor = LLADA20_QUALITY
    eos_early_stop: bool = False
    parity: bool = False

    def __post_init__(self) -> None:
        check_block(self.window)

    def reads(self, canvas: Canvas) -> Reads:
        """The masked positions of the block."""
        return open_reads(canvas, self.window, all_of_block=self.parity)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and the rest of its last block (or a block of masks)."""
        return self.window.lay_out(prompt_ids, max_tokens)

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Decides what passes the threshold, or the step's quota."""
        quotas = even_quotas(self.window.size, self.floor.num_steps)
        last = canvas.step >= self.floor.num_steps - 1
        banned_id = None if self.parity and not last else self.window.mask_token_id
        ids_R, confidence_R = propose(canvas, belief, random, self.sampling, banned_id=banned_id)
        quota = ids_R.shape[0] if last else max(quotas[canvas.step], 1)
        chosen_R = by_floor(confidence_R, self.floor.threshold, quota)
        return settle(
            canvas,
            self.window,
            belief.predicts_R[chosen_R],
            ids_R[chosen_R],
            whole_blocks=self.parity and not self.eos_early_stop,
        )


@dataclass(frozen=True, kw_only=True)
class EditThresholds:
    """How eagerly LLaDA2.1 writes. Both comparisons are strict.

    Attributes:
        unmask: confidence above which a mask becomes a token; the best one always does.
        edit: confidence above which a decided token becomes another; 0 edits whenever the likeliest token changes.
        max_edit_steps: forwards spent on a block after its last mask is gone.
    """

    unmask: float = 0.7
    edit: float = 0.5
    max_edit_steps: int = 16

    def __post_init__(self) -> None:
        if self.max_edit_steps < 0:
            raise ConfigError(f"max_edit_steps must not be negative, got {self.max_edit_steps}")


LLADA21_QUALITY = EditThresholds()
"""Q mode of LLaDA2.1-mini and -flash (thresholds of the model card); the one its report advises for chat."""
LLADA21_SPEED = EditThresholds(unmask=0.5, edit=0.0)
"""S mode of LLaDA2.1-mini and -flash; also what SGLang serves by default."""
LLADA21_CODE_DEFAULT = EditThresholds(unmask=0.95, edit=0.9)
"""The default arguments of the official `generate`."""


@dataclass(frozen=True)
class _Progress:
    """What `Llada21` remembers of a block: edit-only steps so far, and the complete texts it has been."""

    num_edit_steps: int = 0
    seen: frozenset[bytes] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Llada21:
    """Decodes LLaDA2.1: each step fills masks and corrects tokens of the block at once.

    A block is done when a step over a text without masks changes nothing, when `max_edit_steps` such steps are
    spent, or when the text is one the block has been before (corrections that go in circles). Until then nothing of
    it is final, an EOS included: a later step may still change it. The prompt is never edited.

    Source: LLaDA2.1, arXiv 2602.08676 (joint mask-to-token and token-to-token threshold), and `generate` of its
    modelling file.
    Departs from the source: circles are noticed; the mask id is never predicted, so no token is masked again and the
    loop is bounded by the block size plus `max_edit_steps`; edits take the likeliest token at any temperature (a token
    drawn once is not redrawn), so a temperature acts on masks alone; ties go to the lowest position. A block's keys
    are stored from its final text, whatever the last step changed.

    With `parity` the mask id may be predicted, for masks and by edits; circles run their course; positions past the
    limit are written like others; an EOS ends the run only with `eos_early_stop`, and then inside the block. A block
    that has not ended after many times its regular number of steps (the official code may never end) goes on by
    the default's way.

    Attributes:
        window: one block.
        sampling: how the tokens for masks are drawn.
        thresholds: how eagerly.
        eos_early_stop: only with `parity`: stop at an EOS with nothing masked before it.
        parity: reproduce the official code, quirks included.
    """

    window: Window
    sampling: Sampling
    thresholds: EditThresholds = LLADA21_QUALITY
    eos_early_stop: bool = False
    parity: bool = False

    def __post_init__(self) -> None:
        check_block(self.window)

    def reads(self, canvas: Canvas) -> Reads:
        """All generated positions of the block: masks to fill and tokens to check."""
        return generated_reads(canvas, past_limit=self.parity)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and the rest of its last block (or a block of masks)."""
        return self.window.lay_out(prompt_ids, max_tokens)

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Fills and edits; ends the block if that is due."""
        progress = canvas.memory if isinstance(canvas.memory, _Progress) else _Progress()
        patience = 4 * (self.window.size + self.thresholds.max_edit_steps + 1)
        follows_source = self.parity and canvas.step < patience
        banned_id = None if follows_source else self.window.mask_token_id
        drawn_R, confidence_R = propose(canvas, belief, random, self.sampling, banned_id=banned_id)
        likeliest_R = belief.logits_RV.argmax(-1).numpy()
        open_R = canvas.open_L[belief.predicts_R]
        ids_R = np.where(open_R, drawn_R, likeliest_R)
        edits_R = ~open_R & (likeliest_R != canvas.ids_L[belief.predicts_R]) & (confidence_R > self.thresholds.edit)
        fills_R = by_floor(np.where(open_R, confidence_R, -np.inf), self.thresholds.unmask, 1) & open_R
        written_R = fills_R | edits_R

        after_R = np.where(written_R, ids_R, canvas.ids_L[belief.predicts_R])
        masks_left = bool((open_R & ~written_R).any() or (ids_R[written_R] == self.window.mask_token_id).any())
        num_edit_steps = progress.num_edit_steps + (not open_R.any())
        settled = not open_R.any() and not edits_R.any()
        circles = not follows_source and after_R.tobytes() in progress.seen
        done = not masks_left and (settled or circles or num_edit_steps >= self.thresholds.max_edit_steps)
        stops = self.parity and self.eos_early_stop and self._ends(canvas, belief.predicts_R, after_R)
        return settle(
            canvas,
            self.window,
            belief.predicts_R[written_R],
            ids_R[written_R],
            whole_blocks=not stops and (self.parity or not done),
            done=done or stops,
            memory=_Progress(num_edit_steps, progress.seen if masks_left else progress.seen | {after_R.tobytes()}),
        )

    def _ends(self, canvas: Canvas, predicts_R: IntArray, after_R: IntArray) -> bool:
        """Whether the block now holds an EOS with no mask before it."""
        is_eos_R: BoolArray = np.isin(after_R, list(self.window.eos_ids))
        is_mask_R = after_R == self.window.mask_token_id
        return bool(is_eos_R.any()) and not is_mask_R[: int(is_eos_R.argmax())].any()
