"""`unmask serve`: a model behind the OpenAI API until a signal ends it."""

import argparse
import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from unmask.cli.options import (
    MODEL_HELP,
    add_decoding,
    add_model,
    add_speculation,
    api_key,
    engine_settings,
    note,
    number,
    open_named,
)
from unmask.cli.snippets import Address, settings_text, snippets
from unmask.core.errors import ConfigError, EngineError

if TYPE_CHECKING:
    import uvicorn

    from unmask.engine.loop import EngineLoop
    from unmask.engine.opening import OpenModel
    from unmask.server.settings import ServerSettings

DESCRIPTION = "Serve a model behind the OpenAI API: chat completions with tools, streaming, usage, metrics."
EPILOG = """\
examples:
  unmask serve                                  the embedded model on http://127.0.0.1:8000/v1
  unmask serve ./checkpoint --mode diffusion    any checkpoint folder, decoded by confidence
  UNMASK_API_KEY=secret unmask serve --host 0.0.0.0

Ctrl-C (or SIGTERM) stops accepting and lets running requests finish for --grace seconds; a second Ctrl-C stops at once.
"""

_BACKLOG = 2048


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the verb's arguments."""
    parser.add_argument("model", nargs="?", default="smol-agent", metavar="MODEL", help=MODEL_HELP)
    group = parser.add_argument_group("server")
    group.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    group.add_argument("--port", type=number(0, 65535), default=8000, help="0 takes a free one (default: 8000)")
    group.add_argument("--api-key", metavar="KEY", help="key clients must send (default: UNMASK_API_KEY, else none)")
    group.add_argument(
        "--request-timeout", type=float, metavar="S", help="seconds a request may take (default: no limit)"
    )
    group.add_argument(
        "--grace",
        type=number(0, 3600, float),
        default=10.0,
        metavar="S",
        help="seconds running requests get to finish when the server stops (default: 10)",
    )
    group.add_argument(
        "--log-level", choices=["debug", "info", "warning", "error"], default="warning", help="default: warning"
    )
    group.add_argument("--access-log", action="store_true", help="one line for each HTTP request")
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-running", type=int, metavar="N", help="requests denoised together (default: 16)")
    limits.add_argument("--max-waiting", type=int, metavar="N", help="requests queued before 429 (default: 256)")
    limits.add_argument(
        "--max-cached-tokens", type=int, metavar="N", help="tokens of all running requests together (default: 65536)"
    )
    limits.add_argument(
        "--max-prefix-tokens",
        type=int,
        metavar="N",
        help="tokens of ended requests kept for prompts that begin alike (default: 4096; 0 keeps none)",
    )
    add_decoding(parser)
    add_speculation(parser)
    add_model(parser)


def run(args: argparse.Namespace) -> int:
    """Serves until a signal comes; returns the exit status."""
    logging.basicConfig(level=args.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    key = api_key(args)
    if args.request_timeout is not None and not args.request_timeout > 0:
        raise ConfigError(f"--request-timeout must be above 0, got {args.request_timeout}")
    settings = engine_settings(args, requests_choose=True)
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(_bound(args.host, args.port))  # first: cheap, and often what is wrong
        note(f"loading {args.model}")
        model = open_named(args)
        template = model.chat_template()

        from unmask.engine.backend import EngineBackend
        from unmask.engine.loop import EngineLoop
        from unmask.server.app import create_app

        loop = EngineLoop(model.loaded, settings, model.draft)
        stack.callback(loop.close)
        served = _server_settings(args, model, loop, key)
        app = create_app(
            backend=EngineBackend(loop),
            tokenizer=model.tokenizer,
            template=template,
            settings=served,
            vocabulary=model.vocabulary(),
        )
        address = Address(host=args.host, port=listener.getsockname()[1], api_key=key)
        print(settings_text(model, loop.settings, served, address), flush=True)
        if not address.is_loopback and key is None:
            note(f"warning: everyone who can reach {args.host} can use this server; --api-key KEY closes it")
        _listen(listener, address)
        config = _uvicorn_config(app, args)
        greeting = f"\nlistening on {address.url}\n\n{snippets(address, model.model_id)}"
        return asyncio.run(_serve(config, listener, loop, greeting, args.grace))


@contextlib.contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """A socket bound to the address; closed at the end.

    Raises:
        ConfigError: the port is taken or not ours to take, or there is no such host.
    """
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"--host {host!r} is not an address of this machine: {error}") from error
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(where)
        except OSError as error:
            raise _address_error(error, host, port) from error
        yield listener


def _address_error(error: OSError, host: str, port: int) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(f"port {port} on {host} is taken; choose another with --port (0 takes a free one)")
    if error.errno == errno.EACCES:
        return ConfigError(f"port {port} needs more rights than this process has; choose one above 1023 with --port")
    return ConfigError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --host or --port")


def _listen(listener: socket.socket, address: Address) -> None:
    """Starts to listen; two processes may bind one port, but only one of them gets here."""
    try:
        listener.listen(_BACKLOG)
    except OSError as error:
        raise _address_error(error, address.host, address.port) from error


def _server_settings(
    args: argparse.Namespace, model: "OpenModel", loop: "EngineLoop", key: str | None
) -> "ServerSettings":
    from unmask.server.settings import ServerSettings
    from unmask.text.toolcalls import ToolCallFormat

    mode, block_size = loop.settings.mode, loop.settings.block_size
    assert mode is not None, "the loop resolves its settings"
    assert block_size is not None, "the loop resolves its settings"
    cached = loop.settings.max_cached_tokens - 2 * block_size
    if cached < 1:
        raise ConfigError(f"--max-cached-tokens must be above {2 * block_size}, two blocks")
    return ServerSettings(
        model_id=model.model_id,
        context_length=min(loop.traits.max_positions, cached),
        created=int(time.time()),
        default_mode=mode,
        api_key=key,
        request_timeout_s=args.request_timeout,
        tool_format=ToolCallFormat().as_rendered(model.chat_template().render),
    )


def _uvicorn_config(app: object, args: argparse.Namespace) -> "uvicorn.Config":
    import uvicorn

    config = uvicorn.Config(
        app,  # pyright: ignore[reportArgumentType] - FastAPI's app is an ASGI application
        lifespan="off",
        log_config=None,
        log_level=args.log_level,
        access_log=args.access_log,
        server_header=False,
        timeout_graceful_shutdown=int(args.grace) + 5,  # a backstop: the engine ends everything after the grace time
    )
    if args.access_log:
        logging.getLogger("uvicorn.access").setLevel(logging.INFO)  # whatever the level of the rest
    return config


async def _serve(
    config: "uvicorn.Config", listener: socket.socket, loop: "EngineLoop", greeting: str, grace_s: float
) -> int:
    """Runs the server until a signal; then the engine gets `grace_s` to finish what runs."""
    import uvicorn

    class Server(uvicorn.Server):
        """uvicorn, without its own signal handlers: they end the process by the signal instead of with status 0."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print(greeting, flush=True)

    server = Server(config)
    stopping = _Stopping(server, loop, grace_s)
    events = asyncio.get_running_loop()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        events.add_signal_handler(signal_number, stopping.on_signal, signal_number)
    await server.serve(sockets=[listener])
    return 0


class _Stopping:
    """What a signal does: the first ends things in order, a second Ctrl-C at once."""

    def __init__(self, server: "uvicorn.Server", loop: "EngineLoop", grace_s: float) -> None:
        self._server = server
        self._loop = loop
        self._grace_s = grace_s
        self._ending: asyncio.Task[None] | None = None

    def on_signal(self, signal_number: int) -> None:
        """Runs on the event loop."""
        if self._ending is None:
            if live := self._num_live():
                note(f"stopping; running requests ({live}) get {self._grace_s:g} s to finish (Ctrl-C: stop at once)")
            self._server.should_exit = True
            self._ending = asyncio.create_task(self._end())
        elif signal_number == signal.SIGINT:
            os._exit(130)

    def _num_live(self) -> int:
        try:
            stats = self._loop.stats()
        except EngineError:  # the engine has died; stopping must work all the same
            return 0
        return stats.num_running + stats.num_waiting

    async def _end(self) -> None:
        """After the grace time, ends every request with an error its client can read."""
        await asyncio.sleep(self._grace_s)
        await asyncio.to_thread(self._loop.close)
