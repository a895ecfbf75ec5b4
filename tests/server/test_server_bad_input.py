"""Whatever a client sends: one OpenAI-shaped 4xx that names the field, and a server that goes on."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import openai
import pytest

from tests.fakes import FakeBackend
from tests.server.bad_fields import BAD_FIELDS
from tests.server.serving import body, http_client, openai_client, until

pytestmark = pytest.mark.anyio

JSON = {"Content-Type": "application/json"}
URL = "/v1/chat/completions"


def error_of(response: httpx2.Response) -> dict[str, Any]:
    """The error object, checked for OpenAI's shape."""
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert "\n" not in error["message"]
    assert error["message"]
    return error


async def assert_alive(client: httpx2.AsyncClient) -> None:
    assert (await client.post(URL, json=body())).status_code == 200


async def test_bad_fields_get_an_answer_and_the_server_goes_on() -> None:
    backend = FakeBackend("x")
    async with http_client(backend) as client:
        for changes, param, _ in BAD_FIELDS:
            response = await client.post(URL, json=body(**changes))
            error = error_of(response)
            assert (response.status_code, error["type"], error["param"]) == (400, "invalid_request_error", param)
        assert backend.requests == []
        await assert_alive(client)


async def test_a_clients_words_are_quoted_on_one_short_line() -> None:
    words = "a\nb" * 1000
    async with http_client(FakeBackend("x")) as client:
        for changes in ({"model": words}, {words: 1}, {"messages": [{"role": words}]}):
            assert len(error_of(await client.post(URL, json=body(**changes)))["message"]) < 300


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe",
        b'{"model": "acme/toy", "temperature": NaN, "messages": []}',
        b'{"model": "acme/toy", "temperature": -Infinity, "messages": []}',
        b'{"a":' * 100_000,
        b'{"metadata": ' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"seed": ' + b"9" * 5000 + b"}",
        b'{"model": "\\ud800", "messages": []}',
        b'{"\\udfff": 1}',
    ],
    ids=range(13),
)
async def test_what_is_not_a_json_object(raw: bytes) -> None:
    async with http_client(FakeBackend("x")) as client:
        response = await client.post(URL, content=raw, headers=JSON)
        assert (response.status_code, error_of(response)["code"]) == (400, "invalid_json")
        await assert_alive(client)


async def test_of_a_key_given_twice_the_last_counts() -> None:
    backend = FakeBackend("x")
    raw = json.dumps(body(seed=1))[:-1] + ', "seed": 2}'
    async with http_client(backend) as client:
        assert (await client.post(URL, content=raw, headers=JSON)).status_code == 200
    assert backend.requests[0].params.seed == 2


async def test_huge_float_is_out_of_range() -> None:
    raw = json.dumps(body())[:-1] + ', "temperature": 1e999}'
    async with http_client(FakeBackend("x")) as client:
        response = await client.post(URL, content=raw, headers=JSON)
    assert (response.status_code, error_of(response)["param"]) == (400, "temperature")


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_content_type(content_type: str) -> None:
    async with http_client(FakeBackend("x")) as client:
        headers = {"Content-Type": content_type} if content_type else {}
        response = await client.post(URL, content=json.dumps(body()), headers=headers)
        assert (response.status_code, error_of(response)["code"]) == (415, "unsupported_media_type")
        good = {"Content-Type": "Application/JSON; charset=utf-8"}
        assert (await client.post(URL, content=json.dumps(body()), headers=good)).status_code == 200


async def in_pieces(raw: bytes) -> AsyncIterator[bytes]:
    """A body without a declared length."""
    for at in range(0, len(raw), 1000):
        yield raw[at : at + 1000]


@pytest.mark.parametrize("chunked", [False, True])
async def test_too_large_a_body(chunked: bool) -> None:
    raw = json.dumps(body(user="u" * 20_000)).encode()
    async with http_client(FakeBackend("x"), max_body_bytes=10_000) as client:
        response = await client.post(URL, content=in_pieces(raw) if chunked else raw, headers=JSON)
        assert (response.status_code, error_of(response)["code"]) == (413, "request_too_large")
        await assert_alive(client)
    async with http_client(FakeBackend("x"), max_body_bytes=len(raw)) as client:
        response = await client.post(URL, content=in_pieces(raw) if chunked else raw, headers=JSON)
        assert response.status_code == 200


async def test_a_large_body_is_prepared_off_the_event_loop() -> None:
    backend = FakeBackend("x")
    text = "ä" * 100_000
    async with http_client(backend, context_length=300_000) as client:
        response = await client.post(URL, json=body(messages=[{"role": "user", "content": text}]))
        assert response.json()["usage"]["prompt_tokens"] > 200_000
        response = await client.post(URL, json=body(user="u" * 100_000, seed="x"))
        assert error_of(response)["param"] == "seed"


async def test_prompt_longer_than_the_context() -> None:
    client = openai_client(FakeBackend("x"), context_length=100)
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(**body(messages=[{"role": "user", "content": "x" * 200}]))
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")


async def test_answer_longer_than_the_context() -> None:
    backend = FakeBackend("x" * 500)
    client = openai_client(backend, context_length=100)
    reply = await client.chat.completions.create(**body())
    usage = reply.usage
    assert usage is not None
    assert usage.total_tokens == 100
    assert reply.choices[0].finish_reason == "length"
    room = 100 - usage.prompt_tokens
    assert (await client.chat.completions.create(**body(max_tokens=room))).choices[0].finish_reason == "length"
    with pytest.raises(openai.BadRequestError, match=f"leaves {room}") as caught:
        await client.chat.completions.create(**body(max_tokens=room + 1))
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "max_tokens")


async def test_a_template_that_refuses() -> None:
    template = "{{ raise_exception('two system messages') }}"
    async with http_client(FakeBackend("x"), template=template) as client:
        response = await client.post(URL, json=body())
    assert (response.status_code, error_of(response)["param"]) == (400, "messages")


async def test_unknown_model() -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        await openai_client(FakeBackend("x")).chat.completions.create(**body(model="gpt-9"))
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


async def test_unknown_route_and_method() -> None:
    async with http_client(FakeBackend("x")) as client:
        for response in (await client.post("/v1/embeddings", json={}), await client.get("/nowhere")):
            assert (response.status_code, error_of(response)["code"]) == (404, "unknown_url")
        response = await client.get(URL)
        assert (response.status_code, error_of(response)["code"]) == (405, "method_not_allowed")
        assert response.headers["allow"] == "POST"


async def test_api_key() -> None:
    for key in ("wrong", "sécret"):
        async with http_client(FakeBackend("x"), api_key="secret") as client:
            headers = {"Authorization": f"Bearer {key}".encode()}
            response = await client.post(URL, json=body(), headers=headers)
            assert (response.status_code, error_of(response)["code"]) == (401, "invalid_api_key")
            assert "secret" not in response.text
    async with http_client(FakeBackend("x"), api_key="secret") as client:
        assert (await client.post(URL, json=body())).status_code == 401
        assert (await client.get("/v1/models")).status_code == 401
        assert (await client.get("/health")).status_code == 200
    with pytest.raises(openai.AuthenticationError):
        await openai_client(FakeBackend("x"), api_key="secret").models.list()


async def test_the_right_api_key() -> None:
    async with http_client(FakeBackend("x"), api_key="sécret") as client:
        headers = {"Authorization": "Bearer sécret".encode()}
        assert (await client.post(URL, json=body(), headers=headers)).status_code == 200


async def test_full_queue() -> None:
    async with http_client(FakeBackend("x", capacity=0)) as client:
        for stream in (False, True):
            response = await client.post(URL, json=body(stream=stream))
            error = error_of(response)
            assert (response.status_code, error["type"], error["code"]) == (429, "rate_limit_error", "server_busy")
            assert response.headers["retry-after"] == "1"


async def test_deadline() -> None:
    backend = FakeBackend("x" * 100, bursts=(1,), delay_s=0.01)
    async with http_client(backend, request_timeout_s=0.05) as client:
        response = await client.post(URL, json=body())
        assert (response.status_code, error_of(response)["code"]) == (504, "timeout")
        assert response.headers["x-should-retry"] == "false"
        response = await client.post(URL, json=body(stream=True))
        last = json.loads(response.text.removesuffix("\n\n").split("\n\n")[-1].removeprefix("data: "))
        assert last["error"]["code"] == "timeout"
    assert backend.live == set()
    assert all(request.timeout_s == 0.05 for request in backend.requests)


async def test_given_up_by_the_server() -> None:
    backend = FakeBackend("x" * 500, bursts=(1,), delay_s=0.001)
    async with http_client(backend) as client:
        posting = asyncio.create_task(client.post(URL, json=body(max_tokens=1000)))
        await until(lambda: backend.live)
        await backend.abort(*backend.live)
        response = await posting
        assert (response.status_code, error_of(response)["code"]) == (503, "aborted")
        assert response.headers["x-request-id"]


async def test_a_dead_engine() -> None:
    backend = FakeBackend("x")
    backend.dead = True
    async with http_client(backend) as client:
        response = await client.post(URL, json=body())
        assert (response.status_code, error_of(response)["code"]) == (500, "engine_error")


async def test_a_bug_is_a_500_without_its_insides(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: object) -> str:
        raise KeyError("the inside")

    async with http_client(FakeBackend(broken)) as client:
        for stream in (False, True):
            response = await client.post(URL, json=body(stream=stream))
            assert (response.status_code, error_of(response)["code"]) == (500, "internal_error")
            assert "inside" not in response.text
    assert "the inside" in caplog.text
