"""From files to a `Transformer`: read, merge an adapter, fuse, quantise; one tensor at a time, nothing left over.

Peak memory is the finished model plus one fused tensor, because sources are memory-mapped and each part is built,
quantised and released before the next.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from unmask.core.errors import CheckpointError
from unmask.models.config import (
    AttentionPattern,
    FeedKind,
    ModelConfig,
    MoEConfig,
    NoiseKind,
    NormKind,
    PositionKind,
    Traits,
)
from unmask.models.families import FAMILIES, family_of
from unmask.models.linear import LinearFactory
from unmask.models.moe import Expert, MoE, Router
from unmask.models.parts import Parts, check_names
from unmask.models.source import LoraSource, SafetensorsSource, TensorSource, read_json
from unmask.models.transformer import Block, LayerNorm, RMSNorm, Transformer


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A model ready to run, with what decoding must know about it."""

    model: Transformer
    config: ModelConfig
    traits: Traits


def load(folder: Path, *, linear: LinearFactory, adapter: Path | None = None) -> Loaded:
    """Loads a checkpoint folder in the official Hugging Face layout.

    Args:
        folder: holds `config.json` and `*.safetensors`.
        linear: how projections are kept (`TiledLinear`, `Int8Linear`, `PlainLinear`).
        adapter: optional LoRA folder in PEFT layout, merged while loading. Its `adapter_config.json` may carry
            an "unmask" object with traits, which override the base's.

    Raises:
        CheckpointError: unknown architecture, missing or left-over tensors, wrong shapes.
    """
    if not folder.is_dir():
        raise CheckpointError(f"no checkpoint folder at {folder}")
    raw = read_json(folder / "config.json")
    if adapter is not None:
        raw = {**raw, "unmask": read_json(adapter / "adapter_config.json").get("unmask", raw.get("unmask", {}))}
    family = FAMILIES[family_of(raw)]
    try:
        config = family.build_config(raw)
        traits = check_traits(family.build_traits(raw, config), config)
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise CheckpointError(f"{folder / 'config.json'} holds a value that makes no sense: {error}") from error
    files = SafetensorsSource(folder)
    source: TensorSource = files if family.view is None else family.view(files, config)
    if adapter is not None:
        embedding = family.key_map(config).get("embedding", ("",))[0]
        source = LoraSource(source, adapter, traits.mask_token_id, embedding)
    if family.build is not None:
        model = family.build(source, config, linear)
    else:
        redundant, transposed = family.redundant(config), family.transposed
        model = build(source, config, family.key_map(config), linear, redundant=redundant, transposed=transposed)
    return Loaded(model=model, config=config, traits=traits)


def check_traits(traits: Traits, config: ModelConfig) -> Traits:
    """Refuses facts that cannot be true, so that they fail at load and not in the middle of an answer."""
    mask = traits.mask_token_id
    if traits.attention is not AttentionPattern.CAUSAL and traits.noise is NoiseKind.MASK and mask is None:
        raise CheckpointError(
            f"attention {traits.attention.value!r} needs a mask_token_id; add it to the object 'unmask' in config.json"
        )
    if not 1 <= traits.block_size <= 256:
        raise CheckpointError(f"block_size must be between 1 and 256, got {traits.block_size}")
    if mask is not None and not 0 <= mask < config.vocab_size:
        raise CheckpointError(f"mask_token_id {mask} is outside the vocabulary of {config.vocab_size}")
    if mask is not None and mask in traits.eos_ids:
        raise CheckpointError(f"mask_token_id {mask} is also an end-of-sequence id")
    if traits.logit_shift not in (0, 1):
        raise CheckpointError(f"logit_shift must be 0 or 1, got {traits.logit_shift}")
    return replace(traits, max_positions=config.max_positions)


def build(
    source: TensorSource,
    config: ModelConfig,
    key_map: Mapping[str, Sequence[str]],
    linear: LinearFactory,
    *,
    redundant: Collection[str] = (),
    transposed: Collection[str] = (),
) -> Transformer:
    """Builds the transformer of shared blocks from official tensors through the family's key map.

    Args:
        source: tensors under their official names.
        config: the shape.
        key_map: our parameter name -> official tensors stacked to make it.
        linear: how projections are kept.
        redundant: official tensors that may be there and are not read.
        transposed: last parts of our names whose official weights are (in, out).

    Raises:
        CheckpointError: tensors missing or left over, or of a wrong shape.
    """
    check_names(source, key_map, set(redundant) | ({"lm_head.weight"} if config.tied else set[str]()))
    parts = _Parts(source, config, key_map, linear, transposed)
    blocks = [Block(config, parts.block(index)) for index in range(config.num_layers)]
    hidden = config.hidden_size
    embedding = parts.fetch("embedding", config.vocab_size, hidden)
    learned = config.positions is PositionKind.LEARNED
    model = Transformer(
        config,
        embedding,
        blocks,
        parts.norm("norm", hidden),
        linear(embedding if config.tied else parts.fetch("head", config.vocab_size, hidden), None),
        parts.fetch("positions", config.max_positions, hidden) if learned else None,
    )
    return model.eval()


class _Parts(Parts):
    """Makes the modules of the shared stack."""

    def __init__(
        self,
        source: TensorSource,
        config: ModelConfig,
        key_map: Mapping[str, Sequence[str]],
        linear: LinearFactory,
        transposed: Collection[str],
    ) -> None:
        super().__init__(source, key_map, linear, transposed)
        self._config = config

    def norm(self, name: str, width: int) -> nn.Module:
        """A norm of the configured kind."""
        eps = self._config.rms_norm_eps
        if self._config.norm is NormKind.LAYER:
            return LayerNorm(self.fetch(name, width), self.fetch(f"{name}.bias", width), eps)
        return RMSNorm(self.fetch(name, width), eps)

    def block(self, index: int) -> dict[str, nn.Module]:
        """The parts of one `Block`."""
        config, at = self._config, f"layers.{index}."
        hidden = config.hidden_size
        parts: dict[str, nn.Module] = {
            "input_norm": self.norm(at + "input_norm", hidden),
            "qkv": self.projection(at + "qkv", config.q_size + 2 * config.kv_size, hidden),
            "out": self.projection(at + "out", hidden, config.q_size),
            "post_norm": self.norm(at + "post_norm", hidden),
        }
        if config.qk_norm:
            parts |= {part: self.norm(at + part, config.head_dim) for part in ("q_norm", "k_norm")}
        if config.moe is None or index in config.moe.dense_layers:
            return parts | self._feed(at, config.intermediate_size)
        return parts | {"moe": self._experts(at + "moe.", config.moe)}

    def _feed(self, at: str, width: int) -> dict[str, nn.Module]:
        gates = 1 if self._config.feed is FeedKind.GELU_TANH else 2
        return {
            "gate_up": self.projection(at + "gate_up", gates * width, self._config.hidden_size),
            "down": self.projection(at + "down", self._config.hidden_size, width),
        }

    def _experts(self, at: str, moe: MoEConfig) -> MoE:
        feed = self._config.feed
        bias = self.fetch(at + "router.choice_bias", moe.num_experts) if moe.has_choice_bias else None
        router = Router(moe, self.fetch(at + "router.gate", moe.num_experts, self._config.hidden_size), bias)
        experts = [
            Expert(**self._feed(f"{at}experts.{index}.", moe.expert_size), feed=feed)
            for index in range(moe.num_experts)
        ]
        shared = Expert(**self._feed(f"{at}shared.", moe.shared_size), feed=feed) if moe.shared_size else None
        return MoE(router, experts, shared)
