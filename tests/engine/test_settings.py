from dataclasses import replace
from typing import Any

import pytest

from tests.engine.running import ask
from tests.models.random_weights import MASK, random_loaded
from unmask.core.errors import ConfigError, RequestError
from unmask.core.request import Mode
from unmask.decoding.rules import Unmask, Verify
from unmask.engine.rule_table import make_rule
from unmask.engine.settings import EngineSettings, admit, cache_shape, resolve
from unmask.models.config import AttentionPattern, NoiseKind

PATTERNS = AttentionPattern
TRAITS = {
    pattern: random_loaded(attention=pattern, block_size=8).traits
    for pattern in (PATTERNS.CAUSAL_CONTEXT, PATTERNS.BLOCK_CAUSAL, PATTERNS.CAUSAL)
}


@pytest.mark.parametrize("name", ["max_running", "max_waiting", "max_cached_tokens", "max_prefill_rows", "threads"])
@pytest.mark.parametrize("value", [0, -1])
def test_limits_are_positive(name: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be at least 1, got {value}"):
        EngineSettings(**{name: value})


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.1, float("nan")])
def test_threshold_is_a_probability(threshold: float) -> None:
    with pytest.raises(ConfigError, match="threshold"):
        EngineSettings(threshold=threshold)


@pytest.mark.parametrize("block_size", [0, 257])
def test_block_size_is_bounded(block_size: int) -> None:
    with pytest.raises(ConfigError, match="block_size must be between 1 and 256"):
        EngineSettings(block_size=block_size)


@pytest.mark.parametrize(
    ("pattern", "default", "possible"),
    [
        (PATTERNS.CAUSAL_CONTEXT, Mode.VERIFIED, {Mode.VERIFIED, Mode.DIFFUSION, Mode.AR}),
        (PATTERNS.BLOCK_CAUSAL, Mode.DIFFUSION, {Mode.DIFFUSION}),
        (PATTERNS.CAUSAL, Mode.AR, {Mode.AR}),
    ],
)
def test_modes_of_each_attention_pattern(pattern: AttentionPattern, default: Mode, possible: set[Mode]) -> None:
    traits = TRAITS[pattern]
    settings = resolve(EngineSettings(), traits)
    assert settings.mode is default
    assert settings.block_size == 8
    for mode in Mode:
        if mode in possible:
            assert resolve(EngineSettings(mode=mode), traits).mode is mode
            assert admit(ask("r", mode=mode), settings, traits).mode is mode
            continue
        with pytest.raises(ConfigError, match=f"mode '{mode.value}' needs another model; this one runs: {default}"):
            resolve(EngineSettings(mode=mode), traits)
        with pytest.raises(RequestError, match=mode.value) as caught:
            admit(ask("r", mode=mode), settings, traits)
        assert caught.value.param == "diffusion.mode"


def test_uniform_noise_has_one_mode_and_its_own_temperature() -> None:
    traits = replace(TRAITS[PATTERNS.CAUSAL_CONTEXT], noise=NoiseKind.UNIFORM)
    settings = resolve(EngineSettings(), traits)
    assert (settings.mode, settings.threshold) == (Mode.DIFFUSION, None)
    with pytest.raises(ConfigError, match="mode 'verified' needs another model; this one runs: diffusion"):
        resolve(EngineSettings(mode=Mode.VERIFIED), traits)
    with pytest.raises(ConfigError, match="threshold has no meaning"):
        resolve(EngineSettings(threshold=0.5), traits)
    for name, value in {"temperature": 0.7, "top_p": 0.9, "top_k": 5, "threshold": 0.5}.items():
        with pytest.raises(RequestError, match=f"{name} has no meaning for a model of uniform noise") as caught:
            admit(ask("r", **{name: value}), settings, traits)
        assert caught.value.param == ("diffusion.threshold" if name == "threshold" else name)
    with pytest.raises(RequestError, match=r"unknown rule for this model 'unmask' \(known: renoise\)"):
        admit(ask("r", rule="unmask"), settings, traits)
    masked = TRAITS[PATTERNS.CAUSAL_CONTEXT]
    settings = resolve(EngineSettings(mode=Mode.DIFFUSION), masked)
    with pytest.raises(RequestError, match="unknown rule for this model 'renoise'"):
        admit(ask("r", rule="renoise"), settings, masked)


def test_the_threshold_follows_the_model() -> None:
    traits = TRAITS[PATTERNS.BLOCK_CAUSAL]
    assert resolve(EngineSettings(), traits).threshold == 0.9
    assert resolve(EngineSettings(), replace(traits, editable=True)).threshold == 0.7
    assert resolve(EngineSettings(threshold=0.8), replace(traits, editable=True)).threshold == 0.8


def test_block_causal_models_run_their_own_block_size() -> None:
    traits = TRAITS[PATTERNS.BLOCK_CAUSAL]
    with pytest.raises(ConfigError, match="its own block size, 8"):
        resolve(EngineSettings(block_size=4), traits)
    with pytest.raises(RequestError) as caught:
        admit(ask("r", block_size=4), resolve(EngineSettings(block_size=8), traits), traits)
    assert caught.value.param == "diffusion.block_size"
    assert resolve(EngineSettings(block_size=4), TRAITS[PATTERNS.CAUSAL_CONTEXT]).block_size == 4


REFUSED: list[tuple[list[int], dict[str, Any], str, str, str | None]] = [
    ([], {}, "messages", "prompt is empty", None),
    ([5, 48], {}, "messages", "outside the vocabulary of 48", None),
    ([-1], {}, "messages", "outside the vocabulary of 48", None),
    ([5] * 512, {}, "messages", "has 512 tokens, but the context holds 512", "context_length_exceeded"),
    ([5] * 500, {"max_tokens": 13}, "max_tokens", r"prompt \(500\) and max_tokens \(13\)", "context_length_exceeded"),
    ([5], {"max_tokens": 10**9}, "max_tokens", "exceed the context", "context_length_exceeded"),
    ([5], {"mode": Mode.AR, "threshold": 0.5}, "diffusion.threshold", "only acts in mode 'diffusion'", None),
    ([5], {"mode": Mode.VERIFIED, "num_steps": 2}, "diffusion.num_steps", "only acts in mode 'diffusion'", None),
    ([5], {"mode": Mode.DIFFUSION, "num_steps": 9}, "diffusion.num_steps", "exceeds the block size 8", None),
]


@pytest.mark.parametrize(("prompt", "params", "param", "message", "code"), REFUSED)
def test_what_can_never_be_honoured(
    prompt: list[int], params: dict[str, Any], param: str, message: str, code: str | None
) -> None:
    traits = TRAITS[PATTERNS.CAUSAL_CONTEXT]
    with pytest.raises(RequestError, match=message) as caught:
        admit(ask("r", prompt, **params), resolve(EngineSettings(), traits), traits)
    assert (caught.value.param, caught.value.code) == (param, code)


def test_what_just_fits() -> None:
    traits = TRAITS[PATTERNS.CAUSAL_CONTEXT]
    settings = resolve(EngineSettings(max_cached_tokens=512 + 16), traits)
    assert admit(ask("r", [0, 47] * 250, max_tokens=12), settings, traits).max_tokens == 12
    assert admit(ask("r", [5] * 511, max_tokens=1), settings, traits).max_tokens == 1
    with pytest.raises(RequestError, match="need 528 cached tokens, but the engine keeps 527"):
        admit(ask("r", [5] * 511, max_tokens=1), replace(settings, max_cached_tokens=527), traits)


def test_defaults_are_filled_and_wishes_kept() -> None:
    traits = TRAITS[PATTERNS.CAUSAL_CONTEXT]
    settings = resolve(EngineSettings(mode=Mode.DIFFUSION, threshold=0.7, block_size=5), traits)
    filled = admit(ask("r", temperature=0.5, seed=9), settings, traits)
    assert (filled.mode, filled.threshold, filled.block_size) == (Mode.DIFFUSION, 0.7, 5)
    assert (filled.temperature, filled.seed) == (0.5, 9)
    wished = admit(ask("r", threshold=0.2, block_size=16), settings, traits)
    assert (wished.threshold, wished.block_size) == (0.2, 16)
    with pytest.raises(RequestError, match="not both"):
        admit(ask("r", threshold=0.2, num_steps=3), settings, traits)
    with pytest.raises(RequestError, match="no meaning in mode 'ar'"):
        admit(ask("r", mode=Mode.AR, block_size=4), settings, traits)


def test_rules_of_the_modes() -> None:
    traits = TRAITS[PATTERNS.CAUSAL_CONTEXT]
    settings = resolve(EngineSettings(), traits)

    def rule(**params: Any) -> Unmask | Verify:
        made = make_rule(admit(ask("r", temperature=0.5, top_p=0.8, top_k=4, **params), settings, traits), traits)
        assert isinstance(made, Unmask | Verify)
        assert made.sampling.banned_ids == (MASK,)
        assert (made.sampling.temperature, made.sampling.top_p, made.sampling.top_k) == (0.5, 0.8, 4)
        assert (made.window.mask_token_id, made.window.eos_ids) == (MASK, traits.eos_ids)
        assert made.window.align == 1
        return made

    assert rule(mode=Mode.AR) == rule(mode=Mode.AR)
    assert rule(mode=Mode.AR).window.size == 0
    assert rule(mode=Mode.VERIFIED).window.size == 8
    by_threshold = rule(mode=Mode.DIFFUSION, threshold=0.4)
    assert isinstance(by_threshold, Unmask)
    assert (by_threshold.threshold, by_threshold.quota) == (0.4, 0)
    for num_steps, quota in ((1, 8), (2, 4), (3, 3), (7, 2), (8, 1)):
        by_quota = rule(mode=Mode.DIFFUSION, num_steps=num_steps)
        assert isinstance(by_quota, Unmask)
        assert by_quota.quota == quota


def test_a_model_without_mask_runs_ar() -> None:
    traits = TRAITS[PATTERNS.CAUSAL]
    made = make_rule(admit(ask("r"), resolve(EngineSettings(), traits), traits), traits)
    assert isinstance(made, Verify)
    assert (made.window.size, made.sampling.banned_ids) == (0, ())


@pytest.mark.parametrize(("pattern", "align"), [(PATTERNS.CAUSAL_CONTEXT, 1), (PATTERNS.BLOCK_CAUSAL, 8)])
def test_blocks_are_aligned_where_clean_tokens_see_them(pattern: AttentionPattern, align: int) -> None:
    loaded = random_loaded(attention=pattern, block_size=8, logit_shift=1)
    shape = cache_shape(loaded.config, loaded.traits)
    assert (shape.align, shape.logit_shift, shape.num_layers, shape.num_kv_heads, shape.head_dim) == (align, 1, 2, 2, 8)
    rule = make_rule(admit(ask("r"), resolve(EngineSettings(), loaded.traits), loaded.traits), loaded.traits)
    assert isinstance(rule, Unmask | Verify)
    assert rule.window.align == align
