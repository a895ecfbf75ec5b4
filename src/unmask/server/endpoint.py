"""The life of a generating request, whatever its endpoint: read, prepare, generate, answer, let go."""

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.params import Depends
from fastapi.responses import Response, StreamingResponse
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from unmask.core.errors import UnmaskError
from unmask.server.answers import Answer, Form
from unmask.server.body import read_body
from unmask.server.errors import as_api_error
from unmask.server.generation import Dispatcher
from unmask.server.metrics import Outcome, ServerMetrics, outcome_of
from unmask.server.prepare import PreparedChat, ServedModel

T = TypeVar("T")

# Parsing and tokenising more than this would hold up other requests' events, so it goes to a thread.
_INLINE_BYTES = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class Surface:
    """What one endpoint has of its own.

    Attributes:
        path: its route.
        id_prefix: how its answers' ids begin.
        prepare: (raw body, served model, answer's id) -> what to generate.
        form: (prepared request, model id) -> how the answer is written.
    """

    path: str
    id_prefix: str
    prepare: Callable[[bytes, ServedModel, str], PreparedChat]
    form: Callable[[PreparedChat, str], Form]


def router(
    surface: Surface, dispatcher: Dispatcher, served: ServedModel, metrics: ServerMetrics, guards: Sequence[Depends]
) -> APIRouter:
    """The endpoint's route."""
    endpoint = _Endpoint(surface, dispatcher, served, metrics)
    routes = APIRouter(dependencies=guards)
    routes.add_api_route(surface.path, endpoint.create, methods=["POST"], response_class=Response)
    return routes


class _Endpoint:
    def __init__(self, surface: Surface, dispatcher: Dispatcher, served: ServedModel, metrics: ServerMetrics) -> None:
        self._surface = surface
        self._served = served
        self._metrics = metrics
        self._dispatcher = dispatcher

    async def create(self, request: Request) -> Response:
        """Answers one request; the life of a request in one screen."""
        received_at = time.perf_counter()
        answer_id = f"{self._surface.id_prefix}{uuid.uuid4().hex}"
        try:
            prepared = await self._prepare(request, answer_id)
        except ClientDisconnect:
            self._metrics.count(Outcome.DISCONNECTED)
            raise
        except UnmaskError as error:
            refusal = as_api_error(error)
            refusal.headers["x-request-id"] = answer_id
            self._metrics.count(outcome_of(refusal))
            raise refusal from error
        answer = Answer(
            prepared,
            self._dispatcher.start(prepared),
            form=self._surface.form(prepared, self._served.settings.model_id),
            metrics=self._metrics,
            received_at=received_at,
        )
        headers = {"x-request-id": answer_id}
        streaming = False
        try:
            if prepared.stream:
                await _unless_disconnected(request, answer.start())
                streaming = True
                return _EventStream(answer, headers)
            body = await _unless_disconnected(request, answer.whole())
            return Response(body, media_type="application/json", headers=headers)
        finally:
            if not streaming:
                answer.close()

    async def _prepare(self, request: Request, answer_id: str) -> PreparedChat:
        raw = await read_body(request, self._served.settings.max_body_bytes)
        if len(raw) <= _INLINE_BYTES:
            return self._surface.prepare(raw, self._served, answer_id)
        return await asyncio.to_thread(self._surface.prepare, raw, self._served, answer_id)


class _EventStream(StreamingResponse):
    """Server-sent events that close their answer however the connection ends."""

    def __init__(self, answer: Answer, headers: dict[str, str]) -> None:
        # The last header keeps nginx from collecting events.
        headers = {**headers, "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        super().__init__(answer.events(), media_type="text/event-stream", headers=headers)
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._answer.close()


async def _unless_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of `work`, or cancels it and raises ClientDisconnect as soon as the client goes away."""
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        watching.cancel()


async def _disconnected(request: Request) -> None:
    """Returns when the client has gone; the body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
