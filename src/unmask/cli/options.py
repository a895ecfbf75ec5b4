"""Arguments that several verbs share, and the way from them to settings. The environment is read here."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from unmask.core.errors import ConfigError
from unmask.core.request import Mode, SamplingParams

if TYPE_CHECKING:
    from unmask.engine.opening import OpenModel
    from unmask.engine.settings import EngineSettings

MODEL_HELP = "'smol-agent' (the embedded model, the default) or the path of a checkpoint folder"


def cache_dir() -> Path:
    """Where the embedded model is kept: UNMASK_CACHE, else unmask/ in XDG_CACHE_HOME, else ~/.cache/unmask."""
    if chosen := os.environ.get("UNMASK_CACHE"):
        return Path(chosen).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser() / "unmask"
    return Path.home() / ".cache" / "unmask"


def api_key(args: argparse.Namespace) -> str | None:
    """The key clients must send: --api-key, else UNMASK_API_KEY, else none."""
    if args.api_key == "":
        raise ConfigError("--api-key must not be empty; leave it out to accept everyone")
    return args.api_key or os.environ.get("UNMASK_API_KEY") or None


def note(message: str) -> None:
    """Says what takes time, on standard error, so that output can be piped."""
    print(f"unmask: {message}", file=sys.stderr, flush=True)


def number(low: float, high: float, kind: Callable[[str], float] = int) -> Callable[[str], float]:
    """An argparse type: a number in [low, high]."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be between {low} and {high}, got {text}")
        return value

    return parse


def add_model(parser: argparse.ArgumentParser) -> None:
    """Options that say how a model is opened and run."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--precision",
        choices=["auto", "int8", "fp32"],
        default="auto",
        help="how weights are kept; auto is int8, the fastest on a CPU",
    )
    group.add_argument(
        "--threads", type=number(1, 1024), metavar="N", help="CPU threads of a forward (default: torch's choice)"
    )


def add_decoding(parser: argparse.ArgumentParser) -> None:
    """Options that say how answers are decoded unless a request says otherwise."""
    group = parser.add_argument_group("decoding")
    group.add_argument(
        "--mode",
        choices=[mode.value for mode in Mode],
        help="diffusion: commit by confidence; verified: drafts checked, equal to ar; ar: one token a forward "
        "(default: the model's best)",
    )
    group.add_argument(
        "--block-size", type=number(1, 256), metavar="N", help="positions denoised together (default: the model's)"
    )
    group.add_argument(
        "--threshold",
        type=number(0.0, 1.0, float),
        metavar="P",
        help="confidence above which mode diffusion commits a position (default: 0.9)",
    )


def add_speculation(parser: argparse.ArgumentParser) -> None:
    """Options that make mode ar faster without changing an answer."""
    group = parser.add_argument_group("speculation (mode ar; answers stay the same)")
    group.add_argument(
        "--draft-model", metavar="MODEL", help="a smaller model with the same vocabulary, whose tokens are checked"
    )
    group.add_argument(
        "--num-drafts", type=number(1, 64), metavar="N", help="tokens it drafts for each forward (default: 4)"
    )


def add_sampling(parser: argparse.ArgumentParser) -> None:
    """Options of one request."""
    group = parser.add_argument_group("sampling")
    group.add_argument("--max-tokens", type=int, default=256, metavar="N", help="longest answer (default: 256)")
    group.add_argument("--temperature", type=float, default=0.0, metavar="T", help="0 is greedy (default: 0)")
    group.add_argument("--top-p", type=float, default=1.0, metavar="P", help="nucleus mass (default: 1, all)")
    group.add_argument("--top-k", type=int, default=0, metavar="K", help="most likely tokens kept (default: 0, all)")
    group.add_argument(
        "--lookup",
        type=number(1, 64),
        metavar="N",
        help="mode ar only: draft up to N tokens a forward by copying from the text so far; the answer stays the same",
    )
    group.add_argument("--seed", type=int, default=0, metavar="N", help="same seed, same answer (default: 0)")


def sampling_params(args: argparse.Namespace) -> SamplingParams:
    """Settings of one request; the mode's own options come from the engine's defaults.

    Raises:
        RequestError: a value out of range.
    """
    return SamplingParams(
        max_tokens=args.max_tokens,
        temperature=args.temperature,
        top_p=args.top_p,
        top_k=args.top_k,
        seed=args.seed,
        lookup=args.lookup,
    )


def engine_settings(args: argparse.Namespace, *, requests_choose: bool = False) -> "EngineSettings":
    """Engine settings from whatever of its options the verb has.

    Args:
        args: the parsed command line.
        requests_choose: whether requests may name another mode than the default (a server's may).

    Raises:
        ConfigError: a value out of range.
    """
    from unmask.engine.settings import EngineSettings

    names = ("block_size", "threshold", "threads", "max_running", "max_waiting", "max_cached_tokens")
    names += ("max_prefix_tokens", "num_drafts")
    given = {name: value for name in names if (value := getattr(args, name, None)) is not None}
    mode = None if args.mode is None else Mode(args.mode)
    if args.threshold is not None and mode is not Mode.DIFFUSION and not requests_choose:
        raise ConfigError("--threshold only acts in mode diffusion; add --mode diffusion or leave it out")
    if args.threshold is not None and mode not in (None, Mode.DIFFUSION):
        raise ConfigError(f"--threshold only acts in mode diffusion, not {args.mode}; leave one of them out")
    if args.block_size is not None and mode is Mode.AR and not requests_choose:
        raise ConfigError("--block-size has no meaning in mode ar; leave one of them out")
    _check_speculation(getattr(args, "draft_model", None), given, mode, requests_choose)
    return EngineSettings(mode=mode, **given)


def _check_speculation(
    draft_model: str | None, given: Mapping[str, object], mode: Mode | None, requests_choose: bool
) -> None:
    """Raises ConfigError if an option would have no effect."""
    if draft_model is None and "num_drafts" in given:
        raise ConfigError("--num-drafts only acts with --draft-model; add it or leave --num-drafts out")
    if draft_model is not None and mode is not Mode.AR and not requests_choose:
        raise ConfigError("--draft-model only acts in mode ar; add --mode ar or leave it out")


def open_named(args: argparse.Namespace) -> "OpenModel":
    """Opens the model the arguments name.

    Raises:
        ConfigError, CheckpointError: see `unmask.engine.opening.open_model`.
    """
    from unmask.engine.opening import open_model

    return open_model(
        args.model,
        cache_dir=cache_dir(),
        precision=args.precision,
        draft_model=getattr(args, "draft_model", None),
        progress=note,
    )
