"""`unmask inspect`: what a model is and what it can be asked for."""

import argparse
import json

from unmask.cli.options import MODEL_HELP, cache_dir, note

DESCRIPTION = """\
Prints a model's family, traits, size, context, cache cost, modes and decoding rules, template and tokenizer. Only
configuration files and the headers of the weights are read."""

EPILOG = """\
examples:
  unmask inspect                      the embedded model
  unmask inspect ./checkpoint         any checkpoint folder
  unmask inspect org/name@revision    a checkpoint of the hub (fetched if it is not in the cache)
  unmask inspect ./checkpoint --json  for scripts
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    parser.add_argument("model", nargs="?", default="smol-agent", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Inspects; returns the exit status.

    Raises:
        ConfigError, CheckpointError: see `unmask.engine.inspection.inspect_model`.
    """
    from unmask.engine.inspection import inspect_model

    facts = inspect_model(args.model, cache_dir=cache_dir(), progress=note).as_dict()
    if args.json:
        print(json.dumps(facts))
        return 0
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):<20} {_shown(value)}")
    return 0


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value) or "none"
    return "none" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
