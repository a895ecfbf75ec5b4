"""From a call of an official sampler of a fully bidirectional model to the rule that reproduces it.

Parameters have their official names and defaults. What is not reproduced is refused by name, never ignored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from unmask.core.errors import ConfigError, unknown_name
from unmask.decoding.dream import Dream, DreamBlocks, DreamThreshold
from unmask.decoding.fixed_canvas import FixedCanvas
from unmask.decoding.low_confidence import LowConfidence
from unmask.decoding.parallel import Parallel
from unmask.decoding.random_keep import RandomKeep
from unmask.decoding.rules import DecodingRule
from unmask.decoding.sampling import Sampling

CacheKind = Literal["none", "prefix", "dual"]


class NotReproducedError(ConfigError):
    """A quirk or a setting of an official function that is known and left out on purpose; the message says which."""


@dataclass(kw_only=True)
class _Call:
    """Arguments of one call; every one must be taken or the call is refused."""

    parameters: Mapping[str, Any]
    mask_token_id: int
    eos_token_id: int | None
    eot_token_id: int | None
    infill_length: int | None
    taken: set[str] = field(default_factory=set[str])

    def take(self, name: str, default: Any) -> Any:
        """The argument, or the default if it is absent."""
        self.taken.add(name)
        return self.parameters.get(name, default)

    def only(self, name: str, *values: object) -> None:
        """Refuses values of an argument that are not reproduced."""
        if self.take(name, values[0]) not in values:
            raise NotReproducedError(f"{name}={self.parameters[name]!r} is not reproduced; only {values[0]!r} is")

    def layout(self) -> FixedCanvas:
        return FixedCanvas(mask_token_id=self.take("mask_id", self.mask_token_id))

    def ends(self, *, with_eot: bool) -> tuple[int, ...]:
        """EOS, and the end of a turn where there is one."""
        if self.eos_token_id is None:
            raise ConfigError("this call treats EOS apart, so the checkpoint's eos_token_id is needed")
        return (self.eos_token_id, *((self.eot_token_id,) if with_eot and self.eot_token_id is not None else ()))

    def steps_per_block(self, steps: int, length: int, block_length: int) -> int:
        """Steps of one block, where length and steps must be whole multiples."""
        if length % block_length or steps % (length // block_length):
            raise ConfigError(f"{length} tokens in blocks of {block_length} and {steps} steps do not divide evenly")
        return steps // (length // block_length)


def official_rule(
    family: str,
    function: str,
    parameters: Mapping[str, Any],
    *,
    mask_token_id: int,
    eos_token_id: int | None = None,
    eot_token_id: int | None = None,
    infill_length: int | None = None,
) -> DecodingRule:
    """The rule that reproduces an official call; it never stops at EOS, as none of these functions does.

    Guided calls give a rule whose `guidance` is above 0 and whose belief must be guided (`guided`).

    Args:
        family: "llada", "llada_moe", "dream", "a2d", "diffugpt", "diffullama", "fast_dllm_v1_llada" or
            "fast_dllm_v1_dream".
        function: its name, for example "generate", "diffusion_generate[block]" or "MDLMSampler.infill".
        parameters: its arguments by their official names; absent ones have the official defaults.
        mask_token_id: of the checkpoint, unless the call names another.
        eos_token_id: of the checkpoint; needed by calls that treat EOS apart.
        eot_token_id: end of a turn, where the checkpoint has such an id.
        infill_length: length of the text whose holes are filled; needed by `MDLMSampler.infill` in blocks.

    Raises:
        ConfigError: unknown family or function, or an argument that is not reproduced.
    """
    key = f"{family}.{function}"
    if key not in _FUNCTIONS:
        raise unknown_name("fixed-canvas function", key, _FUNCTIONS)
    call = _Call(
        parameters=parameters,
        mask_token_id=mask_token_id,
        eos_token_id=eos_token_id,
        eot_token_id=eot_token_id,
        infill_length=infill_length,
    )
    rule = _FUNCTIONS[key](call)
    unknown = sorted(set(parameters) - call.taken)
    if unknown:
        raise ConfigError(f"{key} is not reproduced with {unknown[0]}; leave it out (known: {sorted(call.taken)})")
    return rule


def official_length(parameters: Mapping[str, Any]) -> int:
    """Tokens that the call decides, by whatever name it gives them.

    Raises:
        ConfigError: it does not say (an infilling call decides the holes of its input).
    """
    for name in ("gen_length", "max_new_tokens"):
        if name in parameters:
            return int(parameters[name])
    raise ConfigError("the call names no length; give gen_length or max_new_tokens")


def official_logit_shift(parameters: Mapping[str, Any], logit_shift: int) -> int:
    """The checkpoint's logit shift, unless the call overrides it (dllm's `right_shift_logits`)."""
    return int(parameters.get("right_shift_logits", logit_shift))


def official_cache(function: str, parameters: Mapping[str, Any]) -> CacheKind:
    """Which approximate cache the call uses."""
    if function == "generate_with_prefix_cache":
        return "prefix"
    if function == "generate_with_dual_cache":
        return "dual"
    if function == "diffusion_generate[block]":
        return "dual" if parameters.get("dual_cache", False) else "prefix"
    return "none"


def _llada(call: _Call) -> DecodingRule:
    length, block_length = call.take("gen_length", 128), call.take("block_length", 128)
    steps = call.steps_per_block(call.take("steps", 128), length, block_length)
    return LowConfidence(
        layout=call.layout(),
        sampling=Sampling(
            temperature=call.take("temperature", 0.0),
            banned_ids=call.ends(with_eot=False) if call.take("logits_eos_inf", False) else (),
        ),
        block_length=block_length,
        steps_per_block=steps,
        order=call.take("remasking", "low_confidence"),
        late_ids=call.ends(with_eot=True) if call.take("confidence_eos_eot_inf", False) else (),
        guidance=call.take("cfg_scale", 0.0),
        parity=True,
    )


def _mdlm(call: _Call, num_blocks: int, block_length: int) -> DecodingRule:
    call.only("stochastic_transfer", False)
    call.only("cfg_keep_tokens", None, [])
    call.take("right_shift_logits", False)
    return LowConfidence(
        layout=call.layout(),
        sampling=Sampling(
            temperature=call.take("temperature", 0.0), banned_ids=tuple(call.take("suppress_tokens", None) or ())
        ),
        block_length=block_length,
        steps_per_block=-(-call.take("steps", 128) // num_blocks),
        order=call.take("remasking", "low_confidence"),
        schedule="linear",
        late_ids=tuple(call.take("begin_suppress_tokens", None) or ()),
        guidance=call.take("cfg_scale", 0.0),
        parity=True,
    )


def _mdlm_sample(call: _Call) -> DecodingRule:
    length, block_length = call.take("max_new_tokens", 128), call.take("block_size", 128)
    return _mdlm(call, -(-length // block_length), block_length)


def _mdlm_infill(call: _Call) -> DecodingRule:
    if call.infill_length is None:
        raise ConfigError("the steps of a block depend on the length of the text; give infill_length")
    block_length = call.take("block_size", None) or call.infill_length
    return _mdlm(call, -(-call.infill_length // block_length), block_length)


def _dream_sampling(call: _Call) -> Sampling:
    return Sampling(
        temperature=call.take("temperature", 0.0),
        top_p=call.take("top_p", None) or 1.0,
        top_k=call.take("top_k", None) or 0,
    )


def _dream(call: _Call) -> DecodingRule:
    call.take("max_new_tokens", None)
    return Dream(
        layout=call.layout(),
        sampling=_dream_sampling(call),
        algorithm=call.take("alg", "origin"),
        steps=call.take("steps", 512),
        eps=call.take("eps", 1e-3),
        order_temperature=call.take("alg_temp", None) or 0.0,
        parity=True,
    )


def _dream_global(call: _Call) -> DecodingRule:
    if call.parameters.get("alg") != "confidence_threshold":
        return _dream(call)
    call.take("alg", None)
    call.take("max_new_tokens", None)
    return DreamThreshold(
        layout=call.layout(),
        sampling=_dream_sampling(call),
        steps=call.take("steps", 512),
        threshold=call.take("threshold", 0.9),
        parity=True,
    )


def _dream_block(call: _Call) -> DecodingRule:
    call.only("alg_temp", None, 0, 0.0)
    call.take("dual_cache", False)
    length, block_length = official_length(call.parameters), call.take("block_length", 32)
    call.take("max_new_tokens", None)
    by_threshold = call.take("alg", "origin") == "confidence_threshold"
    steps = call.steps_per_block(call.take("steps", 512), length, block_length)
    threshold = call.take("threshold", 0.9)
    return DreamBlocks(
        layout=call.layout(),
        sampling=_dream_sampling(call),
        block_length=block_length,
        threshold=threshold if by_threshold else None,
        steps_per_block=steps,
        eps=call.take("eps", 1e-3),
        parity=True,
    )


def _fast_llada(call: _Call) -> DecodingRule:
    call.only("remasking", "low_confidence")
    length, block_length = call.take("gen_length", 128), call.take("block_length", 128)
    steps = call.steps_per_block(call.take("steps", 128), length, block_length)
    threshold, factor = call.take("threshold", None), call.take("factor", None)
    return Parallel(
        layout=call.layout(),
        sampling=Sampling(temperature=call.take("temperature", 0.0)),
        block_length=block_length,
        threshold=None if factor is not None else threshold,
        factor=factor,
        steps_per_block=steps if factor is None and threshold is None else 0,
        parity=True,
    )


def _diffu(call: _Call) -> DecodingRule:
    call.only("shift", True)
    return RandomKeep(
        layout=call.layout(),
        sampling=Sampling(temperature=call.take("logits_temp", 1.0), top_p=call.take("topp_temp", 1.0)),
        steps=call.take("diffusion_steps", 64),
        parity=True,
    )


_FUNCTIONS: Mapping[str, Callable[[_Call], DecodingRule]] = {
    "llada.generate": _llada,
    "llada_moe.generate": _llada,
    "dream.diffusion_generate": _dream,
    "a2d.MDLMSampler.sample": _mdlm_sample,
    "a2d.MDLMSampler.infill": _mdlm_infill,
    "diffugpt.generate_samples": _diffu,
    "diffullama.generate_samples": _diffu,
    "fast_dllm_v1_llada.generate": _fast_llada,
    "fast_dllm_v1_llada.generate_with_prefix_cache": _fast_llada,
    "fast_dllm_v1_llada.generate_with_dual_cache": _fast_llada,
    "fast_dllm_v1_dream.diffusion_generate[block]": _dream_block,
    "fast_dllm_v1_dream.diffusion_generate[global]": _dream_global,
}

FIXED_CANVAS_FUNCTIONS = frozenset(_FUNCTIONS)
"""`family.function` of every call that `official_rule` knows."""
