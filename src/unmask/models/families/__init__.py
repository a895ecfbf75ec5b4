"""Checkpoint families: one small file each, one row in the table below."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from unmask.core.errors import CheckpointError
from unmask.models.config import ModelConfig, Traits
from unmask.models.families import (
    a2d,
    diffugpt,
    diffullama,
    diffusion_gemma,
    dream,
    fast_dllm_v2,
    gpt2,
    llada,
    llada2,
    llada_moe,
    llama,
    mdlm,
    sdar,
)
from unmask.models.linear import LinearFactory
from unmask.models.source import SafetensorsSource, TensorSource
from unmask.models.transformer import Transformer


def _always(_raw: Mapping[str, Any]) -> bool:
    return True


def _nothing(_config: ModelConfig) -> frozenset[str]:
    return frozenset()


@dataclass(frozen=True, kw_only=True)
class FamilySpec:
    """What the loader needs of a family.

    Attributes:
        architectures: values of `architectures[0]` in config.json that it answers to.
        build_config: config.json -> shape.
        build_traits: config.json, shape -> facts for decoding.
        key_map: shape -> our parameter name -> official tensor names stacked to make it; strict both ways.
        recognises: whether a config.json with one of the architectures is of this family; where several families say
            yes, the last in the table wins.
        redundant: shape -> official tensors that files may hold and that say nothing new (buffers, a tied head).
        transposed: last parts of our names whose official weights are (in, out) instead of (out, in).
        view: files in another layout of the same family -> a source in the official one; None where there is one
            layout only.
        build: builds the model of a family whose blocks are not the shared ones (it hands its own to `Transformer`) and
            answers for missing, left-over and misshapen tensors; None for the shared blocks, built by the key map.
        export: such a model -> its official tensors, bit for bit; None where the key map read backwards does it.
    """

    architectures: tuple[str, ...]
    build_config: Callable[[Mapping[str, Any]], ModelConfig]
    build_traits: Callable[[Mapping[str, Any], ModelConfig], Traits]
    key_map: Callable[[ModelConfig], dict[str, tuple[str, ...]]]
    recognises: Callable[[Mapping[str, Any]], bool] = _always
    redundant: Callable[[ModelConfig], frozenset[str]] = _nothing
    transposed: frozenset[str] = frozenset()
    view: Callable[[SafetensorsSource, ModelConfig], TensorSource] | None = None
    build: Callable[[TensorSource, ModelConfig, LinearFactory], Transformer] | None = None
    export: Callable[[Transformer], dict[str, Tensor]] | None = None


FAMILIES: Mapping[str, FamilySpec] = {
    "llama": FamilySpec(
        architectures=llama.ARCHITECTURES,
        build_config=llama.build_config,
        build_traits=llama.build_traits,
        key_map=llama.key_map,
        redundant=llama.redundant,
    ),
    "llada": FamilySpec(
        architectures=llada.ARCHITECTURES,
        build_config=llada.build_config,
        build_traits=llada.build_traits,
        key_map=llada.key_map,
        redundant=llada.redundant,
    ),
    "dream": FamilySpec(
        architectures=dream.ARCHITECTURES,
        build_config=dream.build_config,
        build_traits=dream.build_traits,
        key_map=llama.key_map,
    ),
    "sdar": FamilySpec(
        architectures=sdar.ARCHITECTURES,
        build_config=sdar.build_config,
        build_traits=sdar.build_traits,
        key_map=llama.key_map,
    ),
    "a2d": FamilySpec(
        architectures=a2d.ARCHITECTURES,
        build_config=llama.build_config,
        build_traits=a2d.build_traits,
        key_map=llama.key_map,
    ),
    "llada2": FamilySpec(
        architectures=llada2.ARCHITECTURES,
        build_config=llada2.build_config,
        build_traits=llada2.build_traits,
        key_map=llada2.key_map,
        view=llada2.view,
    ),
    "fast_dllm_v2": FamilySpec(
        architectures=fast_dllm_v2.ARCHITECTURES,
        build_config=fast_dllm_v2.build_config,
        build_traits=fast_dllm_v2.build_traits,
        key_map=llama.key_map,
    ),
    "llada_moe": FamilySpec(
        architectures=llada_moe.ARCHITECTURES,
        build_config=llada_moe.build_config,
        build_traits=llada_moe.build_traits,
        key_map=llama.key_map,
    ),
    "diffullama": FamilySpec(
        architectures=diffullama.ARCHITECTURES,
        build_config=llama.build_config,
        build_traits=diffullama.build_traits,
        key_map=llama.key_map,
        redundant=llama.redundant,
        recognises=diffullama.recognises,
    ),
    "gpt2": FamilySpec(
        architectures=gpt2.ARCHITECTURES,
        build_config=gpt2.build_config,
        build_traits=gpt2.build_traits,
        key_map=gpt2.key_map,
        redundant=gpt2.redundant,
        transposed=gpt2.TRANSPOSED,
        view=gpt2.view,
    ),
    "diffugpt": FamilySpec(
        architectures=diffugpt.ARCHITECTURES,
        build_config=diffugpt.build_config,
        build_traits=diffugpt.build_traits,
        key_map=diffugpt.key_map,
        redundant=diffugpt.redundant,
        transposed=gpt2.TRANSPOSED,
        view=diffugpt.view,
    ),
    "mdlm": FamilySpec(
        architectures=mdlm.ARCHITECTURES,
        build_config=mdlm.build_config,
        build_traits=mdlm.build_traits,
        key_map=mdlm.key_map,
        build=mdlm.build,
        export=mdlm.export,
    ),
    "bd3lm": FamilySpec(
        architectures=mdlm.BLOCK_ARCHITECTURES,
        build_config=mdlm.build_config,
        build_traits=mdlm.build_traits,
        key_map=mdlm.block_key_map,
        build=mdlm.build_block,
        export=mdlm.export,
    ),
    "diffusion_gemma": FamilySpec(
        architectures=diffusion_gemma.ARCHITECTURES,
        build_config=diffusion_gemma.build_config,
        build_traits=diffusion_gemma.build_traits,
        key_map=diffusion_gemma.key_map,
        view=diffusion_gemma.view,
        build=diffusion_gemma.build_model,
        export=diffusion_gemma.export_model,
    ),
}


def family_of(raw: Mapping[str, Any]) -> str:
    """Returns the family whose architectures hold the checkpoint's.

    Raises:
        CheckpointError: the architecture is absent or unknown; the message lists the known ones.
    """
    names = raw.get("architectures")
    if not isinstance(names, list) or not names:
        raise CheckpointError("config.json has no 'architectures'; cannot tell the model family")
    matching = [key for key, spec in FAMILIES.items() if names[0] in spec.architectures and spec.recognises(raw)]
    if matching:
        return matching[-1]
    known = ", ".join(dict.fromkeys(name for spec in FAMILIES.values() for name in spec.architectures))
    raise CheckpointError(f"architecture {names[0]!r} is not supported (known: {known})")
