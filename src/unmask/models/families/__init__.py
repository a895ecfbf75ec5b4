"""Checkpoint families: one small file each, one row in the table below."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from unmask.core.errors import CheckpointError
from unmask.models.config import ModelConfig, Traits
from unmask.models.families import llama


@dataclass(frozen=True, kw_only=True)
class FamilySpec:
    """What the loader needs of a family.

    Attributes:
        architectures: values of `architectures[0]` in config.json that it answers to.
        build_config: config.json -> shape.
        build_traits: config.json, shape -> facts for decoding.
        key_map: shape -> our parameter name -> official tensor names stacked to make it; strict both ways.
    """

    architectures: tuple[str, ...]
    build_config: Callable[[Mapping[str, Any]], ModelConfig]
    build_traits: Callable[[Mapping[str, Any], ModelConfig], Traits]
    key_map: Callable[[ModelConfig], dict[str, tuple[str, ...]]]


FAMILIES: Mapping[str, FamilySpec] = {
    "llama": FamilySpec(
        architectures=llama.ARCHITECTURES,
        build_config=llama.build_config,
        build_traits=llama.build_traits,
        key_map=llama.key_map,
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
    for family, spec in FAMILIES.items():
        if names[0] in spec.architectures:
            return family
    known = ", ".join(name for spec in FAMILIES.values() for name in spec.architectures)
    raise CheckpointError(f"architecture {names[0]!r} is not supported (known: {known})")
