"""What all families read alike from config.json: the shared stack's shape, sanity checks, facts for decoding."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from unmask.core.errors import CheckpointError
from unmask.models.config import AttentionPattern, ModelConfig, MoEConfig, PositionKind, Traits

_INTEGER_FACTS = ("mask_token_id", "block_size", "logit_shift")


@contextmanager
def naming_lost_fields(raw: Mapping[str, Any]) -> Iterator[None]:
    """Turns the KeyError of an absent field into one line that names it.

    Raises:
        CheckpointError: config.json lacks a field.
    """
    try:
        yield
    except KeyError as error:
        architecture = raw["architectures"][0]
        raise CheckpointError(f"config.json has no field {error.args[0]!r}, which {architecture} needs") from error


def refuse(raw: Mapping[str, Any], field: str, *fine: Any, instead: str) -> None:
    """Refuses a config.json whose `field` is there, is not off (null, false, 0) and is none of `fine`."""
    value = raw.get(field)
    if value and value not in fine:
        raise CheckpointError(f"{field} {value!r} is not supported; use a checkpoint {instead}")


def llama_shape(
    raw: Mapping[str, Any],
    *,
    qkv_bias: bool,
    qk_norm: bool,
    out_bias: bool = False,
    rotary_share: float = 1.0,
    moe: MoEConfig | None = None,
) -> ModelConfig:
    """Reads the field names of Llama, which most families keep.

    Args:
        raw: config.json.
        qkv_bias: see `ModelConfig`.
        qk_norm: see `ModelConfig`.
        out_bias: see `ModelConfig`.
        rotary_share: how much of each head is rotated.
        moe: see `ModelConfig`.

    Raises:
        CheckpointError: a needed field is absent or makes no sense, or the stack lacks what the checkpoint needs.
    """
    with naming_lost_fields(raw):
        heads = int(raw["num_attention_heads"])
        hidden = int(raw["hidden_size"])
        head_dim = int(raw.get("head_dim") or hidden // heads)
        config = ModelConfig(
            vocab_size=int(raw["vocab_size"]),
            hidden_size=hidden,
            num_layers=int(raw["num_hidden_layers"]),
            num_heads=heads,
            num_kv_heads=int(raw.get("num_key_value_heads") or heads),
            head_dim=head_dim,
            intermediate_size=int(raw["intermediate_size"]),
            rope_theta=plain_rotary_base(raw),
            rms_norm_eps=float(raw["rms_norm_eps"]),
            tied=bool(raw.get("tie_word_embeddings", False)),
            qkv_bias=qkv_bias,
            qk_norm=qk_norm,
            max_positions=int(raw.get("max_position_embeddings", 2048)),
            rotary_dim=None if rotary_share == 1 else int(head_dim * rotary_share),
            out_bias=out_bias,
            moe=moe,
        )
    check_shape(config)
    if raw.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"hidden_act {raw['hidden_act']!r} is not supported; use a checkpoint with 'silu'")
    if raw.get("mlp_bias"):
        raise CheckpointError("mlp_bias is not supported; use a checkpoint without feed-forward biases")
    if raw.get("use_sliding_window"):
        raise CheckpointError("use_sliding_window is not supported; use a checkpoint with full attention")
    return config


def check_shape(config: ModelConfig) -> None:
    """Refuses shapes that cannot be.

    Raises:
        CheckpointError: the first of them, by its usual field names.
    """
    if not 1 <= config.max_positions <= 2**20 or not 1 <= config.num_layers <= 1024:
        raise CheckpointError("max_position_embeddings or num_hidden_layers makes no sense")
    if not (0 < config.rms_norm_eps < 1 and 0 < config.rope_theta < float("inf")):
        raise CheckpointError("rms_norm_eps or rope_theta makes no sense")
    sizes = (config.vocab_size, config.hidden_size, config.intermediate_size, config.head_dim, config.num_kv_heads)
    if min(sizes) < 1 or max(sizes) > 2**24:
        raise CheckpointError(
            "vocab_size, hidden_size, intermediate_size, head_dim or a number of heads makes no sense"
        )
    if config.num_heads % config.num_kv_heads or config.num_heads < 1:
        raise CheckpointError(f"{config.num_heads} query heads are not a multiple of {config.num_kv_heads} kv heads")
    rotary_dim = config.head_dim if config.rotary_dim is None else config.rotary_dim
    if config.positions is PositionKind.ROTARY and (rotary_dim % 2 or not 2 <= rotary_dim <= config.head_dim):
        raise CheckpointError(f"{rotary_dim} of {config.head_dim} dims of a head cannot be rotated in pairs")
    for layer in config.layers:
        if min(layer.num_kv_heads, layer.head_dim) < 1 or config.num_heads % layer.num_kv_heads or layer.head_dim % 2:
            raise CheckpointError(f"a layer of {layer.num_kv_heads} kv heads of width {layer.head_dim} makes no sense")
        if not (0 <= layer.rotary_dim <= layer.head_dim <= 2**24 and 0 < layer.rope_theta < float("inf")):
            raise CheckpointError("partial_rotary_factor, head_dim or rope_theta of a layer makes no sense")
        if layer.reach is not None and layer.reach < 1:
            raise CheckpointError(f"sliding_window {layer.reach} makes no sense")
    moe = config.moe
    if moe is None:
        return
    is_sane = 1 <= moe.num_experts * config.num_layers <= 2**16 and 0 < moe.scale < float("inf")
    if not (is_sane and 1 <= moe.expert_size <= 2**24 and 0 <= moe.shared_size <= 2**24):
        raise CheckpointError("num_experts, the width of an expert or routed_scaling_factor makes no sense")
    if moe.num_groups < 1 or moe.num_experts % moe.num_groups or not 1 <= moe.num_chosen_groups <= moe.num_groups:
        raise CheckpointError(
            f"{moe.num_chosen_groups} of {moe.num_groups} groups of {moe.num_experts} experts is no choice"
        )
    if not 1 <= moe.num_chosen <= moe.num_experts // moe.num_groups * moe.num_chosen_groups:
        raise CheckpointError(f"{moe.num_chosen} experts cannot be chosen from {moe.num_experts}")


def plain_rotary_base(raw: Mapping[str, Any]) -> float:
    """Returns the rotary base from either of the two official spellings; refuses scaled rotary embeddings."""
    parameters = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind != "default":
        raise CheckpointError(
            f"rotary scaling {kind!r} is not supported; use a checkpoint with plain rotary embeddings"
        )
    return float(raw.get("rope_theta", parameters.get("rope_theta", 10000.0)))


def read_traits(
    raw: Mapping[str, Any],
    config: ModelConfig,
    *,
    attention: AttentionPattern,
    block_size: int,
    logit_shift: int = 0,
    mask_token_id: int | None = None,
    more_eos: Mapping[int, int] | None = None,
) -> Traits:
    """Reads what decoding must know: the family's facts, the checkpoint's, and the object "unmask", which wins.

    Args:
        raw: config.json. "unmask" may override mask_token_id, attention, block_size, logit_shift and editable.
        config: its shape.
        attention: the family's pattern.
        block_size: the family's, where config.json does not say.
        logit_shift: the family's.
        mask_token_id: the checkpoint's, usually by `mask_id`; None for a family without mask.
        more_eos: an end-of-sequence id of the published checkpoints -> a second id that ends an answer there.

    Raises:
        CheckpointError: an override is unknown or of the wrong kind.
    """
    facts = _overrides(raw)
    eos = raw.get("eos_token_id")
    eos_ids = frozenset(eos if isinstance(eos, list) else [] if eos is None else [eos])
    eos_ids |= {second for first, second in (more_eos or {}).items() if first in eos_ids}
    return Traits(
        mask_token_id=facts.get("mask_token_id", mask_token_id),
        attention=AttentionPattern(facts.get("attention", attention)),
        block_size=int(facts.get("block_size", block_size)),
        logit_shift=int(facts.get("logit_shift", logit_shift)),
        eos_ids=eos_ids,
        max_positions=config.max_positions,
        vocab_size=config.vocab_size,
        editable=bool(facts.get("editable", False)),
    )


def mask_id(raw: Mapping[str, Any], config: ModelConfig, usual: int | None) -> int | None:
    """The mask token that config.json names, else that of the published checkpoints if the vocabulary holds it.

    Raises:
        CheckpointError: config.json names something that is no id.
    """
    named = raw.get("mask_token_id")
    if named is None:
        return usual if usual is not None and usual < config.vocab_size else None
    if not isinstance(named, int) or isinstance(named, bool):
        raise CheckpointError(f"mask_token_id in config.json must be an integer, got {named!r}")
    return named


def _overrides(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The object "unmask", checked."""
    facts: Mapping[str, Any] = raw.get("unmask", {})
    if not isinstance(facts, Mapping):
        raise CheckpointError("'unmask' in config.json makes no sense: it must be an object")
    unknown = sorted(set(facts) - {*_INTEGER_FACTS, "attention", "editable"})
    if unknown:
        raise CheckpointError(f"config.json has an unknown fact {unknown[0]!r} under 'unmask'")
    if facts.get("attention", "causal") not in {pattern.value for pattern in AttentionPattern}:
        known = ", ".join(pattern.value for pattern in AttentionPattern)
        raise CheckpointError(f"attention {facts['attention']!r} makes no sense (known: {known})")
    for name in _INTEGER_FACTS:
        if not isinstance(facts.get(name, 0), int) or isinstance(facts.get(name), bool):
            raise CheckpointError(f"{name} under 'unmask' in config.json must be an integer, got {facts[name]!r}")
    if not isinstance(facts.get("editable", False), bool):
        raise CheckpointError(
            f"editable under 'unmask' in config.json must be true or false, got {facts['editable']!r}"
        )
    return facts
