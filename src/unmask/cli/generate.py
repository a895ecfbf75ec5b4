"""`unmask generate`: prompts in, text out."""

import argparse
import json
import sys
from typing import TYPE_CHECKING

from unmask.cli.options import (
    MODEL_HELP,
    add_decoding,
    add_model,
    add_sampling,
    add_speculation,
    engine_settings,
    open_named,
    sampling_params,
)
from unmask.core.errors import ConfigError

if TYPE_CHECKING:
    from unmask.engine.llm import Completion

DESCRIPTION = "Answer prompts, all of them at once, and print the answers in order."
EPILOG = """\
examples:
  unmask generate "Who was Ada Lovelace?" "And Grace Hopper?"
  echo "Write a haiku about rain." | unmask generate --temperature 0.7 --seed 3
  unmask generate --lines --json < prompts.txt > answers.jsonl
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    parser.add_argument("prompts", nargs="*", metavar="PROMPT", help="one or more; without any, standard input is one")
    parser.add_argument("--model", "-m", default="smol-agent", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--lines", action="store_true", help="each line of standard input is a prompt")
    parser.add_argument("--raw", action="store_true", help="no chat template: the model continues the prompt")
    parser.add_argument("--json", action="store_true", help="one JSON line for each prompt, with token counts")
    add_sampling(parser)
    add_decoding(parser)
    add_speculation(parser)
    add_model(parser)


def run(args: argparse.Namespace) -> int:
    """Generates; returns the exit status."""
    prompts = _prompts(args)
    params, settings = sampling_params(args), engine_settings(args)
    model = open_named(args)

    from unmask.engine.llm import LLM

    with LLM(model, settings=settings) as llm:
        for prompt, completion in zip(prompts, llm.generate(prompts, params, raw=args.raw), strict=True):
            print(_json_line(prompt, completion) if args.json else completion.text)
    return 0


def _prompts(args: argparse.Namespace) -> list[str]:
    if args.prompts and args.lines:
        raise ConfigError("--lines reads standard input; leave it or the prompts out")
    if args.prompts:
        return args.prompts
    if sys.stdin is None or sys.stdin.isatty():
        raise ConfigError("no prompt; give one as an argument or pipe it in")
    try:
        text = sys.stdin.read()
    except UnicodeDecodeError as error:
        raise ConfigError(f"standard input is not UTF-8 text: {error}") from error
    prompts = [line for line in text.splitlines() if line.strip()] if args.lines else [text.strip("\n")]
    if not "".join(prompts):
        raise ConfigError("standard input is empty; give a prompt")
    return prompts


def _json_line(prompt: str, completion: "Completion") -> str:
    usage = {
        "prompt_tokens": completion.num_prompt_tokens,
        "completion_tokens": len(completion.token_ids),
        "num_forwards": completion.num_forwards,
        "tokens_per_forward": round(completion.tokens_per_forward, 3),
    }
    if completion.num_draft_forwards:
        usage["num_draft_forwards"] = completion.num_draft_forwards
    fields = {
        "prompt": prompt,
        "text": completion.text,
        "finish_reason": completion.finish_reason.value,
        "usage": usage,
    }
    return json.dumps(fields, ensure_ascii=False)
