"""Mixture-of-experts feed-forward: a router in float32 picks a few experts for each row.

A row's result never depends on the rows beside it, bit for bit: the router works on whole tiles of rows, each expert is
a row-independent linear layer over the rows that chose it, and a row adds up its experts in the order of their scores.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from unmask.models.config import FeedKind, MoEConfig, RouterScore
from unmask.models.linear import ROW_TILE, TiledLinear
from unmask.models.transformer import by_rows, feed_forward

# Shape legend: N rows, D hidden, E experts, J experts chosen per row, S groups of experts.


class Router(nn.Module):
    """Which experts a row goes to, and with what weight.

    Always in float32, whatever the experts are kept in: a score that is off by a little sends a row elsewhere. Equal
    scores go to the lower index.

    Source: DeepSeek-V3, arXiv 2412.19437 section 2.1.2 (sigmoid scores, choice bias, groups); OLMoE, arXiv 2409.02060
    section 2 (softmax scores, weights left as they are).

    Args:
        moe: number of experts and how they are scored.
        weight_ED: float32.
        choice_bias_E: float32 or None.
    """

    def __init__(self, moe: MoEConfig, weight_ED: Tensor, choice_bias_E: Tensor | None) -> None:
        super().__init__()
        self.moe = moe
        self.gate = TiledLinear(weight_ED, None)
        self.choice_bias = None if choice_bias_E is None else nn.Parameter(choice_bias_E, requires_grad=False)

    def forward(self, x_ND: Tensor) -> tuple[Tensor, Tensor]:
        """Maps [N, D] to (experts [N, J] int64, weights [N, J]), best score first."""
        moe, num_rows = self.moe, x_ND.shape[0]
        # whole tiles, because a kernel may treat the last few values of a tensor in another way than the rest
        logits_NE = self.gate(functional.pad(x_ND, (0, 0, 0, -num_rows % ROW_TILE)))
        is_sigmoid = moe.score is RouterScore.SIGMOID
        scores_NE = (by_rows(torch.sigmoid, logits_NE) if is_sigmoid else logits_NE.softmax(-1))[:num_rows]
        choice_NE = scores_NE if self.choice_bias is None else scores_NE + self.choice_bias
        if moe.num_groups > 1:
            choice_NE = self._within_groups(choice_NE)
        chosen_NJ = choice_NE.sort(dim=-1, descending=True, stable=True).indices[:, : moe.num_chosen]
        weights_NJ = scores_NE.gather(-1, chosen_NJ)
        if moe.normalise:
            weights_NJ = weights_NJ / (_sum_of_columns(weights_NJ) + 1e-20)
        return chosen_NJ, weights_NJ * moe.scale

    def _within_groups(self, choice_NE: Tensor) -> Tensor:
        """Closes all experts outside the best groups."""
        moe = self.moe
        grouped = choice_NE.unflatten(-1, (moe.num_groups, -1))
        scores_NS = _sum_of_columns(grouped.topk(min(2, grouped.shape[-1]), dim=-1).values.flatten(0, 1))
        scores_NS = scores_NS.view(-1, moe.num_groups)
        best = scores_NS.sort(dim=-1, descending=True, stable=True).indices[:, : moe.num_chosen_groups]
        is_open_NS = torch.zeros_like(scores_NS, dtype=torch.bool).scatter(-1, best, True)
        return grouped.masked_fill(~is_open_NS.unsqueeze(-1), float("-inf")).flatten(1)


def _sum_of_columns(x: Tensor) -> Tensor:
    """[N, J] -> [N, 1], from left to right for every row alike."""
    total = x[:, :1]
    for column in range(1, x.shape[1]):
        total = total + x[:, column : column + 1]
    return total


class Expert(nn.Module):
    """One feed-forward: `gate_up` and `down`."""

    def __init__(self, gate_up: nn.Module, down: nn.Module, feed: FeedKind) -> None:
        super().__init__()
        self.gate_up = gate_up
        self.down = down
        self.feed = feed

    def forward(self, x_ND: Tensor) -> Tensor:
        """Maps [N, D] to [N, D]."""
        return feed_forward(x_ND, self.gate_up, self.down, self.feed)


class MoE(nn.Module):
    """The routed experts of a layer, weighted and added up, plus the shared expert where there is one."""

    def __init__(self, router: nn.Module, experts: Sequence[nn.Module], shared: nn.Module | None) -> None:
        super().__init__()
        self.router = router
        self.experts = nn.ModuleList(experts)
        self.shared = shared

    def forward(self, x_ND: Tensor) -> Tensor:
        """Maps [N, D] to [N, D]."""
        mixed_ND = self.mix(x_ND, *self.router(x_ND))
        return mixed_ND if self.shared is None else mixed_ND + self.shared(x_ND)

    def mix(self, x_ND: Tensor, chosen_NJ: Tensor, weights_NJ: Tensor) -> Tensor:
        """Runs each row [N, D] through its experts and adds them up by their weights, best score first."""
        num_chosen = chosen_NJ.shape[1]
        flat = chosen_NJ.flatten()
        by_expert = flat.argsort(stable=True)
        counts = flat.bincount(minlength=len(self.experts)).tolist()
        outputs = [x_ND[:0]]
        for expert, visits in zip(self.experts, by_expert.split(counts), strict=True):
            if visits.numel():
                outputs.append(expert(x_ND[visits // num_chosen]))
        visited_NJD = torch.cat(outputs)[by_expert.argsort()].unflatten(0, chosen_NJ.shape)
        mixed_ND = visited_NJD[:, 0] * weights_NJ[:, :1]
        for rank in range(1, num_chosen):
            mixed_ND = mixed_ND + visited_NJD[:, rank] * weights_NJ[:, rank : rank + 1]
        return mixed_ND
