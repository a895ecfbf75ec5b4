"""Training losses: functions of a packed batch. Nothing here knows optimisers, files or schedules."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from unmask.models.transformer import Transformer
from unmask.train.attention import tree_attention
from unmask.train.packing import PackedBatch

# Shape legend: N packed rows, A AR rows, M noisy rows, V vocabulary, D hidden.


@dataclass(frozen=True, kw_only=True)
class Loss:
    """A scalar to minimise and what to log about it (floats, nats or shares)."""

    value: Tensor
    metrics: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class DualLoss:
    """AR loss on the clean stream plus diffusion loss on the noisy copies.

    L = ar_weight * mean CE(clean rows) + diffusion_weight * mean CE(noisy rows) + confidence_weight * H
    where H is the mean entropy of noisy rows that are already right.

    Source: dual loss: TiDAR, arXiv 2511.08923 section 3.1; confidence term (CAP): LLaDA2.0, arXiv 2512.15745.
    Departs from the source: no 1/t weight on the diffusion term (as Fast-dLLM v2, arXiv 2509.26328, whose
    complementary copies supervise every position once); each term is a mean over its own rows.

    Attributes:
        ar_weight, diffusion_weight, confidence_weight: >= 0; a term of weight 0 is not computed.
        mask_token_id: excluded from every distribution, as it is when sampling.
    """

    mask_token_id: int
    ar_weight: float = 1.0
    diffusion_weight: float = 1.0
    confidence_weight: float = 0.0

    def __call__(self, denoise: "Denoise", batch: PackedBatch) -> Loss:
        """Computes the loss of one packed batch."""
        rows, targets, weights = self._supervised(batch)
        logits_RV = denoise(batch, rows)
        logits_RV[:, self.mask_token_id] = -torch.inf
        losses_R = functional.cross_entropy(logits_RV, targets, reduction="none")
        num_ar = rows.shape[0] - (batch.noisy_rows_M.shape[0] if self.diffusion_weight else 0)
        value = (losses_R * weights).sum()
        right_R = logits_RV.detach().argmax(-1) == targets
        metrics: dict[str, float] = {}
        if num_ar:
            metrics |= {"ar_loss": losses_R[:num_ar].mean().item(), "ar_right": right_R[:num_ar].float().mean().item()}
        if num_ar < rows.shape[0]:
            noisy_right = right_R[num_ar:]
            metrics |= {
                "diffusion_loss": losses_R[num_ar:].mean().item(),
                "diffusion_right": noisy_right.float().mean().item(),
            }
            if self.confidence_weight and noisy_right.any():
                logp = logits_RV[num_ar:][noisy_right].log_softmax(-1)
                entropy = -(logp.exp() * logp.clamp_min(-1e4)).sum(-1).mean()
                value = value + self.confidence_weight * entropy
                metrics["entropy_right"] = entropy.item()
        return Loss(value=value, metrics={"loss": value.item(), **metrics})

    def _supervised(self, batch: PackedBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, their targets, and the weight that turns the sum over rows into weighted means."""
        parts: list[tuple[Tensor, Tensor, float]] = []
        if self.ar_weight:
            parts.append((batch.ar_rows_A, batch.ar_targets_A, self.ar_weight))
        if self.diffusion_weight:
            parts.append((batch.noisy_rows_M, batch.noisy_targets_M, self.diffusion_weight))
        weights = [torch.full((len(rows),), weight / max(len(rows), 1)) for rows, _, weight in parts]
        return torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]), torch.cat(weights)


Denoise = Callable[[PackedBatch, Tensor], Tensor]
"""(batch, rows_R) -> logits [R, V] of those rows; the trainable model behind an objective."""


def denoiser(model: Transformer, mask_embedding_D: Tensor | None, mask_token_id: int) -> Denoise:
    """Wraps a `Transformer` for training: the mask id gets its own trainable input row.

    Args:
        model: the transformer, its projections trainable.
        mask_embedding_D: replaces the table's row of the mask id; None keeps the table's.
        mask_token_id: the mask id.
    """

    def denoise(batch: PackedBatch, rows_R: Tensor) -> Tensor:
        x_ND = functional.embedding(batch.ids_N, model.embedding)
        if mask_embedding_D is not None:
            x_ND = torch.where((batch.ids_N == mask_token_id)[:, None], mask_embedding_D, x_ND)
        attend = tree_attention(batch.visible_NN, batch.num_prefix, batch.branch_lengths)
        hidden_ND = model.run(x_ND, batch.positions_N, attend)
        return model.head(hidden_ND[rows_R])

    return denoise
