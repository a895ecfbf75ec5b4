"""`unmask chat`: a conversation in the terminal; the answer is shown while it is denoised."""

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from unmask.cli.options import (
    MODEL_HELP,
    add_decoding,
    add_model,
    add_sampling,
    engine_settings,
    note,
    open_named,
    sampling_params,
)
from unmask.core.errors import ConfigError, RequestError
from unmask.core.request import Chunk, SamplingParams

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

    from unmask.engine.llm import LLM
    from unmask.text.tokenizer import Tokenizer

DESCRIPTION = "Talk to a model. Final text is plain, drafts are dim, masks are ░."
EPILOG = """\
in the chat:
  /reset   forget the conversation      /quit   leave (so do Ctrl-D, and Ctrl-C at the prompt)
  Ctrl-C while an answer is written stops that answer.

examples:
  unmask chat
  unmask chat --mode diffusion --threshold 0.7 --system "You answer in one sentence."
  printf 'Hello!\\nAnd again?\\n' | unmask chat
"""

_MASK = "░"
_HELP = "commands: /reset (forget the conversation), /quit"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    parser.add_argument("model", nargs="?", default="smol-agent", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--system", metavar="TEXT", help="system message")
    add_sampling(parser)
    add_decoding(parser)
    add_model(parser)


def run(args: argparse.Namespace) -> int:
    """Chats until the input ends; returns the exit status."""
    params, settings = sampling_params(args), engine_settings(args)
    model = open_named(args)
    model.chat_template()

    from unmask.engine.llm import LLM

    live = sys.stdout.isatty()
    with LLM(model, settings=settings) as llm:
        if live and sys.stdin.isatty():
            mode = llm.settings.mode
            note(f"{model.model_id}, mode {mode.value if mode else 'unknown'}; {_HELP}")
        display = _LiveDisplay() if live else _PlainDisplay()
        chat = _Chat(llm, params, args.system, display)
        for line in _lines(ask=live):
            if line == "/quit":
                break
            chat.hear(line)
    return 0


def _lines(ask: bool) -> Iterator[str]:
    """What the user types, line by line, without empty lines."""
    if ask and sys.stdin.isatty():
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - gives input() a history
    while True:
        try:
            line = input("> ") if ask and sys.stdin.isatty() else sys.stdin.readline()
        except EOFError:
            print()
            return
        except UnicodeDecodeError as error:
            raise ConfigError(f"standard input is not UTF-8 text: {error}") from error
        if not line and not (ask and sys.stdin.isatty()):
            return
        if line.strip():
            yield line.strip()


class Display(Protocol):
    """Shows one answer at a time."""

    def start(self) -> None:
        """An answer begins."""
        ...

    def show(self, fresh: str, draft: str) -> None:
        """Shows newly final text, and how the rest looks now."""
        ...

    def finish(self, summary: str) -> None:
        """The answer is over."""
        ...


class _Chat:
    """The conversation so far, and how a line changes it."""

    def __init__(self, llm: "LLM", params: SamplingParams, system: str | None, display: Display) -> None:
        self._llm = llm
        self._params = params
        self._opening = [{"role": "system", "content": system}] if system else []
        self._messages = list(self._opening)
        self._display = display

    def hear(self, line: str) -> None:
        """Answers a message or obeys a command."""
        if line == "/reset":
            self._messages = list(self._opening)
            note("the conversation is forgotten")
        elif line.startswith("/"):
            note(f"unknown command {line.split()[0]!r}; {_HELP}")
        else:
            self._messages.append({"role": "user", "content": line})
            try:
                answer = self._answer()
            except RequestError as error:  # most likely too long a conversation
                self._messages.pop()
                note(f"{error} (/reset starts anew)")
            else:
                self._messages.append({"role": "assistant", "content": answer})

    def _answer(self) -> str:
        from unmask.text.detokenizer import Detokenizer

        tokenizer = self._llm.model.tokenizer
        detokenizer = Detokenizer(tokenizer)
        text, num_tokens, chunk, started = "", 0, Chunk(), time.perf_counter()
        stopped = ""
        chunks = self._llm.stream(self._messages, self._params, drafts=True)
        with contextlib.closing(chunks):
            first = next(chunks)  # what can be refused is refused here, before anything is drawn
            self._display.start()
            try:
                for chunk in _chain(first, chunks):
                    fresh = detokenizer.push(chunk.token_ids)
                    text, num_tokens = text + fresh, num_tokens + len(chunk.token_ids)
                    self._display.show(fresh, draft_text(chunk.draft_ids, tokenizer))
            except KeyboardInterrupt:
                stopped = "stopped; "
        rest = detokenizer.flush()
        self._display.show(rest, "")
        per_forward = num_tokens / chunk.num_forwards if chunk.num_forwards else 0.0
        seconds = time.perf_counter() - started
        self._display.finish(
            f"{stopped}{num_tokens} tokens in {chunk.num_forwards} forwards "
            f"({per_forward:.2f} tokens per forward), {seconds:.1f} s"
        )
        return text + rest


def _chain(first: Chunk, rest: Iterator[Chunk]) -> Iterator[Chunk]:
    yield first
    yield from rest


def draft_text(draft_ids: tuple[int, ...], tokenizer: "Tokenizer") -> str:
    """The draft as text; an undecided position is one ░."""
    parts: list[str] = []
    run: list[int] = []
    for i in (*draft_ids, -1):
        if i >= 0:
            run.append(i)
            continue
        parts += [tokenizer.decode(run), _MASK]
        run = []
    return "".join(parts[:-1])


def printable(text: str) -> str:
    """Control characters, which could steer the terminal, become U+FFFD; line breaks and tabs stay."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)


class _PlainDisplay:
    """For pipes: final text as it comes, the summary on standard error."""

    def start(self) -> None:
        """See `Display`."""

    def show(self, fresh: str, draft: str) -> None:
        """See `Display`."""
        print(fresh, end="", flush=True)

    def finish(self, summary: str) -> None:
        """See `Display`."""
        print(flush=True)
        note(summary)


class _LiveDisplay:
    """For terminals: whole lines are printed for good, the last one and the draft are redrawn."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console: Console = Console(highlight=False)
        self._live: Live | None = None
        self._line = ""

    def start(self) -> None:
        """See `Display`."""
        from rich.live import Live

        self._line = ""
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, fresh: str, draft: str) -> None:
        """See `Display`."""
        assert self._live is not None, "start comes first"
        *whole, self._line = (self._line + printable(fresh)).split("\n")
        for line in whole:
            self._console.print(self._text(line, ""))
        self._live.update(self._text(self._line, printable(draft)), refresh=True)

    def finish(self, summary: str) -> None:
        """See `Display`."""
        assert self._live is not None, "start comes first"
        self._live.stop()
        self._live = None
        if self._line:
            self._console.print(self._text(self._line, ""))
        self._console.print(summary, style="dim")

    @staticmethod
    def _text(final: str, draft: str) -> "Text":
        from rich.text import Text

        return Text(final).append(draft, style="dim")
