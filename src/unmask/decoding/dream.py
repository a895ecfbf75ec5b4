"""Dream's `diffusion_generate`, and the two versions of it that Fast-dLLM released."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from unmask.core.canvas import Canvas, Delta, IntArray
from unmask.core.errors import ConfigError
from unmask.core.plan import Reads
from unmask.decoding.belief import Belief
from unmask.decoding.fixed_canvas import (
    FixedCanvas,
    FloatArray,
    best,
    check_at_least,
    check_one_of,
    decide,
    draw,
    numbers,
    reads_of,
    wanted,
)
from unmask.decoding.randomness import Purpose, RandomStream
from unmask.decoding.sampling import Sampling

# Shape legend: R rows read, V vocabulary.
Algorithm = Literal["origin", "maskgit_plus", "topk_margin", "entropy"]


def filtered(logits_RV: Tensor, sampling: Sampling) -> Tensor:
    """Logits after temperature, top-p and top-k, -inf where a token is left out. At temperature 0 both still act.

    Top-p keeps the token that crosses it; the order of equals is by id.
    """
    if sampling.temperature > 0:
        logits_RV = logits_RV / sampling.temperature
    if sampling.top_p >= 1.0 and not sampling.top_k:
        return logits_RV
    sorted_RV, order_RV = logits_RV.sort(dim=-1, descending=True, stable=True)
    if sampling.top_p < 1.0:
        shares_RV = sorted_RV.softmax(-1)
        left_out = shares_RV.cumsum(-1) - shares_RV > sampling.top_p
        left_out[:, 0] = False
        sorted_RV = sorted_RV.masked_fill(left_out, -torch.inf)
    if sampling.top_k:
        sorted_RV[:, sampling.top_k :] = -torch.inf
    return torch.full_like(logits_RV, -torch.inf).scatter_(-1, order_RV, sorted_RV)


def confidence_of(logits_RV: Tensor, ids_R: IntArray, algorithm: Algorithm) -> FloatArray:
    """How sure the filtered distribution is, float32 values: larger is surer.

    "maskgit_plus" (and "origin") the probability of the drawn token, "topk_margin" the best probability minus the
    second best, "entropy" the negative entropy.
    """
    shares_RV = logits_RV.softmax(-1)
    if algorithm == "topk_margin":
        best_R2 = shares_RV.topk(2, dim=-1).values
        confidence = best_R2[:, 0] - best_R2[:, 1]
    elif algorithm == "entropy":
        confidence = (shares_RV * (shares_RV + 1e-10).log()).sum(-1)
    else:
        confidence = shares_RV.gather(-1, torch.from_numpy(ids_R)[:, None]).squeeze(-1)
    return confidence.double().numpy()


def reveal_shares(steps: int, eps: float) -> Tensor:
    """Share 1 - s/t of the masks that each step decides, float32 [steps], times t from 1 to eps; the last takes all."""
    times = torch.linspace(1, eps, steps + 1)
    shares = 1 - times[1:] / times[:-1]
    shares[-1] = 1.0
    return shares


def perturbed(confidence_R: FloatArray, temperature: float, uniforms: list[float]) -> FloatArray:
    """Keys whose largest n are a draw of n rows without replacement in proportion to exp(confidence / temperature)."""
    exponentials_R = -np.log1p(-np.array(uniforms))
    return confidence_R / temperature - np.log(np.maximum(exponentials_R, 1e-300))


def _propose(
    canvas: Canvas, belief: Belief, random: RandomStream, sampling: Sampling, banned_id: int | None
) -> tuple[IntArray, Tensor]:
    """One token per row, and the filtered logits [R, V] they were drawn from."""
    banned = [*sampling.banned_ids, *([] if banned_id is None else [banned_id])]
    belief.logits_RV[:, banned] = -torch.inf
    logits_RV = filtered(belief.logits_RV, sampling)
    left = Belief(logits_RV=logits_RV, predicts_R=belief.predicts_R, causal_R=belief.causal_R)
    ids_R = draw(canvas, left, random, Sampling(temperature=1.0 if sampling.temperature > 0 else 0.0), None)
    return ids_R, logits_RV


@dataclass(frozen=True, kw_only=True)
class Dream:
    """Decides by a time schedule, anywhere on the canvas: step from t to s decides the share 1 - s/t of the masks.

    Attributes:
        layout: the canvas.
        sampling: how tokens are drawn. Top-p and top-k act at temperature 0 too, and raise the confidences.
        algorithm: "origin" reveals each mask by chance; the others decide int(masks * share) positions, the surest
            first (see `confidence_of`).
        steps: time steps; 0 for one per answer position.
        eps: time of the last step.
        order_temperature: above 0, positions are drawn in proportion to exp(confidence / it) (Dream's `alg_temp`).
        parity: as the reference implementation: steps that decide nothing are run (the first one often is), ties as
            torch.topk has them, no early stop at EOS, and a predicted mask leaves its position open till the last
            step.

    Published settings. Dream-v0-Instruct-7B: "entropy", temperature 0.2, top_p 0.95, steps = answer length = 512;
    its evaluations temperature 0.1, top_p 0.9. Dream-Coder: 768 steps, temperature 0.1. DiffuCoder: 256 steps,
    temperature 0.2 to 0.4.

    Source: Dream 7B, arXiv 2508.15487, and the `diffusion_generate` released with the checkpoints.
    Departs from the source: tokens and positions are drawn from counter streams (the same laws); unless `parity`,
    steps that decide nothing are skipped (the same law, fewer forwards), ties go to the lowest position, and
    positions after a decided EOS are left alone.

    Raises:
        ConfigError: steps or eps is out of range, or the algorithm is unknown.
    """

    layout: FixedCanvas
    sampling: Sampling
    algorithm: Algorithm = "entropy"
    steps: int = 0
    eps: float = 1e-3
    order_temperature: float = 0.0
    parity: bool = False

    def __post_init__(self) -> None:
        check_at_least(0, "steps", self.steps)
        check_one_of("algorithm", self.algorithm, get_args(Algorithm))
        if not 0 < self.eps < 1:
            raise ConfigError(f"eps must be in (0, 1), got {self.eps}")

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and all masks of the answer."""
        return self.layout.lay_out(prompt_ids, max_tokens)

    def reads(self, canvas: Canvas) -> Reads:
        """Every open position that is still wanted."""
        return reads_of(canvas, wanted(canvas, self.layout.stops(parity=self.parity)))

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Decides what the schedule says; `memory` counts its steps."""
        ids_R, logits_RV = _propose(canvas, belief, random, self.sampling, self.layout.banned(parity=self.parity))
        confidence_R = confidence_of(logits_RV, ids_R, self.algorithm)
        steps = self.steps or canvas.limit - canvas.prompt_length
        shares = reveal_shares(steps, self.eps)
        time = canvas.memory if isinstance(canvas.memory, int) else 0
        chosen = self._chosen(canvas, belief, confidence_R, shares, time, random)
        while not chosen.size and not self.parity and time < steps - 1:
            time += 1
            chosen = self._chosen(canvas, belief, confidence_R, shares, time, random)
        last = time >= steps - 1
        return decide(
            canvas,
            belief.predicts_R[chosen],
            ids_R[chosen],
            self.layout,
            parity=self.parity,
            memory=time + 1,
            more=self.parity and not last,
            closing=canvas.length if self.parity and last else 0,
        )

    def _chosen(
        self, canvas: Canvas, belief: Belief, confidence_R: FloatArray, shares: Tensor, time: int, random: RandomStream
    ) -> IntArray:
        """Rows decided in the schedule's step `time`."""
        share = shares[min(time, shares.shape[0] - 1)]
        if self.algorithm == "origin":
            return np.flatnonzero(
                np.array(numbers(canvas, belief.predicts_R, random, Purpose.ORDER, time)) < float(share)
            )
        count = int(torch.tensor(confidence_R.shape[0], dtype=torch.float32) * share)
        if self.order_temperature > 0:
            uniforms = numbers(canvas, belief.predicts_R, random, Purpose.ORDER, time)
            return best(perturbed(confidence_R, self.order_temperature, uniforms), count)
        return best(confidence_R, count, parity=self.parity)


@dataclass(frozen=True, kw_only=True)
class DreamThreshold:
    """Fast-dLLM's uncached rule for Dream: an equal share of all masks per step, of which the sure ones are decided.

    What a step leaves undecided of its share is added to the next one's; steps are added until nothing is left.

    Attributes:
        layout: the canvas.
        sampling: how tokens are drawn; see `Dream`.
        steps: steps among which the masks are divided.
        threshold: confidence (probability of the drawn token after filtering) needed; the surest always goes.
        parity: as the released code: ties as torch.topk has them, no early stop at EOS.

    Published settings: threshold 0.9. Do not use it on Dream-Instruct: EOS at the far end is decided first and floods
    the canvas.

    Source: Fast-dLLM, arXiv 2505.22618, released `generation_utils.py` for Dream (`alg="confidence_threshold"`).
    Departs from the source: masks need not be divisible by steps (shares are rounded up); unless `parity`, ties go to
    the lowest position and positions after a decided EOS are left alone. The released loop never ends if the model
    predicts the mask; here such a position becomes final as a mask once a step decides nothing else.

    Raises:
        ConfigError: steps is below 1.
    """

    layout: FixedCanvas
    sampling: Sampling
    steps: int
    threshold: float = 0.9
    parity: bool = False

    def __post_init__(self) -> None:
        check_at_least(1, "steps", self.steps)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and all masks of the answer."""
        return self.layout.lay_out(prompt_ids, max_tokens)

    def reads(self, canvas: Canvas) -> Reads:
        """Every open position that is still wanted."""
        return reads_of(canvas, wanted(canvas, self.layout.stops(parity=self.parity)))

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Decides the sure ones of the shares due so far; `memory` is the number of masks at the start."""
        num_open = int(canvas.open_L.sum())
        total = canvas.memory if isinstance(canvas.memory, int) else num_open
        due = min(-(-total // self.steps) * (canvas.step + 1), total)
        ids_R, logits_RV = _propose(canvas, belief, random, self.sampling, self.layout.banned(parity=self.parity))
        confidence_R = confidence_of(logits_RV, ids_R, "maskgit_plus")
        chosen = best(confidence_R, max(due - (total - num_open), 1), parity=self.parity)
        sure = confidence_R[chosen] >= self.threshold
        sure[0] = True
        positions, ids = belief.predicts_R[chosen[sure]], ids_R[chosen[sure]]
        stuck = bool((ids == self.layout.mask_token_id).all())
        closing = canvas.length if stuck else 0
        return decide(canvas, positions, ids, self.layout, parity=self.parity, memory=total, closing=closing)


@dataclass(frozen=True, kw_only=True)
class BlockTime:
    """Where `DreamBlocks` stands.

    Attributes:
        end: where the active block ends.
        time: steps taken in it; 0 before the first.
    """

    end: int
    time: int


@dataclass(frozen=True, kw_only=True)
class DreamBlocks:
    """Fast-dLLM's block rule for Dream, made for approximate caches: each block begins with its first position.

    The first position of a block is decided from the forward that begins the block, whatever its confidence: with
    shifted logits, later forwards of the block alone have no row that predicts it.

    Attributes:
        layout: the canvas.
        sampling: how tokens are drawn; see `Dream`.
        block_length: positions of a block.
        threshold: decide all whose confidence (probability of the drawn token after filtering) reaches it, and the
            surest. None: follow Dream's time schedule with negative entropy, per block, from its second step on.
        steps_per_block: time steps of a block, >= 2; only with threshold None.
        eps: time of the last step; only with threshold None.
        parity: as the released code: steps that decide nothing are run, ties as torch.topk has them, no early stop.

    Published settings: block_length 32, threshold 0.9.

    Source: Fast-dLLM, arXiv 2505.22618, released `generation_utils_block.py` for Dream.
    Departs from the source: unless `parity`, steps that decide nothing are skipped, ties go to the lowest position
    and positions after a decided EOS are left alone. A predicted mask becomes final as a mask when its block ends.

    Raises:
        ConfigError: threshold is None and steps_per_block is below 2, or block_length is below 1.
    """

    layout: FixedCanvas
    sampling: Sampling
    block_length: int = 32
    threshold: float | None = 0.9
    steps_per_block: int = 0
    eps: float = 1e-3
    parity: bool = False

    def __post_init__(self) -> None:
        if self.threshold is None and self.steps_per_block < 2:
            raise ConfigError("give a threshold, or at least 2 steps_per_block")
        check_at_least(1, "block_length", self.block_length)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The prompt and all masks of the answer."""
        return self.layout.lay_out(prompt_ids, max_tokens)

    def reads(self, canvas: Canvas) -> Reads:
        """The first open position at the start of a block, later every open position of the block."""
        now = self._now(canvas)
        positions = wanted(canvas, self.layout.stops(parity=self.parity), now.end)
        return reads_of(canvas, positions if now.time else positions[:1])

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Decides positions of the active block."""
        now = self._now(canvas)
        ids_R, logits_RV = _propose(canvas, belief, random, self.sampling, self.layout.banned(parity=self.parity))
        chosen, time = np.zeros(1, np.int64), 0
        if now.time:
            chosen, time = self._chosen(logits_RV, ids_R, now.time)
        positions, ids = belief.predicts_R[chosen], ids_R[chosen]
        stuck = bool(now.time and chosen.size and (ids == self.layout.mask_token_id).all())
        later = BlockTime(end=now.end, time=time + 1)
        closing = now.end if stuck else 0
        return decide(canvas, positions, ids, self.layout, parity=self.parity, memory=later, closing=closing)

    def _now(self, canvas: Canvas) -> BlockTime:
        now = canvas.memory
        if isinstance(now, BlockTime) and canvas.open_L[: now.end].any():
            return now
        first = int(canvas.open_L.argmax())
        end = canvas.prompt_length + ((first - canvas.prompt_length) // self.block_length + 1) * self.block_length
        return BlockTime(end=min(end, canvas.length), time=0)

    def _chosen(self, logits_RV: Tensor, ids_R: IntArray, time: int) -> tuple[IntArray, int]:
        """Rows to decide and the time step that decides them."""
        if self.threshold is not None:
            confidence_R = confidence_of(logits_RV, ids_R, "maskgit_plus")
            chosen = confidence_R >= self.threshold
            chosen[best(confidence_R, 1, parity=self.parity)] = True
            return np.flatnonzero(chosen), time
        confidence_R = confidence_of(logits_RV, ids_R, "entropy")
        shares = reveal_shares(self.steps_per_block, self.eps)
        num_rows = torch.tensor(confidence_R.shape[0], dtype=torch.float32)
        time = min(time, self.steps_per_block - 1)
        while not self.parity and int(num_rows * shares[time]) == 0:
            time += 1
        return best(confidence_R, int(num_rows * shares[time]), parity=self.parity), time
