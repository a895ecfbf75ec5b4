"""Recorded logits against a forward of ours."""

from collections.abc import Mapping

import torch
from torch import Tensor

from unmask.decoding.official import NotReproducedError
from unmask.models.dit import subs_log_probs
from unmask.models.loading import Loaded
from unmask.models.transformer import masked_attention
from unmask.verify.folders import Case
from unmask.verify.renoise import window_logits

# Shape legend: N rows fed, R rows read, V vocabulary.

TOLERANCE = 2e-4
"""Largest absolute difference of float32 logits that passes."""
_IMPOSSIBLE = -1e5
"""Recorded log-probabilities below it stand for impossible tokens: the reference has about -1e6 where we have -inf."""


def block_causal(length: int, block_size: int) -> Tensor:
    """Bool [N, N]: a row sees its own block and all before it, counted from position 0."""
    block = torch.arange(length) // block_size
    return block[None] <= block[:, None]


def two_streams(length: int, block_size: int) -> Tensor:
    """Bool [2 N, 2 N] of training's [x_t ; x_0].

    Noisy rows see their own noisy block and the clean blocks before it, clean rows the clean blocks up to their own.

    Source: BD3-LM, arXiv 2503.09573 section 3.2.
    """
    block = torch.arange(length) // block_size
    same, before = block[:, None] == block[None], block[:, None] > block[None]
    nothing = torch.zeros_like(same)
    return torch.cat((torch.cat((same, before), 1), torch.cat((nothing, before | same), 1)))


def raw_logits(loaded: Loaded, case: Case, row: int) -> Tensor:
    """Our logits [R, V] at the positions of a case, which says what its rows attend to.

    Raises:
        NotReproducedError: the case tells the model a noise level other than 0, which no decoding rule does.
    """
    if any(case.get("sigma") or ()):
        raise NotReproducedError(f"sigma {case['sigma']}: our models are told the noise level 0")
    if "decoder_input_ids" in case:
        return window_logits(loaded, case, row)
    ids_N, positions_N, visible_NN = _given(case, row)
    with torch.inference_mode():
        hidden_ND = loaded.model(ids_N, positions_N, masked_attention(visible_NN))
        return loaded.model.head(hidden_ND[case["positions"]])


def _given(case: Case, row: int) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, positions and who sees whom. Padding leaves the position ids as they are, as the references do."""
    ids_N = torch.tensor(case["input_ids"][row])
    length = ids_N.shape[0]
    if case.get("mode", "").startswith("training"):
        half = length // 2
        return ids_N, torch.arange(half).repeat(2), two_streams(half, case["block_size"])
    size = case.get("block_length", case.get("block_size"))
    if size is not None:
        return ids_N, torch.arange(length), block_causal(length, size)
    real = case.get("attention_mask")
    keys = torch.ones(length, dtype=torch.bool) if real is None else torch.tensor(real[row], dtype=torch.bool)
    return ids_N, torch.arange(length), keys.expand(length, length)


def logits_difference(loaded: Loaded, case: Case, tensors: Mapping[str, Tensor]) -> float:
    """Largest absolute difference over all rows of a case, of its log-probabilities too where it holds some.

    Returns:
        infinity if the shapes differ or one side calls possible what the other calls impossible.
    """
    wanted = tensors[case["tensor"]]
    differences = [0.0]
    for row in range(len(case["input_ids"])):
        got_RV = raw_logits(loaded, case, row)
        differences.append(_difference(got_RV, wanted[row]))
        if "logprobs" in case:
            differences.append(
                _log_prob_difference(loaded, case, row, got_RV, tensors[case["logprobs"]["tensor"]][row])
            )
    return max(differences)


def _difference(got: Tensor, wanted: Tensor) -> float:
    if got.shape != wanted.shape:
        return float("inf")
    return float((got - wanted).abs().max()) if got.numel() else 0.0


def _log_prob_difference(loaded: Loaded, case: Case, row: int, got_RV: Tensor, wanted_RV: Tensor) -> float:
    mask_token_id = loaded.traits.mask_token_id
    assert mask_token_id is not None, "models with such log-probabilities have a mask"
    positions, ids = case["positions"], case["input_ids"][row]
    rows = case["logprobs"]["positions"]
    if rows == "last block":
        rows = list(range(len(ids) - case["block_size"], len(ids)))
    at = [positions.index(position) for position in rows]
    ours_RV = subs_log_probs(got_RV[at], torch.tensor(ids)[rows], mask_token_id)
    possible = wanted_RV > _IMPOSSIBLE
    if ours_RV.shape != wanted_RV.shape or not torch.equal(possible, ours_RV > -torch.inf):
        return float("inf")
    return _difference(ours_RV[possible], wanted_RV[possible])
