"""From logits to tokens: temperature, top-k, top-p, and one uniform number per draw."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from unmask.core.errors import EngineError

# Shape legend: R rows, V vocabulary.


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a token is drawn from a row of logits.

    Attributes:
        temperature: 0 takes the argmax (lowest id among equals).
        top_p: keep the smallest set of most likely tokens whose mass reaches it.
        top_k: keep that many most likely tokens; 0 keeps all.
        banned_ids: never drawn (the mask token).
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    banned_ids: tuple[int, ...] = ()

    def choose(self, logits_RV: Tensor, uniforms: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Like `draw`, with confidences float32 [R].

        A confidence is the probability of the row's most likely token before temperature: it does not depend on the
        draw.
        """
        ids_R = self.draw(logits_RV, uniforms)
        return ids_R, torch.exp(logits_RV.amax(-1) - logits_RV.logsumexp(-1))

    def draw(self, logits_RV: Tensor, uniforms: Sequence[float]) -> Tensor:
        """Draws one token per row.

        Args:
            logits_RV: float32; changed in place (banned ids become -inf).
            uniforms: R numbers in [0, 1); unused at temperature 0.

        Returns:
            ids int64 [R].

        Raises:
            EngineError: a row holds NaN or +inf, or nothing but -inf; whatever were drawn from it would be a lie.
        """
        logits_RV[:, list(self.banned_ids)] = -torch.inf
        best_R, ids_R = logits_RV.max(-1)
        if not bool(best_R.isfinite().all()):  # max passes NaN on
            raise EngineError("the model's logits are not finite; its weights are damaged or do not fit")
        if self.temperature > 0:
            below_RV = logits_RV.double() - best_R[:, None]  # so that a tiny temperature cannot overflow
            probabilities_RV = (below_RV / self.temperature).softmax(-1)
            ids_R = _draw(self._truncate(probabilities_RV), torch.tensor(uniforms, dtype=torch.float64))
        return ids_R

    def truncated(self, logits_RV: Tensor) -> Tensor:
        """The logits with -inf where top-p and top-k leave a token out; as they are at temperature 0."""
        if self.temperature == 0 or (not self.top_k and self.top_p >= 1.0):
            return logits_RV
        below_RV = logits_RV.double() - logits_RV.amax(-1, keepdim=True)
        kept_RV = self._truncate((below_RV / self.temperature).softmax(-1)) > 0
        return logits_RV.masked_fill(~kept_RV, -torch.inf)

    def _truncate(self, probabilities_RV: Tensor) -> Tensor:
        """Zeroes what top-k and top-p leave out; order of equals is by id."""
        if not self.top_k and self.top_p >= 1.0:
            return probabilities_RV
        sorted_RV, order_RV = probabilities_RV.sort(dim=-1, descending=True, stable=True)
        if self.top_p < 1.0:
            before_RV = sorted_RV.cumsum(-1) - sorted_RV
            sorted_RV = sorted_RV.masked_fill(before_RV >= self.top_p, 0.0)
        if self.top_k:
            sorted_RV[:, self.top_k :] = 0.0
        return torch.zeros_like(probabilities_RV).scatter_(-1, order_RV, sorted_RV)


def _draw(weights_RV: Tensor, uniforms_R: Tensor) -> Tensor:
    """Inverse-CDF draw in id order; never returns an id of weight 0."""
    cumulative_RV = weights_RV.cumsum(-1)
    targets_R1 = (uniforms_R * cumulative_RV[:, -1])[:, None]
    ids_R = torch.searchsorted(cumulative_RV, targets_R1, right=True).squeeze(-1)
    last_R = weights_RV.shape[1] - 1 - (weights_RV.flip(-1) > 0).int().argmax(-1)
    return torch.minimum(ids_R, last_R)
