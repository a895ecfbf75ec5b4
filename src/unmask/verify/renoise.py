"""Recorded cases of uniform noise (DiffusionGemma).

Nobody else's random numbers can be drawn again, so a run is replayed step by step: our rule sees the recorded canvas,
and after its step the noise it drew is replaced by the recorded noise. What it would keep, its best guess, the end of a
window and the answer are its own.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from unmask.cache.block_causal import BlockCausalCache
from unmask.core.canvas import Canvas, Delta, IntArray
from unmask.core.errors import CheckpointError
from unmask.core.plan import Reads, masked_reads
from unmask.decoding.belief import Belief
from unmask.decoding.randomness import RandomStream
from unmask.decoding.renoise import UniformRenoise, within_entropy_bound
from unmask.engine.runner import denoise
from unmask.engine.sequence import Decoding
from unmask.engine.settings import cache_shape
from unmask.models.config import Traits
from unmask.models.loading import Loaded
from unmask.verify.folders import Case
from unmask.verify.running import Call

# Shape legend: R rows read (the window), V vocabulary.

RENOISE_FUNCTIONS = frozenset({"diffusion_gemma.generate"})
Step = tuple[list[int], list[int], list[int]]
"""Canvas fed, most likely tokens, indices of the kept ones."""


@dataclass
class Replay:
    """A rule of uniform noise on the recorded noise; notes what each step saw and decided."""

    rule: UniformRenoise
    canvases: list[list[int]]
    seen: list[Step] = field(default_factory=list)

    def reads(self, canvas: Canvas) -> Reads:
        """See `DecodingRule`."""
        return self.rule.reads(canvas)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """See `DecodingRule`."""
        return self.rule.begin(prompt_ids, max_tokens)

    def conditioning(self, canvas: Canvas) -> Tensor | None:
        """See `SelfConditioned`."""
        return self.rule.conditioning(canvas)

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """See `DecodingRule`."""
        delta = self.rule.step(canvas, belief, random)
        if canvas.open_L.any():
            processed_RV = self.rule.processed(canvas, belief.logits_RV)
            entropy_R = torch.special.entr(processed_RV.softmax(-1)).sum(-1)
            kept_R = within_entropy_bound(entropy_R, self.rule.entropy_bound)
            fed = canvas.ids_L[canvas.window_start :].tolist()
            self.seen.append((fed, processed_RV.argmax(-1).tolist(), np.flatnonzero(kept_R).tolist()))
        if len(self.seen) >= len(self.canvases) or not delta.open_W.any():
            return delta
        ids_W = delta.ids_W.copy()
        ids_W[delta.open_W] = self.canvases[len(self.seen)]
        return replace(delta, ids_W=ids_W)


def renoise_call(case: Case, traits: Traits) -> Call:
    """A recorded run.

    Raises:
        CheckpointError: it is a batch, whose steps are not recorded.
    """
    if len(case["output_ids"]) != 1:
        raise CheckpointError(f"case {case['name']!r} is a batch; steps are recorded for one prompt")
    settings = case["parameters"]
    rule = UniformRenoise(
        size=traits.block_size,
        vocab_size=traits.vocab_size,
        eos_ids=traits.eos_ids,
        num_steps=settings["max_denoising_steps"],
        t_min=settings["t_min"],
        t_max=settings["t_max"],
        entropy_bound=settings["sampler_config"]["entropy_bound"],
        stability=settings["stability_threshold"],
        confidence=settings["confidence_threshold"],
    )
    return Call(
        rule=Replay(rule, [step["canvas"] for step in case["steps"]]),
        prompt=np.array(case["input_ids"][0]),
        max_tokens=settings["max_new_tokens"],
        eos_ids=traits.eos_ids,
        random=RandomStream(seed=0),
        logit_shift=0,
        block_size=1,
        mask_token_id=-1,
        wanted=tuple(case["output_ids"][0]),
        wanted_forwards=case["decoder_forwards"],
        ids_of=lambda canvas: canvas.ids_L[: canvas.num_final].tolist(),
        forwards_of=lambda num_forwards, _canvas: num_forwards - 1,  # the one over the prompt is the encoder's
    )


def renoise_traces(case: Case, replay: Replay) -> tuple[list[Step], list[Step]]:
    """(ours, theirs): canvas, guess and kept positions of each step."""
    return replay.seen, [(step["canvas"], step["argmax_canvas"], step["accepted"]) for step in case["steps"]]


@dataclass
class _Window:
    """A rule that lays out a given window behind the prompt and only looks at it, telling the model what it is told."""

    window: list[int]
    said_RV: Tensor | None
    shown_RV: Tensor | None = None

    def reads(self, canvas: Canvas) -> Reads:
        return masked_reads(canvas)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        ids_L, start = np.concatenate((prompt_ids, np.array(self.window))), len(prompt_ids)
        return Canvas(
            ids_L=ids_L,
            open_L=np.arange(len(ids_L)) >= start,
            prompt_length=start,
            num_final=start,
            window_start=start,
            limit=start + max_tokens,
        )

    def conditioning(self, canvas: Canvas) -> Tensor | None:
        return self.said_RV

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        self.shown_RV, nothing = belief.logits_RV.clone(), np.zeros(0, np.int64)
        return Delta(
            positions_W=nothing,
            ids_W=nothing,
            open_W=nothing.astype(np.bool_),
            num_final=canvas.num_final,
            window_start=canvas.window_start,
            length=canvas.length,
        )


def window_logits(loaded: Loaded, case: Case, row: int) -> Tensor:
    """Our logits [R, V] at the case's positions of a window behind a prompt.

    Where the case says so, the model is told the logits of the same call, divided by the number that ends its note.
    """
    context, window = case["input_ids"][row], case["decoder_input_ids"][row]
    logits_RV = _shown(loaded, context, window, None)
    if "self_conditioning" in case:
        logits_RV = _shown(loaded, context, window, logits_RV / float(case["self_conditioning"].split()[-1]))
    return logits_RV[case["positions"]]


def _shown(loaded: Loaded, context: list[int], window: list[int], said_RV: Tensor | None) -> Tensor:
    rule, random = _Window(window, said_RV), RandomStream(seed=0)
    cache = BlockCausalCache(cache_shape(loaded.config, loaded.traits))
    canvas = rule.begin(np.array(context), len(window))
    denoise(loaded.model, [(Decoding(rule=rule, random=random, canvas=canvas, cache=cache), len(context))])
    assert rule.shown_RV is not None, "one forward feeds it all"
    return rule.shown_RV
