"""Sampling as masked diffusion was derived: the order in which positions are decided is random, not by confidence.

Under the linear schedule (a position is masked at time t with probability t) the time at which a position loses its
mask is uniform on (0, 1) and independent of every other position and of the tokens. Both rules draw it once, as a
pure function of the position, instead of tossing a coin at each step; the law is the same, no memory is needed, and
a step that would change nothing costs no forward. This holds for models that are not told the time.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from unmask.core.canvas import Canvas, Delta, IntArray
from unmask.core.errors import ConfigError
from unmask.core.plan import Reads, masked_reads
from unmask.decoding.belief import Belief
from unmask.decoding.block_steps import settle
from unmask.decoding.fixed_canvas import FixedCanvas, FloatArray, decide, numbers
from unmask.decoding.randomness import Purpose, RandomStream
from unmask.decoding.rules import Window
from unmask.decoding.sampling import Sampling

# Shape legend: R rows read, V vocabulary.


def posterior(probabilities_RV: Tensor, *, t: float, s: float, mask_token_id: int) -> Tensor:
    """One ancestral step, q(x_s | x_t = mask), for positions that are masked at time t.

    Args:
        probabilities_RV: the model's belief about the clean token; 0 at the mask id, rows sum to 1.
        t: time now, 0 < t <= 1: the probability that a position is masked.
        s: earlier time, 0 <= s <= t.
        mask_token_id: the id of the mask.

    Returns:
        [R, V], rows sum to 1: the position stays masked with probability s / t, whatever the model believes.

    Raises:
        ConfigError: s and t are not in this order.

    Source: MDLM, arXiv 2406.07524 section 3.2.2, with alpha(t) = 1 - t. The log-linear schedule of the
    released models, alpha(t) = 1 - (1 - eps) * t, gives the same: only the quotient of the masking chances counts.
    """
    if not 0 <= s <= t <= 1 or t == 0:
        raise ConfigError(f"an ancestral step goes from t in (0, 1] to s in [0, t], got t={t} and s={s}")
    stays = s / t
    step_RV = probabilities_RV * (1 - stays)
    step_RV[:, mask_token_id] = stays
    return step_RV


def nucleus(probabilities_RV: Tensor, p: float) -> Tensor:
    """Keeps the most likely token and those whose cumulative probability is at most `p`; rows sum to 1 again.

    The token that crosses `p` is dropped, unlike `Sampling.top_p`, which keeps it. Order of equals is by id.

    Source: the sampler of BD3-LM, arXiv 2503.09573 (released code); nucleus sampling, arXiv 1904.09751.
    """
    sorted_RV, order_RV = probabilities_RV.sort(dim=-1, descending=True, stable=True)
    dropped_RV = sorted_RV.cumsum(-1) > p
    dropped_RV[:, 0] = False
    kept_RV = torch.zeros_like(probabilities_RV).scatter_(-1, order_RV, sorted_RV.masked_fill(dropped_RV, 0.0))
    return kept_RV / kept_RV.sum(-1, keepdim=True)


@dataclass(frozen=True, kw_only=True)
class Ancestral:
    """Ancestral sampling of a whole answer on a fixed canvas, for models that see in both directions (MDLM).

    Time runs from 1 to `min_time` in `num_steps` equal steps; a position is decided in the step that holds its
    unmasking time, all of a step from the same forward. What is still masked at `min_time` takes its most likely
    token (noise removal). At most `num_steps` + 1 forwards, and at most one for each position.

    Source: MDLM, arXiv 2406.07524 section 4.1 (`ddpm_cache` of the released code), loglinear schedule.
    Departs from the source: unmasking times are drawn at once (see the module); tokens by inverse CDF in float64, not
    by a float32 Gumbel trick, which truncates the distribution (arXiv 2409.02908); the answer ends at its first EOS.

    Attributes:
        layout: mask and EOS ids.
        sampling: how tokens are drawn; temperature 1 is the model's own distribution.
        num_steps: time steps, >= 1.
        nucleus_p: see `nucleus`; 1 keeps everything.
        min_time: where time stops, in [0, 1).
    """

    layout: FixedCanvas
    sampling: Sampling
    num_steps: int = 1000
    nucleus_p: float = 1.0
    min_time: float = 1e-5

    def __post_init__(self) -> None:
        _check_nucleus(self.nucleus_p)
        if self.num_steps < 1:
            raise ConfigError(f"num_steps must be at least 1, got {self.num_steps}")
        if not 0 <= self.min_time < 1:
            raise ConfigError(f"min_time must be in [0, 1), got {self.min_time}")

    def reads(self, canvas: Canvas) -> Reads:
        """Every masked row."""
        return masked_reads(canvas)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and `max_tokens` masks, all in one window that starts at position 0."""
        return self.layout.lay_out(prompt_ids, max_tokens)

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Decides the positions of the next time step that holds any."""
        elapsed_R = (1 - _unmasking_times(belief.predicts_R, random)) / (1 - self.min_time)
        steps_R = np.minimum((elapsed_R * self.num_steps).astype(np.int64), self.num_steps)
        chosen = np.flatnonzero(steps_R == steps_R.min())
        removing_noise = int(steps_R.min()) == self.num_steps
        rule = replace(self, sampling=replace(self.sampling, temperature=0.0)) if removing_noise else self
        written = _draw(rule, self.layout.mask_token_id, canvas, belief, chosen, random)
        return decide(canvas, belief.predicts_R[chosen], written, self.layout)


@dataclass(frozen=True, kw_only=True)
class FirstHitting:
    """One position for each forward, in a uniformly random order within the block (BD3-LM).

    It is ancestral sampling with infinitely many time steps: of the masked positions the one with the latest unmasking
    time is next, and no forward is spent on times at which nothing happens. Exact up to the model.

    Source: first-hitting sampler, arXiv 2409.02908 section 4, as used by BD3-LM, arXiv 2503.09573 section 6.2.
    Departs from the source: a block ends early at an EOS with nothing open before it; the check for low entropy, which
    rejects whole samples, is left to the caller.

    Attributes:
        window: size and alignment of the blocks, mask and EOS ids.
        sampling: how tokens are drawn; temperature 1 is the model's own distribution.
        nucleus_p: see `nucleus`; 1 keeps everything, the released sampler uses 0.9.
    """

    window: Window
    sampling: Sampling
    nucleus_p: float = 1.0

    def __post_init__(self) -> None:
        _check_nucleus(self.nucleus_p)

    def reads(self, canvas: Canvas) -> Reads:
        """Every masked row; one of them is decided."""
        return masked_reads(canvas)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and the first window, which shares its block with the prompt's tail if blocks are aligned."""
        return self.window.lay_out(prompt_ids, max_tokens)

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Decides one position; when the window is done, makes it final and opens the next."""
        times_R = _unmasking_times(belief.predicts_R, random)
        chosen = np.array([np.where(belief.predicts_R < canvas.limit, times_R, -1.0).argmax()])
        written = _draw(self, self.window.mask_token_id, canvas, belief, chosen, random)
        return settle(canvas, self.window, belief.predicts_R[chosen], written, whole_blocks=False)


def _check_nucleus(nucleus_p: float) -> None:
    if not 0 < nucleus_p <= 1:
        raise ConfigError(f"nucleus_p must be in (0, 1], got {nucleus_p}")


def _unmasking_times(positions_R: IntArray, random: RandomStream) -> FloatArray:
    """The time in [0, 1) at which each position loses its mask: the same number in every step."""
    times = [random.uniform(block=0, step=0, position=int(p), purpose=Purpose.ORDER) for p in positions_R]
    return np.array(times, np.float64)


def _draw(
    rule: Ancestral | FirstHitting,
    mask_token_id: int,
    canvas: Canvas,
    belief: Belief,
    chosen: IntArray,
    random: RandomStream,
) -> IntArray:
    """Tokens for the chosen rows; never the mask, whatever the sampling allows."""
    logits_RV = belief.logits_RV[torch.from_numpy(chosen)]
    logits_RV[:, mask_token_id] = -torch.inf
    if rule.nucleus_p < 1:
        logits_RV = nucleus(logits_RV.double().softmax(-1), rule.nucleus_p).log().float()
    is_random = rule.sampling.temperature > 0
    uniforms = numbers(canvas, belief.predicts_R[chosen], random, Purpose.TOKEN) if is_random else []
    return rule.sampling.draw(logits_RV, uniforms).numpy()
