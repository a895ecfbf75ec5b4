"""`unmask VERB ...`: finds the verb, runs it, and turns every outcome into an exit status and at most one line."""

import argparse
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence

from unmask import __version__
from unmask.core.errors import UnmaskError

VERBS: Mapping[str, str] = {
    "serve": "serve a model behind the OpenAI API",
    "chat": "talk to a model in the terminal and watch it denoise",
    "generate": "answer prompts from the command line or standard input",
    "convert": "turn an autoregressive checkpoint into a diffusion language model",
    "inspect": "say what a model is and what it can be asked for, without loading it",
    "verify": "run recorded cases and compare logits, ids and forwards",
    "schema": "check what a JSON schema compiles to and which instances it allows",
    "demo": "race the decoding modes on a small tool-calling agent",
}
"""Verb -> its line of help. Verb x lives in `unmask.cli.x`: `DESCRIPTION`, `EPILOG`, `add_arguments(parser)` and
`run(args) -> int`. Only the verb that is called gets imported."""

EXIT_FAULT, EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_PIPE_CLOSED = 1, 2, 130, 141

_EPILOG = """\
examples:
  unmask serve                        the embedded model on http://127.0.0.1:8000/v1
  unmask serve ./checkpoint --port 80 any checkpoint folder
  unmask chat                         talk to it
  unmask generate "Who was Ada Lovelace?"

environment:
  UNMASK_CACHE                        where the embedded model is kept (default ~/.cache/unmask)
  UNMASK_API_KEY                      key that clients of `unmask serve` must send
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: arguments after the program's name; None for the process's own.

    Returns:
        The exit status: 0, 1 (our fault), 2 (bad input), 130 (interrupted).
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        parser = _parser(next((word for word in arguments if not word.startswith("-")), None))
    except ModuleNotFoundError as error:
        return _fail(EXIT_FAULT, f"this installation is incomplete ({error})")
    args = parser.parse_args(arguments)
    if args.verb is None:
        parser.print_help()
        return 0
    if not args.debug:
        warnings.simplefilter("ignore")  # of libraries; they say nothing a user could act on
    return _guarded(args.run, args)


def _parser(verb: str | None) -> argparse.ArgumentParser:
    """The whole command line; only `verb`'s own arguments are filled in."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="unmask",
        description="Run, measure and convert diffusion language models for agents.",
        epilog=_EPILOG,
        formatter_class=plain,
    )
    parser.add_argument("--version", action="version", version=f"unmask {__version__}")
    parser.add_argument("--debug", action="store_true", help="show tracebacks and library warnings")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", title="verbs")
    for name, summary in VERBS.items():
        own = verbs.add_parser(name, help=summary, formatter_class=plain)
        if name == verb:
            module = importlib.import_module(f"unmask.cli.{name}")
            own.description, own.epilog = module.DESCRIPTION, module.EPILOG
            module.add_arguments(own)
            own.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")
            own.set_defaults(run=module.run)
    return parser


def _guarded(run: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    """Runs a verb; the CLI's top, where everything is caught."""
    try:
        status = run(args)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of our output has gone, as in `unmask generate ... | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 - the CLI's top
        if args.debug:
            traceback.print_exc()
        if isinstance(error, UnmaskError):
            return _fail(EXIT_BAD_INPUT, str(error))
        hint = "" if args.debug else "; run again with --debug for the traceback"
        return _fail(EXIT_FAULT, f"unexpected {type(error).__name__}: {error}{hint}")
    return status


def _fail(status: int, message: str) -> int:
    print(f"unmask: {' '.join(message.split())}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
