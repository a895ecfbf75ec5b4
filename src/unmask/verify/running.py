"""Running one recorded call: through the engine's own step and caches, or through `decoding/reference.py`."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from unmask.cache.approximate import ApproximateCache, Reuse
from unmask.cache.block_causal import BlockCausalCache
from unmask.core.canvas import BoolArray, Canvas, Delta, IntArray
from unmask.core.errors import EngineError
from unmask.core.plan import Reads
from unmask.decoding import reference
from unmask.decoding.belief import Belief
from unmask.decoding.fixed_canvas import guided
from unmask.decoding.randomness import RandomStream
from unmask.decoding.reference import ReferenceModel
from unmask.decoding.rules import DecodingRule, SelfConditioned, is_finished
from unmask.engine.runner import denoise
from unmask.engine.sequence import Decoding
from unmask.engine.settings import cache_shape
from unmask.models.loading import Loaded
from unmask.models.transformer import masked_attention

# Shape legend: L canvas length, V vocabulary.


@dataclass(frozen=True, kw_only=True)
class Call:
    """One row of a recorded call in our terms.

    Attributes:
        rule: in parity mode.
        prompt: what the rule begins with; may hold pads in front.
        max_tokens: as many as the rule decides.
        eos_ids: ids at which the run ends.
        random: the chance the case was recorded with, or any where it is greedy.
        logit_shift: 1 if a row predicts the position after it.
        block_size: alignment of a block-causal model's blocks; None for a fixed canvas, where all sees all.
        first: a canvas with holes to begin with, in place of an answer after the prompt; None for none.
        num_pads: leading positions that the model must neither see nor count.
        guidance: scale of classifier-free guidance; 0 for none.
        mask_token_id: hides the prompt from the unguided half.
        reuse: which approximate cache the call uses; None for none.
        wanted: the ids that must come out.
        wanted_forwards: the official number of forwards.
        ids_of: last canvas -> the ids to compare.
        forwards_of: our number of forwards, last canvas -> the official way of counting.
    """

    rule: DecodingRule
    prompt: IntArray
    max_tokens: int
    eos_ids: frozenset[int]
    random: RandomStream
    logit_shift: int
    block_size: int | None
    wanted: tuple[int, ...]
    wanted_forwards: int
    ids_of: Callable[[Canvas], list[int]]
    forwards_of: Callable[[int, Canvas], int]
    mask_token_id: int
    first: Canvas | None = None
    num_pads: int = 0
    guidance: float = 0.0
    reuse: Reuse | None = None

    @property
    def is_for_the_engine(self) -> bool:
        """Whether the engine can run it; it offers neither guidance nor padding."""
        return not self.guidance and not self.num_pads


@dataclass
class Watched:
    """A rule that begins with a given canvas, notes the canvases before and after each step, and gives up in time."""

    rule: DecodingRule
    first: Canvas | None
    max_steps: int
    before: list[Canvas] = field(default_factory=list)
    after: list[Canvas] = field(default_factory=list)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """See `DecodingRule`."""
        return self.first or self.rule.begin(prompt_ids, max_tokens)

    def reads(self, canvas: Canvas) -> Reads:
        """See `DecodingRule`."""
        return self.rule.reads(canvas)

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """See `DecodingRule`.

        Raises:
            EngineError: far more steps than the recorded run took.
        """
        if len(self.before) >= self.max_steps:
            raise EngineError(f"no end after {self.max_steps} steps")
        delta = self.rule.step(canvas, belief, random)
        self.before.append(canvas)
        self.after.append(canvas.apply(delta))
        return delta


class WatchedConditioned(Watched):
    """The same for a rule that tells the model what it said."""

    def conditioning(self, canvas: Canvas) -> Tensor | None:
        """See `SelfConditioned`."""
        assert isinstance(self.rule, SelfConditioned), "this class is for such rules"
        return self.rule.conditioning(canvas)


@dataclass(frozen=True)
class Run:
    """What came of a call.

    Attributes:
        call: as given.
        watched: its canvases.
        canvas: the last one.
        num_forwards: by our count.
    """

    call: Call
    watched: Watched
    canvas: Canvas
    num_forwards: int

    @property
    def ids(self) -> list[int]:
        """What to compare with `Call.wanted`."""
        return self.call.ids_of(self.canvas)

    @property
    def official_forwards(self) -> int:
        """What to compare with `Call.wanted_forwards`."""
        return self.call.forwards_of(self.num_forwards, self.canvas)


def run(call: Call, loaded: Loaded) -> Run:
    """Runs a call through the engine, or through the reference loop if the engine does not offer what it needs."""
    return run_engine(call, loaded) if call.is_for_the_engine else run_reference(call, loaded)


def run_engine(call: Call, loaded: Loaded, *, max_rows: int = 1000) -> Run:
    """The engine's own step over the call's cache, with the prompt fed in pieces of `max_rows`.

    Raises:
        ValueError: guidance or pads, which the engine does not offer.
        EngineError: the run does not end.
    """
    if not call.is_for_the_engine:
        raise ValueError("the engine offers neither guidance nor padding")
    shape = replace(
        cache_shape(loaded.config, loaded.traits),
        align=call.block_size or 1,
        logit_shift=call.logit_shift,
        fixed_canvas=call.block_size is None,
    )
    watched = _watch(call)
    decoding = Decoding(
        rule=watched,
        random=call.random,
        canvas=watched.begin(call.prompt, call.max_tokens),
        cache=BlockCausalCache(shape) if call.reuse is None else ApproximateCache(shape, call.reuse),
    )
    while not is_finished(decoding.canvas, call.eos_ids):
        denoise(loaded.model, [(decoding, max_rows)])
    return Run(call, watched, decoding.canvas, decoding.num_forwards)


def run_reference(call: Call, loaded: Loaded) -> Run:
    """`decoding/reference.py`: no cache, the whole canvas in each forward.

    Raises:
        ValueError: the call uses an approximate cache, which changes what comes out.
        EngineError: the run does not end.
    """
    if call.reuse is not None:
        raise ValueError("the reference loop has no approximate cache")
    watched, model = _watch(call), _without_pads(_whole_canvas(loaded), call.num_pads)
    if call.guidance:
        model = _guided_model(model, call)
    _, num_forwards = reference.generate(
        model,
        watched,
        call.prompt,
        max_tokens=call.max_tokens,
        eos_ids=call.eos_ids,
        random=call.random,
        align=call.block_size or 1,
        logit_shift=call.logit_shift,
    )
    last = watched.after[-1] if watched.after else watched.begin(call.prompt, call.max_tokens)
    return Run(call, watched, last, num_forwards)


def _watch(call: Call) -> Watched:
    watching = WatchedConditioned if isinstance(call.rule, SelfConditioned) else Watched
    return watching(call.rule, call.first, max_steps=2 * call.wanted_forwards + 64)


def _whole_canvas(loaded: Loaded) -> ReferenceModel:
    def model(ids_L: IntArray, visible_LL: BoolArray) -> Tensor:
        with torch.inference_mode():
            attend = masked_attention(torch.from_numpy(visible_LL))
            hidden_LD = loaded.model(torch.from_numpy(ids_L), torch.arange(len(ids_L)), attend)
            return loaded.model.head(hidden_LD).clone()

    return model


def _without_pads(model: ReferenceModel, num_pads: int) -> ReferenceModel:
    """The model on the text behind the pads: they are not seen, and positions are counted without them."""

    def forward(ids_L: IntArray, visible_LL: BoolArray) -> Tensor:
        logits_LV = model(ids_L[num_pads:], visible_LL[num_pads:, num_pads:])
        return torch.cat((logits_LV.new_zeros(num_pads, logits_LV.shape[1]), logits_LV))

    return forward if num_pads else model


def _guided_model(model: ReferenceModel, call: Call) -> ReferenceModel:
    """Two forwards in one: the second does not see what the prompt says."""
    num_prompt = len(call.prompt)

    def both(ids_L: IntArray, visible_LL: BoolArray) -> Tensor:
        blind_L = np.where(np.arange(len(ids_L)) < num_prompt, call.mask_token_id, ids_L)
        return guided(model(ids_L, visible_LL), model(blind_L, visible_LL), call.guidance)

    return both
