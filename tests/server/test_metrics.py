import httpx2
import pytest

from tests.fakes import FakeBackend
from tests.server.serving import body, http_client

pytestmark = pytest.mark.anyio

URL = "/v1/chat/completions"


async def scrape(client: httpx2.AsyncClient) -> dict[str, float]:
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    lines = [line for line in response.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


async def test_counts_and_latencies() -> None:
    backend = FakeBackend("abcdef", bursts=(3,))
    async with http_client(backend) as client:
        before = await scrape(client)
        assert before['unmask_requests_total{outcome="completed"}'] == 0
        assert before["unmask_tokens_per_forward"] == 0
        await client.post(URL, json=body())
        await client.post(URL, json=body(stream=True))
        await client.post(URL, json=body(n=0))
        after = await scrape(client)
    assert after['unmask_requests_total{outcome="completed"}'] == 2
    assert after['unmask_requests_total{outcome="refused"}'] == 1
    assert after['unmask_requests_total{outcome="disconnected"}'] == 0
    assert (after["unmask_tokens_total"], after["unmask_forwards_total"]) == (12, 4)
    assert after["unmask_tokens_per_forward"] == 3
    assert (after["unmask_requests_running"], after["unmask_requests_waiting"]) == (0, 0)
    assert after["unmask_request_seconds_count"] == after["unmask_first_token_seconds_count"] == 2
    assert after["unmask_first_token_seconds_sum"] <= after["unmask_request_seconds_sum"]
    assert after["unmask_request_tokens_per_forward_sum"] == 6


async def test_failures_by_kind() -> None:
    async def outcome_after(backend: FakeBackend, **changes: float) -> dict[str, float]:
        async with http_client(backend, **changes) as client:
            await client.post(URL, json=body())
            await client.post(URL, json=body(stream=True))
            return await scrape(client)

    full = await outcome_after(FakeBackend("x", capacity=0))
    assert full['unmask_requests_total{outcome="over_capacity"}'] == 2
    broken = await outcome_after(FakeBackend("abc", bursts=(1,), fails_after=1))
    assert broken['unmask_requests_total{outcome="failed"}'] == 2
    late = await outcome_after(FakeBackend("abc" * 9, bursts=(1,), delay_s=0.01), request_timeout_s=0.03)
    assert late['unmask_requests_total{outcome="timed_out"}'] == 2
    assert late["unmask_request_seconds_count"] == 0


async def test_a_dead_engine_still_answers_scrapes() -> None:
    backend = FakeBackend("x")
    backend.dead = True
    async with http_client(backend) as client:
        values = await scrape(client)
    assert values["unmask_engine_up"] == 0
    assert "unmask_requests_running" not in values


async def test_apps_do_not_share_a_registry() -> None:
    async with http_client(FakeBackend("x")) as one, http_client(FakeBackend("x")) as other:
        await one.post(URL, json=body())
        assert (await scrape(other))['unmask_requests_total{outcome="completed"}'] == 0
