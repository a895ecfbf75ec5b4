"""LLaDA2.0 and 2.1 (mini, flash): mixture of experts with a grouped sigmoid router, denoised block by block.

Source: arXiv 2512.15745 (2.0) and 2602.08676 (2.1); modelling files of inclusionAI/LLaDA2.0 and 2.1.
"""

from collections.abc import Mapping
from typing import Any

from unmask.core.errors import CheckpointError
from unmask.models.config import AttentionPattern, ModelConfig, MoEConfig, RouterScore, Traits
from unmask.models.facts import llama_shape, mask_id, naming_lost_fields, read_traits, refuse
from unmask.models.families.llama import expert_names, feed_forward_names
from unmask.models.source import Place, RelaidSource, SafetensorsSource

ARCHITECTURES = ("LLaDA2MoeModelLM",)

_MASK = 156895  # not in config.json; the default of the published `generate`
_BLOCK = 32  # likewise
_INSERT_DELETE_FIELDS = ("expert_capacity", "delete_token_id", "split_token_id")


def build_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Reads the official `config.json`.

    Raises:
        CheckpointError: a needed field is absent, the checkpoint uses a switch that no published one does, or it is
            LLaDA2.2, which routes by block and inserts and deletes tokens.
    """
    for field in _INSERT_DELETE_FIELDS:
        if raw.get(field) is not None:
            raise CheckpointError(f"this is LLaDA2.2 ({field} in config.json), which is not supported; use LLaDA2.1")
    for field in ("norm_head", "norm_softmax", "using_split_qkv_in_self_attention"):
        refuse(raw, field, instead="without it")
    refuse(raw, "score_function", "sigmoid", instead="with 'sigmoid'")
    with naming_lost_fields(raw):
        expert_size = int(raw["moe_intermediate_size"])
        moe = MoEConfig(
            num_experts=int(raw["num_experts"]),
            num_chosen=int(raw["num_experts_per_tok"]),
            expert_size=expert_size,
            shared_size=expert_size * int(raw.get("num_shared_experts") or 0),
            dense_layers=frozenset(range(min(int(raw["first_k_dense_replace"]), int(raw["num_hidden_layers"])))),
            score=RouterScore.SIGMOID,
            has_choice_bias=bool(raw.get("moe_router_enable_expert_bias", True)),
            num_groups=int(raw["n_group"]),
            num_chosen_groups=int(raw["topk_group"]),
            normalise=bool(raw.get("norm_topk_prob", True)),
            scale=float(raw["routed_scaling_factor"]),
        )
    return llama_shape(
        raw,
        qkv_bias=bool(raw.get("use_qkv_bias", False)),
        qk_norm=bool(raw.get("use_qk_norm", True)),
        out_bias=bool(raw.get("use_bias", False)),
        rotary_share=float(raw.get("partial_rotary_factor", 0.5)),
        moe=moe,
    )


def build_traits(raw: Mapping[str, Any], config: ModelConfig) -> Traits:
    """Block-causal, blocks counted from position 0, so a prompt's tail shares one with the first new tokens.

    Config files do not tell 2.1, which may edit what it has written, from 2.0: say editable under "unmask".
    """
    return read_traits(
        raw,
        config,
        attention=AttentionPattern.BLOCK_CAUSAL,
        block_size=int(raw.get("block_size") or _BLOCK),
        mask_token_id=mask_id(raw, config, _MASK),
    )


def key_map(config: ModelConfig) -> dict[str, tuple[str, ...]]:
    """Our parameter name -> the official tensors. q, k and v lie fused in the files as well."""
    names: dict[str, tuple[str, ...]] = {
        "embedding": ("model.word_embeddings.weight",),
        "norm": ("model.norm.weight",),
    }
    if not config.tied:
        names["head"] = ("lm_head.weight",)
    for index in range(config.num_layers):
        ours, official = f"layers.{index}.", f"model.layers.{index}."
        attention = official + "attention."
        names[ours + "input_norm"] = (official + "input_layernorm.weight",)
        names[ours + "post_norm"] = (official + "post_attention_layernorm.weight",)
        names[ours + "qkv"] = (attention + "query_key_value.weight",)
        names[ours + "out"] = (attention + "dense.weight",)
        if config.qkv_bias:
            names[ours + "qkv.bias"] = (attention + "query_key_value.bias",)
        if config.out_bias:
            names[ours + "out.bias"] = (attention + "dense.bias",)
        if config.qk_norm:
            names[ours + "q_norm"] = (attention + "query_layernorm.weight",)
            names[ours + "k_norm"] = (attention + "key_layernorm.weight",)
        if config.moe is None or index in config.moe.dense_layers:
            names |= feed_forward_names(ours, official + "mlp.")
        else:
            names |= expert_names(ours + "moe.", official + "mlp.", config.moe)
    return names


def view(files: SafetensorsSource, config: ModelConfig) -> RelaidSource:
    """Official names over the layouts in circulation.

    These are: one tensor per expert (the published files), one 3-D tensor per projection (the training format of
    dFactory), gate and up fused in such a tensor, and any of them below `model.language_model.` with
    `model.lm_head.`.
    """
    places: dict[str, Place] = {}
    for stored in files.names():
        official = stored
        for before, after in (("model.language_model.", "model."), ("model.lm_head.", "lm_head.")):
            if stored.startswith(before):
                official = after + stored.removeprefix(before)
        stem, _, part = official.removesuffix(".weight").rpartition(".mlp.experts.")
        if part not in ("gate_proj", "up_proj", "down_proj", "gate_up_proj") or config.moe is None:
            places[official] = Place(name=stored)
            continue
        shape = files.shape(stored)
        if len(shape) != 3 or shape[0] != config.moe.num_experts or (part == "gate_up_proj" and shape[1] % 2):
            raise CheckpointError(f"{stored!r} {shape} does not hold {config.moe.num_experts} experts")
        halves = {"gate_proj": 0, "up_proj": 1} if part == "gate_up_proj" else {part: None}
        for expert in range(config.moe.num_experts):
            for projection, half in halves.items():
                name = f"{stem}.mlp.experts.{expert}.{projection}.weight"
                places[name] = Place(name=stored, entry=expert, half=half)
    return RelaidSource(files, places)
