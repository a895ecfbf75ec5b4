"""What callers hand to an engine and what they get back. Token ids only: text lives in `unmask.text`."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from numbers import Integral, Real
from typing import Protocol

from unmask.core.constraint import AnswerConstraint
from unmask.core.errors import RequestError, unknown_name


class Mode(StrEnum):
    """How one request is decoded; a field of the request, so modes share one engine and one batch.

    DIFFUSION: a block of masks is denoised in parallel, tokens are committed by confidence.
    VERIFIED: the block is drafted in parallel and checked causally by the forward that commits it;
        at temperature 0 the ids equal AR's.
    AR: one token per forward, left to right.
    """

    DIFFUSION = "diffusion"
    VERIFIED = "verified"
    AR = "ar"


class FinishReason(StrEnum):
    """Why a sequence ended."""

    STOP = "stop"  # an end-of-sequence token became final, or nothing else could follow under the constraint
    LENGTH = "length"  # max_tokens reached
    ABORT = "abort"  # aborted by the caller or by its deadline


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Settings of one request; what is None is filled from the model's defaults at admission.

    Attributes:
        max_tokens: most answer tokens, >= 1.
        temperature: 0 is greedy; up to 2.
        top_p: nucleus mass in (0, 1].
        top_k: 0 switches it off.
        seed: key of the request's random stream; same seed, same bytes.
        mode: see `Mode`.
        threshold: confidence in (0, 1] above which diffusion mode commits a position.
        block_size: positions denoised together; 1..256.
        num_steps: diffusion mode only: commit at least ceil(block_size / num_steps) positions a forward
            (fixed quota) instead of by threshold.
        rule: diffusion mode only: name of the decoding rule (`unmask.engine.rule_table`); None takes the model's.
        lookup: AR mode only: most tokens a forward drafts by copying from prompt and answer; 1..64. The ids stay the
            same, the forwards get fewer.
    """

    max_tokens: int = 256
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    mode: Mode | None = None
    threshold: float | None = None
    block_size: int | None = None
    num_steps: int | None = None
    rule: str | None = None
    lookup: int | None = None

    def __post_init__(self) -> None:
        _check_whole("max_tokens", self.max_tokens, 1)
        _check_number("temperature", self.temperature, 0.0, 2.0)
        _check_number("top_p", self.top_p, 0.0, 1.0, low_open=True)
        _check_whole("top_k", self.top_k, 0)
        _check_whole("seed", self.seed)
        if self.threshold is not None:
            _check_number("diffusion.threshold", self.threshold, 0.0, 1.0, low_open=True)
        if self.block_size is not None:
            _check_whole("diffusion.block_size", self.block_size, 1, 256)
        if self.num_steps is not None:
            _check_whole("diffusion.num_steps", self.num_steps, 1, 256)
        if self.lookup is not None:
            _check_whole("diffusion.lookup", self.lookup, 1, 64)
        _check_text("diffusion.rule", self.rule)
        if self.mode is not None:
            object.__setattr__(self, "mode", _known_mode(self.mode))  # a plain "ar" is a Mode from here on


def _known_mode(name: str) -> Mode:
    """Returns the mode of that name, or raises RequestError."""
    try:
        return Mode(name)
    except ValueError:
        raise RequestError(
            str(unknown_name("mode", name, [mode.value for mode in Mode])), param="diffusion.mode"
        ) from None


def _check_whole(name: str, value: object, low: int | None = None, high: int | None = None) -> None:
    """Raises RequestError unless the value is an integer (no bool) with low <= value <= high."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise RequestError(f"{name} must be an integer, got {value!r}", param=name)
    number = int(value)
    if (low is not None and number < low) or (high is not None and number > high):
        limit = f"at least {low}" if high is None else f"between {low} and {high}"
        raise RequestError(f"{name} must be {limit}, got {number}", param=name)


def _check_text(name: str, value: object) -> None:
    """Raises RequestError unless the value is a text or absent."""
    if value is not None and not isinstance(value, str):
        raise RequestError(f"{name} must be a name, got {value!r}", param=name)


def _check_number(name: str, value: object, low: float, high: float, *, low_open: bool = False) -> None:
    """Raises RequestError unless the value is a number (no bool, no NaN) with low <= value <= high."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise RequestError(f"{name} must be a number, got {value!r}", param=name)
    number = float(value)
    if not low <= number <= high or (low_open and number == low):
        raise RequestError(f"{name} must be in {'(' if low_open else '['}{low:g}, {high:g}], got {number}", param=name)


@dataclass(frozen=True, kw_only=True)
class Request:
    """One sequence to generate (a choice of an API request is one Request).

    Attributes:
        id: unique among live requests.
        prompt_ids: token ids, not empty.
        params: sampling settings.
        choice: index of the choice; part of the random stream's key, so choices of one seed differ.
        timeout_s: seconds after admission at which the engine gives up with finish reason "abort"; None never.
        drafts: whether chunks should also carry replaceable draft ids (live displays); off by default.
        constraint: language that the answer must be in, or None. The answer is complete at any `max_tokens` that holds
            its shortest text.
    """

    id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    choice: int = 0
    timeout_s: float | None = None
    drafts: bool = False
    constraint: AnswerConstraint | None = None


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """News about one sequence after a forward that changed it.

    Attributes:
        token_ids: newly final answer ids, append-only. The end-of-sequence id is never included.
        draft_ids: everything after the final ids as it looks now; replaces the last draft; masks are -1.
        num_forwards: model forwards this sequence took part in so far (prefill included; a long prompt may be
            prefilled in more pieces when others are prefilled beside it, so this count depends on load, the ids never).
        num_draft_forwards: forwards of the engine's draft model for this sequence so far; not among `num_forwards`.
        num_prefix_cached: prompt tokens whose keys and values came from the prefix cache.
        finish_reason: set on the last chunk only.
    """

    token_ids: tuple[int, ...] = ()
    draft_ids: tuple[int, ...] = ()
    num_forwards: int = 0
    num_draft_forwards: int = 0
    num_prefix_cached: int = 0
    finish_reason: FinishReason | None = None


@dataclass(frozen=True, kw_only=True)
class BackendStats:
    """A snapshot for health checks and metrics."""

    num_running: int
    num_waiting: int
    num_forwards: int  # model forwards since start (a batch of sequences is one forward); a draft model's do not count
    num_sequence_forwards: int  # sum over sequences of the forwards they took part in
    num_tokens: int  # final answer tokens emitted since start


class Backend(Protocol):
    """Anything that turns requests into chunks: our engine in process, or a client of a remote one."""

    def generate(self, request: Request) -> AsyncIterator[Chunk]:
        """Streams chunks; the last one carries a finish reason. Closing the iterator early aborts the request.

        Raises:
            RequestError: the request can never be honoured (too long, bad setting).
            CapacityError: the queue is full or the engine is stopping.
            EngineError: the engine failed while the request ran.
        """
        ...

    async def abort(self, request_id: str) -> None:
        """Frees the request's slot before the next forward; unknown ids are ignored."""
        ...

    def stats(self) -> BackendStats:
        """Returns counters; cheap, thread-safe."""
        ...
