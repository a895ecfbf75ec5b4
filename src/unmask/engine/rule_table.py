"""Which decoding rule serves a request: the model's own by default, or one asked for by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from unmask.core.constraint import AnswerConstraint
from unmask.core.errors import RequestError, unknown_name
from unmask.core.request import Mode, SamplingParams
from unmask.decoding.adaptive import Credit, EntropyBounded, Hierarchical
from unmask.decoding.dream import Algorithm, Dream
from unmask.decoding.editing import EditThresholds, Llada21
from unmask.decoding.fixed_canvas import FixedCanvas
from unmask.decoding.lookup import Lookup
from unmask.decoding.low_confidence import LowConfidence, Order
from unmask.decoding.parallel import Parallel
from unmask.decoding.remask import Remask
from unmask.decoding.renoise import UniformRenoise
from unmask.decoding.rules import DecodingRule, Unmask, Verify, Window
from unmask.decoding.sampling import Sampling
from unmask.decoding.sdar import Sdar, SdarSchedule, Strategy
from unmask.engine.constrained import Constrained, ConstrainedVerify
from unmask.models.config import AttentionPattern, NoiseKind, Traits


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a rule is built from: the request's settings with defaults filled, and the model's facts."""

    params: SamplingParams
    traits: Traits

    @property
    def block_size(self) -> int:
        """Positions of a block."""
        assert self.params.block_size is not None, "params are not admitted"
        return self.params.block_size

    @property
    def threshold(self) -> float:
        """Confidence that decides a position."""
        assert self.params.threshold is not None, "params are not admitted"
        return self.params.threshold

    @property
    def num_steps(self) -> int:
        """Steps a block takes."""
        return self.params.num_steps or self.block_size

    @property
    def sampling(self) -> Sampling:
        """How tokens are drawn; the mask token never is."""
        mask = self.traits.mask_token_id
        return Sampling(
            temperature=self.params.temperature,
            top_p=self.params.top_p,
            top_k=self.params.top_k,
            banned_ids=() if mask is None else (mask,),
        )

    @property
    def window(self) -> Window:
        """The stretch denoised together; none in AR mode."""
        aligned = self.traits.attention is AttentionPattern.BLOCK_CAUSAL
        mask = self.traits.mask_token_id
        return Window(
            size=0 if self.params.mode is Mode.AR else self.block_size,
            mask_token_id=-1 if mask is None else mask,
            eos_ids=self.traits.eos_ids,
            align=self.traits.block_size if aligned else 1,
        )

    @property
    def layout(self) -> FixedCanvas:
        """The canvas of a fully bidirectional model."""
        assert self.traits.mask_token_id is not None, "such a model has a mask token"
        return FixedCanvas(mask_token_id=self.traits.mask_token_id, eos_ids=self.traits.eos_ids)


@dataclass(frozen=True, kw_only=True)
class RuleSpec:
    """One row of the table.

    Attributes:
        build: makes the rule.
        attentions: models it can run on.
        options: which of threshold and num_steps it obeys; the other is refused beside its name.
        noise: what undecided positions hold.
    """

    build: Callable[[Given], DecodingRule]
    attentions: frozenset[AttentionPattern]
    options: frozenset[str]
    noise: NoiseKind = NoiseKind.MASK


_FIXED = frozenset({AttentionPattern.BIDIRECTIONAL})
_BLOCKS = frozenset({AttentionPattern.BLOCK_CAUSAL})
_WINDOWS = _BLOCKS | {AttentionPattern.CAUSAL_CONTEXT}


def _unmask(given: Given) -> DecodingRule:
    quota = 0 if given.params.num_steps is None else -(-given.block_size // given.params.num_steps)
    return Unmask(window=given.window, sampling=given.sampling, threshold=given.threshold, quota=quota)


def _parallel(given: Given) -> DecodingRule:
    return Parallel(
        layout=given.layout, sampling=given.sampling, block_length=given.block_size, threshold=given.threshold
    )


def _in_order(order: Order) -> Callable[[Given], DecodingRule]:
    return lambda given: LowConfidence(
        layout=given.layout,
        sampling=given.sampling,
        block_length=given.block_size,
        steps_per_block=given.num_steps,
        order=order,
    )


def _dream(algorithm: Algorithm) -> Callable[[Given], DecodingRule]:
    def build(given: Given) -> DecodingRule:
        blocks = -(-given.params.max_tokens // given.block_size)
        steps = min(given.num_steps * blocks, given.params.max_tokens)
        return Dream(layout=given.layout, sampling=given.sampling, algorithm=algorithm, steps=steps)

    return build


def _remask(given: Given) -> DecodingRule:
    blocks = -(-given.params.max_tokens // given.block_size)
    return Remask(layout=given.layout, sampling=given.sampling, steps=given.num_steps * blocks)


def _renoise(given: Given) -> DecodingRule:
    traits, num_steps = given.traits, given.params.num_steps
    rule = UniformRenoise(size=given.block_size, vocab_size=traits.vocab_size, eos_ids=traits.eos_ids)
    return rule if num_steps is None else replace(rule, num_steps=num_steps)


def _editing(edit: float) -> Callable[[Given], DecodingRule]:
    return lambda given: Llada21(
        window=given.window,
        sampling=given.sampling,
        thresholds=EditThresholds(unmask=given.threshold, edit=edit),
    )


def _sdar(strategy: Strategy) -> Callable[[Given], DecodingRule]:
    return lambda given: Sdar(
        window=given.window,
        sampling=given.sampling,
        schedule=SdarSchedule(strategy=strategy, num_steps=given.num_steps, threshold=given.threshold),
    )


_THRESHOLD, _STEPS = frozenset({"threshold"}), frozenset({"num_steps"})

RULES: Mapping[str, RuleSpec] = {
    "unmask": RuleSpec(build=_unmask, attentions=_WINDOWS, options=_THRESHOLD | _STEPS),
    "parallel": RuleSpec(build=_parallel, attentions=_FIXED, options=_THRESHOLD),
    "low_confidence": RuleSpec(build=_in_order("low_confidence"), attentions=_FIXED, options=_STEPS),
    "random": RuleSpec(build=_in_order("random"), attentions=_FIXED, options=_STEPS),
    "entropy": RuleSpec(build=_dream("entropy"), attentions=_FIXED, options=_STEPS),
    "topk_margin": RuleSpec(build=_dream("topk_margin"), attentions=_FIXED, options=_STEPS),
    "maskgit_plus": RuleSpec(build=_dream("maskgit_plus"), attentions=_FIXED, options=_STEPS),
    "origin": RuleSpec(build=_dream("origin"), attentions=_FIXED, options=_STEPS),
    "entropy_bounded": RuleSpec(
        build=lambda given: EntropyBounded(layout=given.layout, sampling=given.sampling, block_length=given.block_size),
        attentions=_FIXED,
        options=frozenset(),
    ),
    "hierarchical": RuleSpec(
        build=lambda given: Hierarchical(
            layout=given.layout, sampling=given.sampling, block_length=given.block_size, threshold=given.threshold
        ),
        attentions=_FIXED,
        options=_THRESHOLD,
    ),
    "credit": RuleSpec(
        build=lambda given: Credit(
            layout=given.layout, sampling=given.sampling, block_length=given.block_size, threshold=given.threshold
        ),
        attentions=_FIXED,
        options=_THRESHOLD,
    ),
    "remask": RuleSpec(build=_remask, attentions=_FIXED, options=_STEPS),
    "renoise": RuleSpec(
        build=_renoise,
        attentions=frozenset({AttentionPattern.CAUSAL_CONTEXT}),
        options=_STEPS,
        noise=NoiseKind.UNIFORM,
    ),
    "edit": RuleSpec(build=_editing(0.5), attentions=_BLOCKS, options=_THRESHOLD),
    "edit_any": RuleSpec(build=_editing(0.0), attentions=_BLOCKS, options=_THRESHOLD),
    "sdar_static": RuleSpec(build=_sdar(Strategy.STATIC), attentions=_BLOCKS, options=_STEPS),
    "sdar_dynamic": RuleSpec(build=_sdar(Strategy.DYNAMIC), attentions=_BLOCKS, options=_THRESHOLD | _STEPS),
    "sdar_sequential": RuleSpec(build=_sdar(Strategy.SEQUENTIAL), attentions=_BLOCKS, options=_STEPS),
}
"""Rules by name, for diffusion mode. `edit` with threshold 0.7 is LLaDA2.1's quality mode, `edit_any` with 0.5 its
speed mode; the settings of the other published recipes stand in the rules' docstrings."""


def check_rule(params: SamplingParams, traits: Traits) -> None:
    """Refuses a rule that the model cannot run or that would ignore an option.

    Raises:
        RequestError: names `diffusion.rule` or the option.
    """
    if traits.noise is NoiseKind.UNIFORM:
        _check_uniform(params)
    if params.rule is None:
        return
    known = {
        name: spec for name, spec in RULES.items() if traits.attention in spec.attentions and traits.noise is spec.noise
    }
    if not traits.editable:
        known = {name: spec for name, spec in known.items() if not name.startswith("edit")}
    if params.rule not in known:
        unknown = unknown_name("rule for this model", params.rule, known)
        raise RequestError(str(unknown), param="diffusion.rule")
    for option in ("threshold", "num_steps"):
        if getattr(params, option) is not None and option not in known[params.rule].options:
            raise RequestError(f"rule {params.rule!r} has no {option}; leave it out", param=f"diffusion.{option}")


def _check_uniform(params: SamplingParams) -> None:
    """Refuses what the one rule of uniform noise would ignore: its temperature falls by a schedule of its own."""
    idle = {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "threshold": None}
    for name, value in idle.items():
        if getattr(params, name) != value:
            param = "diffusion.threshold" if name == "threshold" else name
            raise RequestError(f"{name} has no meaning for a model of uniform noise; leave it out", param=param)


def make_rule(params: SamplingParams, traits: Traits, constraint: AnswerConstraint | None = None) -> DecodingRule:
    """The decoding rule of an admitted request."""
    given = Given(params=params, traits=traits)
    if constraint is not None:
        return _constrained(given, constraint)
    if params.mode is Mode.DIFFUSION:
        return RULES[params.rule or default_rule(params, traits)].build(given)
    if params.lookup is not None:
        return Lookup(window=given.window, sampling=given.sampling, num_drafts=params.lookup)
    return Verify(window=given.window, sampling=given.sampling)


def _constrained(given: Given, constraint: AnswerConstraint) -> DecodingRule:
    """The same under a constraint, which draws in the rule's place."""
    if given.params.mode is not Mode.DIFFUSION:
        return ConstrainedVerify(window=given.window, constraint=constraint, sampling=given.sampling)
    rule = make_rule(replace(given.params, temperature=0.0), given.traits)
    return Constrained(rule=rule, constraint=constraint, sampling=given.sampling)


def default_rule(params: SamplingParams, traits: Traits) -> str:
    """The rule of a request that names none."""
    if traits.noise is NoiseKind.UNIFORM:
        return "renoise"
    if traits.attention is AttentionPattern.BIDIRECTIONAL:
        return "parallel" if params.num_steps is None else "low_confidence"
    if traits.editable and params.num_steps is None:
        return "edit"
    return "unmask"
