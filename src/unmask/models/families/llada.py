"""LLaDA-8B (Base, Instruct, 1.5): OLMo's field and tensor names around a Llama-shaped stack.

Source: arXiv 2502.09992; config.json and modelling file of GSAI-ML/LLaDA-8B-Instruct.
"""

from collections.abc import Mapping
from typing import Any

from unmask.models.config import AttentionPattern, ModelConfig, Traits
from unmask.models.facts import check_shape, mask_id, naming_lost_fields, read_traits, refuse

ARCHITECTURES = ("LLaDAModelLM",)

_MASK = 126336  # `<|mdm_mask|>`
_ENDS = {126081: 126348}  # `<|endoftext|>` pads an answer, `<|eot_id|>` closes a turn
# The sampler's own default is one block of 128; in blocks of 32 the instruct model repeats itself less
# (issue 100 of ML-GSAI/LLaDA), and it is the block of Fast-dLLM (arXiv 2505.22618).
_BLOCK = 32


def build_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the official `config.json`; it uses none of the field names of Llama.

    Raises:
        CheckpointError: a needed field is absent, or the checkpoint uses a switch that no published one does.
    """
    with naming_lost_fields(raw):
        hidden, heads = int(raw["d_model"]), int(raw["n_heads"])
        kv_heads = raw.get("n_kv_heads") or (1 if raw.get("multi_query_attention") else heads)
        config = ModelConfig(
            vocab_size=int(raw.get("embedding_size") or raw["vocab_size"]),
            hidden_size=hidden,
            num_layers=int(raw["n_layers"]),
            num_heads=heads,
            num_kv_heads=int(kv_heads),
            head_dim=hidden // heads,
            intermediate_size=int(raw.get("mlp_hidden_size") or raw["mlp_ratio"] * hidden),
            rope_theta=float(raw["rope_theta"]),
            rms_norm_eps=float(raw["rms_norm_eps"]),
            tied=bool(raw["weight_tying"]),
            qkv_bias=bool(raw.get("include_qkv_bias", False)),
            qk_norm=False,
            max_positions=int(raw["max_sequence_length"]),
        )
    check_shape(config)
    refuse(raw, "layer_norm_type", "rms", instead="with 'rms'")
    refuse(raw, "block_type", "llama", instead="with 'llama'")
    refuse(raw, "activation_type", "silu", instead="with 'silu'")
    refuse(raw, "block_group_size", 1, instead="with 1")
    for field in ("include_bias", "attention_layer_norm", "scale_logits", "input_emb_norm", "alibi", "clip_qkv"):
        refuse(raw, field, instead="without it")
    return config


def build_traits(raw: Mapping[str, Any], config: ModelConfig) -> Traits:
    """Fully bidirectional; blocks only order the commits."""
    return read_traits(
        raw,
        config,
        attention=AttentionPattern.BIDIRECTIONAL,
        block_size=_BLOCK,
        mask_token_id=mask_id(raw, config, _MASK),
        more_eos=_ENDS,
    )


def redundant(config: ModelConfig) -> frozenset[str]:
    """A tied head may be stored a second time."""
    return frozenset({"model.transformer.ff_out.weight"} if config.tied else ())


def key_map(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """Our parameter name -> the official tensors. `ff_out` is the head at the top, the down projection in a block."""
    top = "model.transformer."
    names: dict[str, tuple[str, ...]] = {"embedding": (top + "wte.weight",), "norm": (top + "ln_f.weight",)}
    if not config.tied:
        names["head"] = (top + "ff_out.weight",)
    for index in range(config.num_layers):
        ours, official = f"layers.{index}.", f"{top}blocks.{index}."
        names[ours + "input_norm"] = (official + "attn_norm.weight",)
        names[ours + "post_norm"] = (official + "ff_norm.weight",)
        names[ours + "qkv"] = tuple(f"{official}{part}_proj.weight" for part in "qkv")
        names[ours + "out"] = (official + "attn_out.weight",)
        names[ours + "gate_up"] = (official + "ff_proj.weight", official + "up_proj.weight")
        names[ours + "down"] = (official + "ff_out.weight",)
        if config.qkv_bias:
            names[ours + "qkv.bias"] = tuple(f"{official}{part}_proj.bias" for part in "qkv")
    return names
