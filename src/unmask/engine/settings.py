"""How an engine is set up, and the one place where "auto" becomes a value."""

from dataclasses import dataclass, replace

from unmask.cache.block_causal import CacheShape, LayerShape
from unmask.core.constraint import AnswerConstraint
from unmask.core.errors import ConfigError, RequestError
from unmask.core.request import Mode, Request, SamplingParams
from unmask.engine.rule_table import check_rule
from unmask.models.config import AttentionPattern, ModelConfig, NoiseKind, Traits


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Limits and defaults of one engine.

    Attributes:
        max_running: sequences denoised together.
        max_waiting: sequences queued; one more is refused with CapacityError.
        max_cached_tokens: positions that running sequences may reserve, all together (buffers grow by doubling, so up
            to twice as many may be allocated).
        max_prefix_tokens: cached positions of ended sequences that are kept for prompts that begin alike; 0 keeps none.
        max_prefill_rows: most prompt rows in one forward, shared by all prompts being prefilled.
        mode: default of requests that name none; None lets the model decide.
        threshold: default confidence of diffusion mode; None is 0.7 for models that edit what they wrote, nothing for
            models of uniform noise, else 0.9.
        block_size: default window; None takes the model's.
        num_drafts: tokens that a draft model drafts for each forward of an AR request; without one it has no effect.
        threads: CPU threads of a forward; None lets torch decide.
    """

    max_running: int = 16
    max_waiting: int = 256
    max_cached_tokens: int = 65536
    max_prefix_tokens: int = 4096
    max_prefill_rows: int = 256
    mode: Mode | None = None
    threshold: float | None = None
    block_size: int | None = None
    num_drafts: int = 4
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_running", "max_waiting", "max_cached_tokens", "max_prefill_rows"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.max_prefix_tokens < 0:
            raise ConfigError(f"max_prefix_tokens must be at least 0, got {self.max_prefix_tokens}")
        if self.threshold is not None and not 0 < self.threshold <= 1:
            raise ConfigError(f"threshold must be in (0, 1], got {self.threshold}")
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"threads must be at least 1, got {self.threads}")
        if not 1 <= self.num_drafts <= 64:
            raise ConfigError(f"num_drafts must be between 1 and 64, got {self.num_drafts}")
        if self.block_size is not None and not 1 <= self.block_size <= 256:
            raise ConfigError(f"block_size must be between 1 and 256, got {self.block_size}")


MODES: dict[AttentionPattern, tuple[Mode, ...]] = {
    AttentionPattern.CAUSAL: (Mode.AR,),
    AttentionPattern.CAUSAL_CONTEXT: (Mode.VERIFIED, Mode.DIFFUSION, Mode.AR),
    AttentionPattern.BLOCK_CAUSAL: (Mode.DIFFUSION,),
    AttentionPattern.BIDIRECTIONAL: (Mode.DIFFUSION,),
}
"""Modes each attention pattern can honour; the first is the default."""


def modes_of(traits: Traits) -> tuple[Mode, ...]:
    """Modes a model can honour; the first is the default. Noise other than masks has nothing to verify or draft."""
    return (Mode.DIFFUSION,) if traits.noise is NoiseKind.UNIFORM else MODES[traits.attention]


def resolve(settings: EngineSettings, traits: Traits) -> EngineSettings:
    """Fills what is None from the model and refuses impossible pairs.

    Raises:
        ConfigError: the model cannot run the asked-for mode or block size, or has no use for the threshold.
    """
    is_uniform = traits.noise is NoiseKind.UNIFORM
    if is_uniform and settings.threshold is not None:
        raise ConfigError("threshold has no meaning for a model of uniform noise; leave it out")
    mode = settings.mode or modes_of(traits)[0]
    block_size = settings.block_size or traits.block_size
    _check_mode(mode, traits)
    _check_block_size(block_size, traits)
    threshold = None if is_uniform else settings.threshold or (0.7 if traits.editable else 0.9)
    return replace(settings, mode=mode, block_size=block_size, threshold=threshold)


def _check_mode(mode: Mode, traits: Traits) -> None:
    if mode not in modes_of(traits):
        known = ", ".join(m.value for m in modes_of(traits))
        raise ConfigError(f"mode {mode.value!r} needs another model; this one runs: {known}")


def _check_block_size(block_size: int, traits: Traits) -> None:
    if traits.attention is AttentionPattern.BLOCK_CAUSAL and block_size != traits.block_size:
        raise ConfigError(f"this block-causal model only runs its own block size, {traits.block_size}")


def admit(request: Request, settings: EngineSettings, traits: Traits) -> SamplingParams:
    """Checks a request against model and engine and fills its defaults; `settings` must be resolved.

    Raises:
        RequestError: it can never be honoured; names the parameter.
    """
    params = request.params
    mode = params.mode or settings.mode
    block_size = params.block_size or settings.block_size
    assert mode is not None, "settings are not resolved"
    assert block_size is not None, "settings are not resolved"
    try:
        _check_mode(mode, traits)
    except ConfigError as error:
        raise RequestError(str(error), param="diffusion.mode") from None
    try:
        _check_block_size(block_size, traits)
    except ConfigError as error:
        raise RequestError(str(error), param="diffusion.block_size") from None
    if mode is Mode.AR and params.block_size is not None:
        raise RequestError("block_size has no meaning in mode 'ar'; leave it out", param="diffusion.block_size")
    if params.threshold is not None and params.num_steps is not None:
        raise RequestError("give threshold or num_steps, not both", param="diffusion.threshold")
    if mode is not Mode.DIFFUSION and (params.threshold is not None or params.num_steps is not None):
        name = "threshold" if params.threshold is not None else "num_steps"
        raise RequestError(f"{name} only acts in mode 'diffusion', not {mode.value!r}", param=f"diffusion.{name}")
    if params.lookup is not None and mode is not Mode.AR:
        raise RequestError(
            f"lookup only acts in mode 'ar', not {mode.value!r}; ask for that mode or leave it out",
            param="diffusion.lookup",
        )
    if params.rule is not None and mode is not Mode.DIFFUSION:
        raise RequestError(f"rule only acts in mode 'diffusion', not {mode.value!r}", param="diffusion.rule")
    check_rule(params, traits)
    if request.constraint is not None:
        _check_constrained(params, request.constraint, traits)
    if params.num_steps is not None and params.num_steps > block_size:
        raise RequestError(
            f"num_steps {params.num_steps} exceeds the block size {block_size}", param="diffusion.num_steps"
        )
    if not request.prompt_ids:
        raise RequestError("the prompt is empty", param="messages")
    if any(not 0 <= i < traits.vocab_size for i in request.prompt_ids):
        raise RequestError(f"the prompt holds an id outside the vocabulary of {traits.vocab_size}", param="messages")
    total = len(request.prompt_ids) + params.max_tokens
    if len(request.prompt_ids) >= traits.max_positions:
        raise RequestError(
            f"the prompt has {len(request.prompt_ids)} tokens, but the context holds {traits.max_positions}",
            param="messages",
            code="context_length_exceeded",
        )
    if total > traits.max_positions:
        raise RequestError(
            f"prompt ({len(request.prompt_ids)}) and max_tokens ({params.max_tokens}) exceed the context of "
            f"{traits.max_positions} tokens",
            param="max_tokens",
            code="context_length_exceeded",
        )
    if total + 2 * block_size > settings.max_cached_tokens:
        raise RequestError(
            f"prompt and max_tokens need {total + 2 * block_size} cached tokens, but the engine keeps "
            f"{settings.max_cached_tokens}",
            param="max_tokens",
        )
    return replace(params, mode=mode, block_size=block_size, threshold=params.threshold or settings.threshold)


def _check_constrained(params: SamplingParams, constraint: AnswerConstraint, traits: Traits) -> None:
    """Refuses what a constraint would have to ignore, and an answer too short to hold a text of it."""
    if traits.noise is not NoiseKind.MASK:
        raise RequestError(
            "a model of uniform noise takes no constraint; leave the schema out", param="response_format"
        )
    if params.lookup is not None:
        raise RequestError("lookup has no meaning under a constraint; leave it out", param="diffusion.lookup")
    constraint.check_max_tokens(params.max_tokens)


def cache_shape(config: ModelConfig, traits: Traits) -> CacheShape:
    """Sizes of the cache this model needs."""
    return CacheShape(
        num_layers=config.num_layers,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        align=traits.block_size if traits.attention is AttentionPattern.BLOCK_CAUSAL else 1,
        logit_shift=traits.logit_shift,
        fixed_canvas=traits.attention is AttentionPattern.BIDIRECTIONAL,
        layers=tuple(
            LayerShape(num_kv_heads=one.num_kv_heads, head_dim=one.head_dim, scale=1.0, reach=one.reach)
            for one in config.layers
        ),
    )
