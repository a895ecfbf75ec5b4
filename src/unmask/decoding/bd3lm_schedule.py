"""Blocks decided by a noise schedule: each step reveals the share of masks that the reverse process would."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from unmask.core.canvas import Canvas, Delta, IntArray
from unmask.core.errors import ConfigError
from unmask.core.plan import Reads
from unmask.decoding.belief import Belief
from unmask.decoding.block_steps import best, check_block, open_reads, propose, settle
from unmask.decoding.randomness import RandomStream
from unmask.decoding.rules import Window
from unmask.decoding.sampling import Sampling

# Shape legend: R rows read.


@cache
def reveal_counts(num_masks: int, num_steps: int) -> tuple[int, ...]:
    """How many of `num_masks` positions each forward reveals under the linear schedule.

    From time t = k / num_steps to s = (k - 1) / num_steps a mask is revealed with probability 1 - s / t, and the
    expected number is rounded (half to even). Steps that reveal nothing are left out: the model is not told the time,
    so their forward would say what the last one said.

    The quotient is taken in float32 and the product in float64, because a half rounds down or up by their last bit.

    Source: reverse process of MDLM, arXiv 2406.07524 section 3.2; rounding as in the samplers of dLLM
    (github.com/ZHZisZZ/dllm).
    """
    counts: list[int] = []
    one, left = np.float32(1), num_masks
    for step in range(num_steps, 0, -1):
        kept = (one - (one - np.float32((step - 1) / num_steps))) / (one - (one - np.float32(step / num_steps)))
        count = min(round(left * (1 - float(kept))), left)
        left -= count
        if count:
            counts.append(count)
    return tuple(counts)


@dataclass(frozen=True, kw_only=True)
class ScheduledBlocks:
    """Decodes block-causal models that were converted from AR ones (A2D), as dLLM's BD3LMSampler does.

    Each step decides the most confident masks, as many as the schedule says.

    Source: BD3LMSampler of dLLM (github.com/ZHZisZZ/dllm); block diffusion, arXiv 2503.09573.
    Departs from the source: a prompt's tail shares a block with the first new tokens instead of being padded on the
    left; an answer ends at an EOS with nothing open before it, and what stands behind a decided EOS is not decided any
    more; a confidence is the probability of the likeliest token at temperature 1; ties go to the lowest position; the
    mask id is never predicted.

    With `parity` a block is decided whole and an EOS counts once its block is done; the last block is as short as the
    limit makes it; the mask id may be predicted (the position stays masked), and only what is left after the last
    step is decided with it banned, where the official code leaves masks in the text. Give it the prompt with the
    pads in front that make it whole blocks, and a model that neither sees nor counts them: blocks are counted with
    the pads. (A cache of aligned blocks cannot shift them, so without such a model only prompts of whole blocks
    are reproduced.)

    Attributes:
        window: one block.
        sampling: how tokens are drawn.
        num_steps: steps of the schedule for each block; a forward is spent on those that reveal something.
        parity: reproduce the official code, quirks included.
    """

    window: Window
    sampling: Sampling
    num_steps: int = 32
    parity: bool = False

    def __post_init__(self) -> None:
        check_block(self.window)
        if self.num_steps < 1:
            raise ConfigError(f"num_steps must be at least 1, got {self.num_steps}")

    def reads(self, canvas: Canvas) -> Reads:
        """The masked positions of the block."""
        return open_reads(canvas, self.window, all_of_block=self.parity)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and the rest of its last block (or a block of masks)."""
        window = self.window
        if self.parity and prompt_ids.shape[0] % window.size == 0:
            window = replace(window, size=min(window.size, max_tokens))
        return window.lay_out(prompt_ids, max_tokens)

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Decides as many positions as the schedule says."""
        end = canvas.length if self.parity else min(canvas.length, canvas.limit)
        counts = reveal_counts(end - max(canvas.window_start, canvas.prompt_length), self.num_steps)
        late = canvas.step >= len(counts)
        banned_id = None if self.parity and not late else self.window.mask_token_id
        ids_R, confidence_R = propose(canvas, belief, random, self.sampling, banned_id=banned_id)
        chosen_R = best(confidence_R, ids_R.shape[0] if late else counts[canvas.step])
        return settle(
            canvas,
            self.window,
            belief.predicts_R[chosen_R],
            ids_R[chosen_R],
            whole_blocks=self.parity,
            next_size=min(self.window.size, max(canvas.limit - canvas.length, 0)) if self.parity else None,
        )
