"""How these tests reach the app: in process through the openai client, or over a real socket."""

import asyncio
import contextlib
import functools
import json
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx2
import openai
import uvicorn
from fastapi import FastAPI

from tests.fakes import CHAT_TEMPLATE, ByteTokenizer, FakeBackend
from unmask.server.app import create_app
from unmask.server.prepare import ServedModel
from unmask.server.settings import ServerSettings
from unmask.text.chat import ChatTemplate

MODEL = "acme/toy"
USER = {"role": "user", "content": "hi"}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL_TEXT = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Zürich"}}\n</tool_call>'


def settings(**changes: Any) -> ServerSettings:
    return ServerSettings(**{"model_id": MODEL, "context_length": 4096, "created": 1_700_000_000, **changes})


@functools.cache
def chat_template(source: str) -> ChatTemplate:
    return ChatTemplate(source)


def served(**changes: Any) -> ServedModel:
    return ServedModel(tokenizer=ByteTokenizer(), template=chat_template(CHAT_TEMPLATE), settings=settings(**changes))


def app(backend: FakeBackend, template: str = CHAT_TEMPLATE, **changes: Any) -> FastAPI:
    chat = chat_template(template)
    return create_app(backend=backend, tokenizer=ByteTokenizer(), template=chat, settings=settings(**changes))


def http_client(backend: FakeBackend, **changes: Any) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(app=app(backend, **changes))
    return httpx2.AsyncClient(transport=transport, base_url="http://toy")


def openai_client(backend: FakeBackend, client_key: str = "any", **changes: Any) -> openai.AsyncOpenAI:
    client = http_client(backend, **changes)
    return openai.AsyncOpenAI(base_url="http://toy/v1", api_key=client_key, http_client=client, max_retries=0)


def body(**changes: Any) -> dict[str, Any]:
    """A chat request's body; a change to `...` leaves a field out."""
    fields: Mapping[str, Any] = {"model": MODEL, "messages": [USER], **changes}
    return {name: value for name, value in fields.items() if value is not ...}


def sse(text: str) -> list[Any]:
    """The events of a stream, parsed; "[DONE]" stays text."""
    assert text.endswith("\n\n")
    events = [event.removeprefix("data: ") for event in text.removesuffix("\n\n").split("\n\n")]
    return [event if event == "[DONE]" else json.loads(event) for event in events]


@contextlib.asynccontextmanager
async def listening(backend: FakeBackend, **changes: Any) -> AsyncIterator[str]:
    """Serves on a free port of the loopback; yields the base URL."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app(backend, **changes), log_level="error", lifespan="off"))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            await until(lambda: server.started)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


async def until(condition: Any, timeout_s: float = 3.0) -> None:
    """Waits until `condition()` holds; fails the test if it never does."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - the condition lives in a fake without events
            await asyncio.sleep(0.005)
