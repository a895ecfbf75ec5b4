"""Clients that go away, over a real socket: their slots are freed at once and nothing else notices."""

import asyncio
import json

import httpx2
import openai
import pytest

from tests.fakes import FakeBackend
from tests.server.serving import body, listening, until

pytestmark = pytest.mark.anyio

LONG = "word " * 400  # seconds of work at these delays


def endless() -> FakeBackend:
    return FakeBackend(LONG, bursts=(1,), delay_s=0.005)


async def disconnects(url: str) -> int:
    async with httpx2.AsyncClient(base_url=url) as client:
        lines = (await client.get("/metrics")).text.splitlines()
    (line,) = [line for line in lines if line.startswith('unmask_requests_total{outcome="disconnected"}')]
    return int(float(line.split()[-1]))


async def test_mid_stream() -> None:
    backend = endless()
    async with listening(backend) as url:
        async with (
            httpx2.AsyncClient(base_url=url) as client,
            client.stream("POST", "/v1/chat/completions", json=body(stream=True, n=2, max_tokens=2000)) as response,
        ):
            async for _ in response.aiter_bytes():
                break
            assert len(backend.live) == 2
        await until(lambda: not backend.live)
        assert backend.completed == []
        assert await disconnects(url) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_before_any_byte_of_the_answer(stream: bool) -> None:
    backend = FakeBackend(LONG, delay_s=60)
    async with listening(backend) as url:
        async with httpx2.AsyncClient(base_url=url) as client:
            posting = asyncio.create_task(client.post("/v1/chat/completions", json=body(stream=stream)))
            await until(lambda: backend.live)
            posting.cancel()
            await asyncio.gather(posting, return_exceptions=True)
        await until(lambda: not backend.live)
        assert await disconnects(url) == 1


async def test_mid_body() -> None:
    async with listening(endless()) as url:
        host, port = url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(0.05)
        assert await disconnects(url) == 1


async def test_eight_of_sixteen_clients_killed_mid_stream() -> None:
    backend = FakeBackend("word " * 20, bursts=(2,), delay_s=0.005)
    async with (
        listening(backend) as url,
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0) as client,
    ):

        async def read(limit: int | None) -> str:
            text = ""
            events = await client.chat.completions.create(**body(stream=True))
            async with events:
                async for event in events:
                    text += event.choices[0].delta.content or ""
                    if limit is not None and len(text) >= limit:
                        break
            return text

        texts = await asyncio.gather(*(read(6 if i % 2 else None) for i in range(16)))
        await until(lambda: not backend.live)
        assert [text for i, text in enumerate(texts) if not i % 2] == ["word " * 20] * 8
        assert len(backend.completed) == 8
        assert await disconnects(url) == 8


async def test_twenty_megabytes_get_an_answer() -> None:
    raw = json.dumps(body(user="u" * 20_000_000)).encode()
    async with listening(endless()) as url, httpx2.AsyncClient(base_url=url, timeout=20) as client:
        response = await client.post("/v1/chat/completions", content=raw, headers={"Content-Type": "application/json"})
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "request_too_large"
        assert (await client.get("/health")).status_code == 200
