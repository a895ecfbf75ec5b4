"""The ASGI app: routes, API key, error bodies."""

import hmac
from collections.abc import Awaitable, Callable

from fastapi import Depends, FastAPI, Request

from unmask.core.request import Backend
from unmask.grammar.tokens import Vocabulary
from unmask.server import endpoint, info, metrics
from unmask.server.chat import CHAT
from unmask.server.completions import COMPLETIONS
from unmask.server.errors import ApiError, install_handlers
from unmask.server.generation import Dispatcher
from unmask.server.grammars import Grammars
from unmask.server.prepare import ServedModel, TextTokenizer
from unmask.server.settings import ServerSettings
from unmask.text.chat import ChatTemplate


def create_app(
    *,
    backend: Backend,
    tokenizer: TextTokenizer,
    template: ChatTemplate,
    settings: ServerSettings,
    vocabulary: Vocabulary | None = None,
) -> FastAPI:
    """Builds the server for one model.

    Args:
        backend: generates; started and stopped by the caller. Its `stats()` raises EngineError once the engine has
            died, which turns /health into 503.
        tokenizer: of the served checkpoint.
        template: of the served checkpoint.
        settings: everything else.
        vocabulary: bytes of each row of the model's head; None if its answers cannot be constrained.
    """
    grammars = vocabulary and Grammars(
        vocabulary=vocabulary,
        eos_ids=tokenizer.eos_ids,
        encode=tokenizer.encode_text,
        tool_format=settings.tool_format,
    )
    served = ServedModel(tokenizer=tokenizer, template=template, settings=settings, grammars=grammars)
    counts = metrics.ServerMetrics(backend)
    guarded = [Depends(_key_check(settings.api_key))]
    app = FastAPI(title="unmask", docs_url=None, redoc_url=None, openapi_url=None)  # the docs pages load from a CDN
    install_handlers(app)
    dispatcher = Dispatcher(backend, served)
    for surface in (CHAT, COMPLETIONS):
        app.include_router(endpoint.router(surface, dispatcher, served, counts, guarded))
    app.include_router(info.models_router(settings, guarded))
    app.include_router(info.health_router(backend, settings))
    app.include_router(metrics.router(counts))
    return app


def _key_check(api_key: str | None) -> Callable[[Request], Awaitable[None]]:
    """Builds the dependency that lets a request pass only with the right bearer token."""
    expected = None if api_key is None else f"Bearer {api_key}".encode()

    async def check(request: Request) -> None:
        if expected is None:
            return
        given = request.headers.get("authorization", "")
        if not hmac.compare_digest(given.encode("latin-1"), expected):
            problem = "incorrect API key" if given else "no API key"
            raise ApiError(
                401,
                f"{problem}; send the key the server was started with as 'Authorization: Bearer KEY'",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )

    return check
