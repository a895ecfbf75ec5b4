"""Fast-dLLM v2: blocks decided sub-block by sub-block; the clean block before says each block's first token."""

from dataclasses import dataclass, replace

import numpy as np

from unmask.core.canvas import BoolArray, Canvas, Delta, IntArray
from unmask.core.errors import ConfigError
from unmask.core.plan import Reads
from unmask.decoding.belief import Belief
from unmask.decoding.block_steps import FloatArray, by_floor, check_block, open_reads, propose, settle
from unmask.decoding.randomness import RandomStream
from unmask.decoding.rules import Window, final_prefix
from unmask.decoding.sampling import Sampling

# Shape legend: R rows read.


@dataclass(frozen=True, kw_only=True)
class SubBlocks:
    """How fast a block is decided.

    Attributes:
        threshold: confidence above which a position is decided (strictly); the best one always is. 1 decides one
            position per forward.
        size: positions of a sub-block; divides the block. Sub-blocks are decided from left to right.
    """

    threshold: float = 0.9
    size: int = 8


FAST_DLLM_V2_QUALITY = SubBlocks(threshold=1.0)
"""Fast-dLLM v2 1.5B and 7B, one token per forward (the default of the official `generate`)."""
FAST_DLLM_V2_SPEED = SubBlocks()
"""Fast-dLLM v2 1.5B and 7B as the report measures its speed."""


@dataclass(frozen=True, kw_only=True)
class FastDllmV2:
    """Decodes Fast-dLLM v2, whose logits are shifted: a row predicts the position after it.

    The last clean row before a block predicts the block's first token. A forward over the finished block alone reads
    that row and nothing else, so that token is taken whatever its confidence; the other positions of the block
    are predicted by the masked (or decided) row before them.

    Source: Fast-dLLM v2, arXiv 2509.26328 section 3, and `generate` of the released modelling file, without its
    (approximate) sub-block cache.
    Departs from the source: a confidence is the probability of the likeliest token at temperature 1; ties go to the
    lowest position; the mask id is never predicted; a prompt of exactly one block is read like any other (the official
    code skips it while it decodes the next block); what stands behind a decided EOS is not decided any more.

    With `parity` positions past the limit or behind an EOS are decided like others and the mask id may be predicted,
    its position then staying masked; a step that would decide nothing else is taken with it banned (the official loop
    never ends).

    Attributes:
        window: one block.
        sampling: how tokens are drawn.
        sub_blocks: how fast.
        parity: reproduce the official code.
    """

    window: Window
    sampling: Sampling
    sub_blocks: SubBlocks = FAST_DLLM_V2_SPEED
    parity: bool = False

    def __post_init__(self) -> None:
        check_block(self.window)
        if self.sub_blocks.size < 1 or self.window.size % self.sub_blocks.size:
            raise ConfigError(f"sub-blocks of {self.sub_blocks.size} do not divide a block of {self.window.size}")

    def reads(self, canvas: Canvas) -> Reads:
        """The masked positions of the first unfinished sub-block, or the first token of the next block."""
        if canvas.length == canvas.window_start:
            return Reads(predicts_R=np.array([canvas.length]), causal_R=np.array([True]))
        reads = open_reads(canvas, self.window, all_of_block=self.parity)
        sub_block_R = (reads.predicts_R - canvas.window_start) // self.sub_blocks.size
        kept = sub_block_R == sub_block_R[0]
        return Reads(predicts_R=reads.predicts_R[kept], causal_R=reads.causal_R[kept])

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and the rest of its last block; nothing after a prompt of whole blocks."""
        ends_block = prompt_ids.shape[0] % self.window.size == 0
        window = replace(self.window, size=0) if ends_block else self.window
        return window.lay_out(prompt_ids, max_tokens)

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Decides positions of one sub-block, or opens a block with its first token."""
        mask_id = self.window.mask_token_id
        if canvas.length == canvas.window_start:
            ids_R, _ = propose(canvas, belief, random, self.sampling, banned_id=mask_id)
            return self._open_block(canvas, int(ids_R[0]))
        banned_id = None if self.parity else mask_id
        ids_R, confidence_R = propose(canvas, belief, random, self.sampling, banned_id=banned_id)
        chosen_R = self._confident(confidence_R)
        if (ids_R[chosen_R] == mask_id).all():
            ids_R, confidence_R = propose(canvas, belief, random, self.sampling, banned_id=mask_id)
            chosen_R = self._confident(confidence_R)
        return settle(
            canvas, self.window, belief.predicts_R[chosen_R], ids_R[chosen_R], whole_blocks=False, next_size=0
        )

    def _confident(self, confidence_R: FloatArray) -> BoolArray:
        return by_floor(confidence_R, self.sub_blocks.threshold, 1)

    def _open_block(self, canvas: Canvas, token: int) -> Delta:
        ids_B = np.full(self.window.size, self.window.mask_token_id)
        ids_B[0] = token
        open_B = np.arange(self.window.size) > 0
        ids_L, open_L = np.concatenate((canvas.ids_L, ids_B)), np.concatenate((canvas.open_L, open_B))
        return Delta(
            positions_W=np.arange(canvas.length, canvas.length + self.window.size),
            ids_W=ids_B,
            open_W=open_B,
            num_final=final_prefix(ids_L, open_L, canvas, self.window.eos_ids),
            window_start=canvas.length,
            length=canvas.length + self.window.size,
        )
