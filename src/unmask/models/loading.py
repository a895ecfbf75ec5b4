"""From files to a `Transformer`: read, merge an adapter, fuse, quantise; one tensor at a time, nothing left over.

Peak memory is the finished model plus one fused tensor, because sources are memory-mapped and each part is built,
quantised and released before the next.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from unmask.core.errors import CheckpointError
from unmask.models.config import AttentionPattern, ModelConfig, Traits
from unmask.models.families import FAMILIES, family_of
from unmask.models.linear import LinearFactory
from unmask.models.transformer import RMSNorm, Transformer


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A model ready to run, with what decoding must know about it."""

    model: Transformer
    config: ModelConfig
    traits: Traits


class TensorSource(Protocol):
    """Named tensors of a checkpoint, read on demand."""

    def names(self) -> set[str]:
        """All tensor names in official spelling."""
        ...

    def read(self, name: str) -> Tensor:
        """Returns one tensor as float32."""
        ...


class SafetensorsSource:
    """`*.safetensors` files of one folder (or one file), memory-mapped.

    Raises:
        CheckpointError: no such file, a damaged file, or a pickle checkpoint.
    """

    def __init__(self, path: Path) -> None:
        files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
        if not files:
            pickles = [*path.glob("*.bin"), *path.glob("*.pt"), *path.glob("*.pth")]
            hint = "; pickle files are refused, convert them to safetensors" if pickles else ""
            raise CheckpointError(f"no .safetensors file in {path}{hint}")
        self._handles: dict[str, Any] = {}
        for file in files:
            try:
                handle = safe_open(file, framework="pt")
            except (SafetensorError, OSError) as error:
                raise CheckpointError(f"cannot read {file}: {error}") from error
            for name in handle.keys():  # noqa: SIM118 - safe_open has no __iter__
                if name in self._handles:
                    raise CheckpointError(f"tensor {name!r} is in more than one file of {path}; remove the stale files")
                self._handles[name] = handle

    def names(self) -> set[str]:
        """All tensor names."""
        return set(self._handles)

    def read(self, name: str) -> Tensor:
        """Returns one tensor as float32."""
        return self._handles[name].get_tensor(name).float()


class LoraSource:
    """A base source with a LoRA adapter merged on the fly: W + (alpha / r) * B @ A.

    Adapter files use the PEFT layout (`adapter_config.json`, `adapter_model.safetensors`). Beside PEFT's tensors
    ours may hold `unmask.mask_embedding` [D], the trained input embedding of the mask token.
    Source: LoRA, arXiv 2106.09685 section 4.1.

    Raises:
        CheckpointError: damaged adapter, or one that does not fit the base.
    """

    _PREFIX = "base_model.model."
    _MASK_ROW = "unmask.mask_embedding"

    def __init__(self, base: TensorSource, folder: Path, mask_token_id: int | None) -> None:
        self._base = base
        self._mask_token_id = mask_token_id
        self._scale = _lora_scale(folder)
        self._adapter = SafetensorsSource(folder / "adapter_model.safetensors")
        factors = {name for name in self._adapter.names() if name.endswith((".lora_A.weight", ".lora_B.weight"))}
        stems = {name.rsplit(".lora_", 1)[0] for name in factors}
        halves = sorted(f"{stem}.lora_{part}.weight" for stem in stems for part in "AB")
        halves = [name for name in halves if name not in factors]
        if halves:
            raise CheckpointError(f"the adapter in {folder} has no {halves[0]!r}")
        odd = sorted(self._adapter.names() - factors - {self._MASK_ROW})
        if odd or (mask_token_id is None and self._MASK_ROW in self._adapter.names()):
            raise CheckpointError(
                f"the adapter in {folder} holds {(odd or [self._MASK_ROW])[0]!r}, which has no use here"
            )
        lost = sorted(stem for stem in stems if f"{stem.removeprefix(self._PREFIX)}.weight" not in base.names())
        if lost:
            raise CheckpointError(f"the adapter in {folder} targets {lost[0]!r}, which the base model does not have")

    def names(self) -> set[str]:
        """All tensor names of the base."""
        return self._base.names()

    def read(self, name: str) -> Tensor:
        """Returns one merged tensor as float32."""
        weight = self._base.read(name)
        stem = self._PREFIX + name.removesuffix(".weight")
        if f"{stem}.lora_A.weight" in self._adapter.names():
            down, up = (self._adapter.read(f"{stem}.lora_{part}.weight") for part in "AB")
            if up.shape[0] != weight.shape[0] or down.shape[1] != weight.shape[1] or up.shape[1] != down.shape[0]:
                raise CheckpointError(f"the adapter's shapes do not fit {name!r} {tuple(weight.shape)}")
            weight = torch.addmm(weight, up, down, alpha=self._scale)
        if name == "model.embed_tokens.weight" and self._MASK_ROW in self._adapter.names():
            assert self._mask_token_id is not None, "checked at the start"
            weight[self._mask_token_id] = self._adapter.read(self._MASK_ROW)
        return weight


def _lora_scale(folder: Path) -> float:
    """Reads alpha / r; refuses variants of LoRA that change what the factors mean."""
    config = read_json(folder / "adapter_config.json")
    for name in ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "fan_in_fan_out", "lora_bias"):
        if config.get(name):
            raise CheckpointError(f"{folder / 'adapter_config.json'}: {name} is not supported; only plain LoRA is")
    try:
        return float(config["lora_alpha"]) / float(config["r"])
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise CheckpointError(f"{folder / 'adapter_config.json'} needs numbers r > 0 and lora_alpha") from error


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        CheckpointError: no such file, or not a JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist; a checkpoint folder needs it") from None
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return value


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
    source: TensorSource = SafetensorsSource(folder)
    if adapter is not None:
        source = LoraSource(source, adapter, traits.mask_token_id)
    model = build(source, config, family.key_map(config), linear)
    return Loaded(model=model, config=config, traits=traits)


def check_traits(traits: Traits, config: ModelConfig) -> Traits:
    """Refuses facts that cannot be true, so that they fail at load and not in the middle of an answer."""
    mask = traits.mask_token_id
    if traits.attention is not AttentionPattern.CAUSAL and mask is None:
        raise CheckpointError(f"attention {traits.attention.value!r} needs a mask_token_id")
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
    source: TensorSource, config: ModelConfig, key_map: Mapping[str, Sequence[str]], linear: LinearFactory
) -> Transformer:
    """Builds the transformer from official tensors through the family's key map.

    Raises:
        CheckpointError: tensors missing or left over, or of a wrong shape.
    """
    wanted = {name for names in key_map.values() for name in names}
    ignorable = {"lm_head.weight"} if config.tied else set[str]()
    missing, extra = sorted(wanted - source.names()), sorted(source.names() - wanted - ignorable)
    if missing:
        raise CheckpointError(f"{len(missing)} tensors are missing from the checkpoint, first {missing[0]!r}")
    if extra:
        raise CheckpointError(f"{len(extra)} tensors of the checkpoint are not of this family, first {extra[0]!r}")

    def fetch(name: str, *shape: int) -> Tensor:
        parts = [source.read(part) for part in key_map[name]]
        tensor = parts[0] if len(parts) == 1 else torch.cat(parts)
        if tuple(tensor.shape) != shape:
            raise CheckpointError(f"{key_map[name][0]!r} makes a {tuple(tensor.shape)} tensor, expected {shape}")
        return tensor.contiguous()

    def projection(name: str, rows: int, columns: int) -> nn.Module:
        bias = fetch(f"{name}.bias", rows) if f"{name}.bias" in key_map else None
        return linear(fetch(name, rows, columns), bias)

    def norm(name: str, width: int) -> RMSNorm:
        return RMSNorm(fetch(name, width), config.rms_norm_eps)

    hidden, feed = config.hidden_size, config.intermediate_size
    layers: list[dict[str, nn.Module]] = []
    for index in range(config.num_layers):
        at = f"layers.{index}."
        parts: dict[str, nn.Module] = {
            "input_norm": norm(at + "input_norm", hidden),
            "qkv": projection(at + "qkv", config.q_size + 2 * config.kv_size, hidden),
            "out": projection(at + "out", hidden, config.q_size),
            "post_norm": norm(at + "post_norm", hidden),
            "gate_up": projection(at + "gate_up", 2 * feed, hidden),
            "down": projection(at + "down", hidden, feed),
        }
        if config.qk_norm:
            parts |= {part: norm(at + part, config.head_dim) for part in ("q_norm", "k_norm")}
        layers.append(parts)
    embedding = fetch("embedding", config.vocab_size, hidden)
    head_weight = embedding if config.tied else fetch("head", config.vocab_size, hidden)
    model = Transformer(config, embedding, layers, norm("norm", hidden), linear(head_weight, None))
    return model.eval()
