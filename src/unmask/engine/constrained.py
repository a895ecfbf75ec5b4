"""Decoding under a constraint: any rule decides from an exact posterior in place of the model's belief.

Two rules, because there are two ways to read a window. `Constrained` wraps a rule that decides masked positions: what
the rule sees are logits of the posterior, so its threshold, quota or order act on that. `ConstrainedVerify` walks the
causal rows one by one, as an AR model under a grammar does, and drafts the window from the posterior; its ids are those
of its own AR mode (a window of 0).

Text that the constraint forces costs no forward: it is placed where the decided text ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from unmask.core.canvas import Canvas, Delta, IntArray
from unmask.core.constraint import AnswerConstraint, FloatArray, Refined
from unmask.core.errors import EngineError
from unmask.core.plan import Reads, verifying_reads
from unmask.decoding.belief import Belief
from unmask.decoding.randomness import Purpose, RandomStream
from unmask.decoding.rules import DecodingRule, Window
from unmask.decoding.sampling import Sampling

# Shape legend: R rows read, V vocabulary, L canvas length, D drafts.


@dataclass(frozen=True, kw_only=True)
class Constrained:
    """A rule for masked positions under a constraint.

    Whatever the rule decides in one step comes from one accepted filling of the canvas, so the answer can always be
    completed within its limit. A decided position keeps its token: where a rule may edit, it finds the token certain.

    Attributes:
        rule: chooses among positions; must draw nothing itself (temperature 0).
        constraint: the language of the answer.
        sampling: at temperature 0 the likeliest accepted filling is taken, else one is drawn from the model's belief
            given the constraint. top-p and top-k act on the belief before; where they leave out all that the constraint
            allows, all of it stays possible.
    """

    rule: DecodingRule
    constraint: AnswerConstraint
    sampling: Sampling

    def reads(self, canvas: Canvas) -> Reads:
        """What the rule wants."""
        return self.rule.reads(canvas)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """The rule's first canvas behind prompt and forced text."""
        return _begin(self.rule, self.constraint, prompt_ids, max_tokens)

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Refines the belief and lets the rule decide."""
        ids_L, open_L = canvas.ids_L.copy(), canvas.open_L.copy()
        self._place_forced(canvas, ids_L, open_L)
        logits_RV = self.sampling.truncated(_finite(belief.logits_RV))
        refined = self.constraint.refine(
            ids_L=ids_L,
            open_L=open_L,
            answer_start=canvas.prompt_length,
            window_end=int(belief.predicts_R.max()) + 1,
            limit=canvas.limit,
            logits_RV=logits_RV.numpy(),
            predicts_R=belief.predicts_R,
            temperature=self.sampling.temperature,
            uniforms_R2=_uniforms(
                random, belief.predicts_R, self.sampling.temperature, block=canvas.block, step=canvas.step
            ),
        )
        posterior = replace(belief, logits_RV=_as_logits(refined, logits_RV.shape[1]))
        return self.rule.step(canvas, posterior, random)

    def _place_forced(self, canvas: Canvas, ids_L: IntArray, open_L: np.ndarray) -> None:
        """Takes what is forced at the first open position as given, unless something behind it is decided.

        The forced text is cut into tokens in one way, a decided token may stem from another.
        """
        first = canvas.num_final + int(open_L[canvas.num_final :].argmax())
        if not open_L[first:].all():
            return
        state = self.constraint.walk(ids_L[canvas.prompt_length : first].tolist())
        forced = self.constraint.forced_text(room=canvas.limit - first, state=state)[: canvas.length - first]
        ids_L[first : first + len(forced)], open_L[first : first + len(forced)] = forced, False


@dataclass(frozen=True, kw_only=True)
class ConstrainedVerify:
    """Verified mode and, with a window of 0, AR mode under a constraint.

    A token is the choice of the causal row among those after which the text can still be completed within its limit;
    forced text follows it at once. Both depend on the text before and that row alone, so the ids equal AR mode's, at
    any temperature with the same seed. The masked rows' drafts are one accepted filling of the window.

    Source: as `unmask.decoding.rules.Verify`.

    Attributes:
        window: as in `Verify`.
        constraint: the language of the answer.
        sampling: at temperature 0 the likeliest token that may follow is taken, else one is drawn among these; top-p
            and top-k as in `Constrained`.
    """

    window: Window
    constraint: AnswerConstraint
    sampling: Sampling

    def reads(self, canvas: Canvas) -> Reads:
        """The causal rows, which decide, and the masked ones, which draft."""
        return verifying_reads(canvas)

    def begin(self, prompt_ids: IntArray, max_tokens: int) -> Canvas:
        """Prompt, forced text and a window of masks."""
        return _begin(self.window, self.constraint, prompt_ids, max_tokens)

    def step(self, canvas: Canvas, belief: Belief, random: RandomStream) -> Delta:
        """Accepts drafts, adds the causal token and what is forced behind it, and lays out the next drafts."""
        logits_RV = self.sampling.truncated(_finite(belief.logits_RV))
        drafts_D = canvas.ids_L[canvas.num_final : canvas.window_start]
        state = self.constraint.walk(canvas.answer_L.tolist())
        emitted, row, on_drafts = list[int](), 0, True  # `row`: causal row that speaks next
        following = self._forced(state, canvas, 0)
        while following or (on_drafts and not self._is_over(canvas, emitted)):
            if not following:
                following = [self._choose(logits_RV[row], canvas.num_final + len(emitted), state, canvas, random)]
            for token in following:
                agrees = on_drafts and row < len(drafts_D) and drafts_D[row] == token
                emitted.append(token)
                row, on_drafts = row + agrees, agrees
            state = self.constraint.walk(following, state)
            following = self._forced(state, canvas, len(emitted))
        return self._lay_out(canvas, emitted, row == len(drafts_D), belief, logits_RV, random)

    def _is_over(self, canvas: Canvas, emitted: list[int]) -> bool:
        return canvas.num_final + len(emitted) >= canvas.limit or (bool(emitted) and emitted[-1] in self.window.eos_ids)

    def _forced(self, state: int, canvas: Canvas, num_emitted: int) -> list[int]:
        """What must follow: text, and the end of the answer if nothing else can come."""
        room = canvas.limit - canvas.num_final - num_emitted
        text = self.constraint.forced_text(room=room, state=state)
        behind = self.constraint.walk(text, state)
        if self.constraint.must_end(behind) and not self.constraint.has_ended(behind) and len(text) < room:
            text.append(min(self.window.eos_ids))
        return text

    def _choose(self, logits_V: Tensor, position: int, state: int, canvas: Canvas, random: RandomStream) -> int:
        """The causal row's token."""
        if self.sampling.temperature == 0:  # mostly the model's first choice is allowed, and then it is the best one
            token = int(logits_V.argmax())
            behind = self.constraint.walk([token], state)
            if 0 <= self.constraint.shortest(behind) <= canvas.limit - position - 1:
                return token
        predicts_R = np.array([position])
        refined = self.constraint.refine(
            ids_L=canvas.ids_L[:position],
            open_L=canvas.open_L[:0],
            answer_start=position,
            window_end=position + 1,
            limit=canvas.limit,
            logits_RV=logits_V[None].numpy(),
            predicts_R=predicts_R,
            temperature=self.sampling.temperature,
            uniforms_R2=_uniforms(random, predicts_R, self.sampling.temperature),
            state=state,
        )
        return int(refined.path_ids_R[0])

    def _lay_out(
        self,
        canvas: Canvas,
        emitted: list[int],
        all_agreed: bool,
        belief: Belief,
        logits_RV: Tensor,
        random: RandomStream,
    ) -> Delta:
        """The delta: final tokens, drafts for the rest of the window if it saw the right text, a window of masks."""
        num_final = canvas.num_final + len(emitted)
        drafting_R = ~belief.causal_R & (belief.predicts_R >= num_final)
        drafts = np.zeros(0, np.int64)
        if all_agreed and drafting_R.any() and not self._is_over(canvas, emitted):
            predicts_R = belief.predicts_R[drafting_R]
            refined = self.constraint.refine(
                ids_L=np.concatenate((canvas.ids_L[: canvas.num_final], np.array(emitted, np.int64))),
                open_L=np.zeros(num_final, np.bool_),
                answer_start=canvas.prompt_length,
                window_end=int(predicts_R.max()) + 1,
                limit=canvas.limit,
                logits_RV=logits_RV[torch.from_numpy(drafting_R)].numpy(),
                predicts_R=predicts_R,
                temperature=self.sampling.temperature,
                uniforms_R2=_uniforms(random, predicts_R, self.sampling.temperature),
            )
            drafts = refined.path_ids_R
        masks = np.full(self.window.size, self.window.mask_token_id, np.int64)
        written = np.concatenate((np.array(emitted, np.int64), drafts, masks))
        length = canvas.num_final + written.shape[0]
        return Delta(
            positions_W=np.arange(canvas.num_final, length),
            ids_W=written,
            open_W=np.arange(written.shape[0]) >= len(emitted),
            num_final=num_final,
            window_start=num_final + drafts.shape[0],
            length=length,
        )


def _begin(
    layout: DecodingRule | Window, constraint: AnswerConstraint, prompt_ids: IntArray, max_tokens: int
) -> Canvas:
    """A canvas whose answer begins with what the constraint forces; at least one position is left to decide."""
    forced = np.array(constraint.forced_text(room=max_tokens)[: max_tokens - 1], np.int64)
    text_ids, rest = np.concatenate((prompt_ids, forced)), max_tokens - len(forced)
    canvas = layout.lay_out(text_ids, rest) if isinstance(layout, Window) else layout.begin(text_ids, rest)
    return replace(canvas, prompt_length=prompt_ids.shape[0])


def _finite(logits_RV: Tensor) -> Tensor:
    """float32 on the CPU.

    Raises:
        EngineError: a row holds NaN or +inf, or nothing but -inf.
    """
    if not bool(logits_RV.amax(-1).isfinite().all()):
        raise EngineError("the model's logits are not finite; its weights are damaged or do not fit")
    return logits_RV.float().cpu()


def _uniforms(
    random: RandomStream, positions: Sequence[int] | IntArray, temperature: float, *, block: int = 0, step: int = 0
) -> FloatArray | None:
    """Two numbers for each position; none at temperature 0."""
    if temperature == 0:
        return None
    purposes = (Purpose.TOKEN, Purpose.PATH)
    rows = [
        [random.uniform(block=block, step=step, position=int(position), purpose=purpose) for purpose in purposes]
        for position in positions
    ]
    return np.array(rows).reshape(-1, len(purposes))


def _as_logits(refined: Refined, num_tokens: int) -> Tensor:
    """Logits under which the path's token is the likeliest of its row and has the posterior's probability.

    The rest is spread evenly: nothing that a rule looks at depends on which other token might have stood there. A token
    less likely than that share stays the likeliest by a hair.
    """
    likely_R = refined.confidence_R.clip(1e-30, 1.0)
    rest_R = np.minimum((1 - likely_R) / max(num_tokens - 1, 1), 0.999 * likely_R).clip(1e-38)
    logits_RV = torch.from_numpy(np.log(rest_R)).float()[:, None].repeat(1, num_tokens)
    path_R1 = torch.from_numpy(refined.path_ids_R)[:, None]
    return logits_RV.scatter(1, path_R1, torch.from_numpy(np.log(likely_R)).float()[:, None])
