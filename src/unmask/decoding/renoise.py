"""Uniform-noise diffusion (DiffusionGemma): nothing on a canvas is decided until all of it is.

An open position holds a token that may be noise; every step keeps the tokens the model is sure of and replaces all
others by fresh noise. The context is causal and the open window sees everything, as `AttentionPattern.CAUSAL_CONTEXT`
says. The model is also fed what it said in the step before: see `UniformRenoise.conditioning`.
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from unmask.core.canvas import BoolArray, Canvas, Delta, IntArray
from unmask.core.errors import ConfigError
from unmask.core.plan import Reads, masked_reads
from unmask.decoding.belief import Belief
from unmask.decoding.fixed_canvas import numbers
from unmask.decoding.randomness import Purpose, RandomStream
from unmask.decoding.rules import final_prefix
from unmask.decoding.sampling import Sampling

# Shape legend: R rows read (the window), V vocabulary.


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far the window has come.

    Attributes:
        num_steps: denoising steps taken in it.
        guesses: most likely tokens of the window in the last steps, the latest last.
        processed_RV: the last step's `UniformRenoise.processed`. The steps before decide it, so it takes no part in
            comparisons.
    """

    num_steps: int = 0
    guesses: tuple[tuple[int, ...], ...] = ()
    processed_RV: Tensor | None = field(default=None, compare=False, repr=False)


def within_entropy_bound(entropy_R: Tensor, bound: float) -> BoolArray:
    """The rows of least entropy whose total without the largest of them stays within the bound; at least one.

    That total bounds how much the rows' tokens can tell about one another, so they may be drawn independently.

    Args:
        entropy_R: float32, in nats.
        bound: in nats, > 0.

    Source: EB-Sampler, arXiv 2505.24857 section 4.
    """
    sorted_R, order_R = entropy_R.sort(stable=True)
    chosen_R = torch.zeros(entropy_R.shape, dtype=torch.bool)
    chosen_R[order_R] = sorted_R.cumsum(-1) - sorted_R <= bound
    return chosen_R.numpy()


@dataclass(frozen=True, kw_only=True)
class UniformRenoise:
    """Windows of uniform noise, denoised by an entropy bound until the model's best guess is stable and confident.

    Each step draws a token for every position at a temperature that falls from `t_max` to `t_min`, keeps those of
    `within_entropy_bound` and redraws all others uniformly from the vocabulary. The window ends when the most likely
    tokens are the same as in the last `stability` steps and the mean entropy is below `confidence`, or after
    `num_steps`; the most likely tokens become final all at once. The first forward only reads the prompt, because the
    first noise depends on the request's seed.

    Source: DiffusionGemma, huggingface/transformers 5.24.0 `generation_diffusion_gemma.py`; entropy bound: EB-Sampler,
    arXiv 2505.24857 section 4.
    Departs from the source: numbers are drawn for each position by itself, so neighbours in a batch change nothing.

    Attributes:
        size: positions of a window, >= 1.
        vocab_size: ids that noise is drawn from.
        eos_ids: ids that end the answer.
        num_steps: most steps of a window, >= 1.
        t_min, t_max: temperatures, 0 < t_min <= t_max. The last step is at t_min + (t_max - t_min) / num_steps.
        entropy_bound: in nats, > 0.
        stability: steps whose guesses must agree with the present one; 0 asks for none.
        confidence: mean entropy in nats below which the window may end.
    """

    size: int
    vocab_size: int
    eos_ids: frozenset[int]
    num_steps: int = 48
    t_min: float = 0.4
    t_max: float = 0.8
    entropy_bound: float = 0.1
    stability: int = 1
    confidence: float = 0.005

    def __post_init__(self) -> None:
        for name, least in (("size", 1), ("vocab_size", 1), ("num_steps", 1), ("stability", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if not 0 < self.t_min <= self.t_max:
            raise ConfigError(f"temperatures need 0 < t_min <= t_max, got {self.t_min} and {self.t_max}")
        if self.entropy_bound <= 0 or self.confidence < 0:
            raise ConfigError(
                f"give entropy_bound above 0 and confidence at least 0, not {self.entropy_bound} and {self.confidence}"
            )

    def reads(self, canvas: Canvas) -> Reads:
        """Every row of the window; before there is one, the prompt's last row."""
        if canvas.open_L.any():
            return masked_reads(canvas)
        return Reads(predicts_R=np.array([canvas.length], np.int64), causal_R=np.ones(1, np.bool_))

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt alone; the first step opens a window."""
        num_prompt = prompt_ids.shape[0]
        return Canvas(
            ids_L=prompt_ids,
            open_L=np.zeros(num_prompt, np.bool_),
            prompt_length=num_prompt,
            num_final=num_prompt,
            window_start=num_prompt,
            limit=num_prompt + max_tokens,
        )

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Denoises the window once, or makes it final and opens the next."""
        if not canvas.open_L.any():
            return self._open(canvas, canvas.ids_L[:0], canvas.num_final, random)
        progress = _progress(canvas)
        processed_RV = self.processed(canvas, belief.logits_RV)
        uniforms = numbers(canvas, belief.predicts_R, random, Purpose.TOKEN)
        drawn_R = Sampling(temperature=1.0).draw(processed_RV, uniforms)  # raises if the logits are not finite
        entropy_R = torch.special.entr(processed_RV.softmax(-1)).sum(-1)
        guess_R = processed_RV.argmax(-1).numpy()
        is_last = progress.num_steps + 1 == self.num_steps
        if is_last or (self._is_stable(progress, guess_R) and float(entropy_R.mean()) < self.confidence):
            ids_L = np.concatenate((canvas.ids_L[: canvas.window_start], guess_R))
            num_final = final_prefix(ids_L, np.zeros(ids_L.shape, np.bool_), canvas, self.eos_ids)
            return self._open(canvas, guess_R, num_final, random)
        kept_R = within_entropy_bound(entropy_R, self.entropy_bound)
        guesses = (*progress.guesses, tuple(guess_R.tolist()))
        return Delta(
            positions_W=belief.predicts_R,
            ids_W=np.where(kept_R, drawn_R.numpy(), self._noise(canvas, belief.predicts_R, random)),
            open_W=np.ones(belief.predicts_R.shape, np.bool_),
            num_final=canvas.num_final,
            window_start=canvas.window_start,
            length=canvas.length,
            memory=Progress(
                num_steps=progress.num_steps + 1,
                guesses=guesses[max(len(guesses) - self.stability, 0) :],
                processed_RV=processed_RV,
            ),
        )

    def processed(self, canvas: Canvas, logits_RV: Tensor) -> Tensor:
        """Logits over this step's temperature, float32 [R, V]."""
        remaining = self.num_steps - _progress(canvas).num_steps
        return logits_RV / (self.t_min + (self.t_max - self.t_min) * remaining / self.num_steps)

    def conditioning(self, canvas: Canvas) -> Tensor | None:
        """The processed logits of the step before, float32 [R, V]; None for the first forward of a window."""
        return _progress(canvas).processed_RV

    def _is_stable(self, progress: Progress, guess_R: IntArray) -> bool:
        guess = tuple(guess_R.tolist())
        return len(progress.guesses) == self.stability and all(earlier == guess for earlier in progress.guesses)

    def _open(self, canvas: Canvas, decided_R: IntArray, num_final: int, random: RandomStream) -> Delta:
        """Writes a finished window and, unless the answer ended with it, opens one of noise after it."""
        end = canvas.window_start + decided_R.shape[0]
        goes_on = num_final == end < canvas.limit
        opened = np.arange(end, end + self.size if goes_on else end)
        return Delta(
            positions_W=np.arange(canvas.window_start, end + opened.shape[0]),
            ids_W=np.concatenate((decided_R, self._noise(canvas, opened, random))),
            open_W=np.arange(decided_R.shape[0] + opened.shape[0]) >= decided_R.shape[0],
            num_final=num_final,
            window_start=end,
            length=end + opened.shape[0],
            memory=Progress(),
        )

    def _noise(self, canvas: Canvas, positions_R: IntArray, random: RandomStream) -> IntArray:
        shares_R = np.array(numbers(canvas, positions_R, random, Purpose.NOISE), np.float64)
        return (shares_R * self.vocab_size).astype(np.int64)


def _progress(canvas: Canvas) -> Progress:
    return canvas.memory if isinstance(canvas.memory, Progress) else Progress()
