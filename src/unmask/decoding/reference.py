"""The specification: one sequence, no cache, no batching, every forward over the whole canvas.

Slow and obvious on purpose. The engine must produce the same ids, token for token.
"""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from unmask.core.canvas import BoolArray, Canvas, IntArray
from unmask.decoding.belief import Belief
from unmask.decoding.randomness import RandomStream
from unmask.decoding.rules import DecodingRule, SelfConditioned, is_finished, visible_answer

# Shape legend: L canvas length, R rows read, V vocabulary.

ReferenceModel = Callable[..., Tensor]
"""(ids_L, visible_LL) -> logits [L, V] of every position under the given attention; under a `SelfConditioned` rule
(ids_L, visible_LL, open_L, conditioning [W, V] of the open positions or None)."""


def visibility(canvas: Canvas, align: int) -> BoolArray:
    """Who sees whom on a whole canvas: clean rows up to the end of their `align` block, the window everything."""
    position = np.arange(canvas.length)
    limit = np.where(position < canvas.window_start, (position // align + 1) * align, canvas.length)
    return position[None, :] < limit[:, None]


def generate(
    model: ReferenceModel,
    rule: DecodingRule,
    prompt_ids: IntArray,
    *,
    max_tokens: int,
    eos_ids: frozenset[int],
    random: RandomStream,
    align: int = 1,
    logit_shift: int = 0,
) -> tuple[IntArray, int]:
    """Decodes one answer.

    Returns:
        The answer ids (before EOS, at most `max_tokens`) and the number of forwards.
    """
    canvas = rule.begin(prompt_ids, max_tokens)
    num_forwards = 0
    while not is_finished(canvas, eos_ids):
        told = (canvas.open_L, rule.conditioning(canvas)) if isinstance(rule, SelfConditioned) else ()
        logits_LV = model(canvas.ids_L, visibility(canvas, align), *told)
        num_forwards += 1
        reads = rule.reads(canvas)
        shifts = np.where(reads.causal_R, 1, logit_shift)
        belief = Belief(
            logits_RV=logits_LV[reads.predicts_R - shifts].clone(),
            predicts_R=reads.predicts_R,
            causal_R=reads.causal_R,
        )
        canvas = canvas.apply(rule.step(canvas, belief, random))
    return visible_answer(canvas, eos_ids), num_forwards
