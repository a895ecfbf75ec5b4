"""The asyncio face: streams, early closing, several event loops, and a storm of aborts."""

import asyncio
import gc
import random
import threading
from dataclasses import replace

import pytest

from tests.engine.running import WAIT_S, answers, ask, engine, mixed_requests, run, turnstile
from tests.models.random_weights import random_loaded
from unmask.core.errors import CapacityError, EngineError, RequestError
from unmask.core.request import Chunk, FinishReason, Mode, Request
from unmask.engine.backend import EngineBackend
from unmask.engine.loop import EngineLoop
from unmask.models.loading import Loaded


@pytest.fixture
def loaded() -> Loaded:
    return random_loaded()


@pytest.fixture
def endless(loaded: Loaded) -> Loaded:
    """Without an end-of-sequence id."""
    return replace(loaded, traits=replace(loaded.traits, eos_ids=frozenset()))


async def collect(backend: EngineBackend, request: Request) -> list[Chunk]:
    return [chunk async for chunk in backend.generate(request)]


def ids_of(chunks: list[Chunk]) -> list[int]:
    return [token for chunk in chunks for token in chunk.token_ids]


async def until_idle(loop: EngineLoop) -> None:
    async with asyncio.timeout(WAIT_S):
        while loop.stats().num_running or loop.stats().num_waiting:  # noqa: ASYNC110 - the engine has no event for it
            await asyncio.sleep(0.002)


def test_many_streams_on_one_event_loop(loaded: Loaded) -> None:
    requests = mixed_requests(loaded, 12)

    async def everything(backend: EngineBackend) -> list[list[Chunk]]:
        return await asyncio.gather(*(collect(backend, request) for request in requests))

    with engine(loaded) as loop:
        direct = answers(run(loop, requests))
        streams = asyncio.run(everything(EngineBackend(loop)))
    for request, chunks in zip(requests, streams, strict=True):
        assert (ids_of(chunks), chunks[-1].finish_reason) == direct[request.id]


def test_closing_the_iterator_early_aborts(endless: Loaded) -> None:
    async def scenario(loop: EngineLoop) -> None:
        backend = EngineBackend(loop)
        stream = backend.generate(ask("a", max_tokens=300, mode=Mode.AR))
        gate.let(1)
        await anext(stream)
        await stream.aclose()
        gate.let(2)  # 298 too few, had nobody told the engine
        await until_idle(loop)
        gate.let(10_000)
        for chunks in await asyncio.gather(*(collect(backend, ask(str(i), max_tokens=2)) for i in range(3))):
            assert chunks[-1].finish_reason is not FinishReason.ABORT

    with turnstile(endless, max_running=1) as (loop, gate):
        asyncio.run(scenario(loop))


def test_cancelling_the_reader_aborts(endless: Loaded) -> None:
    async def scenario(loop: EngineLoop) -> None:
        reader = asyncio.create_task(collect(EngineBackend(loop), ask("a", max_tokens=300, mode=Mode.AR)))
        await asyncio.sleep(0.01)
        reader.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reader
        gate.let(2)
        await until_idle(loop)

    with turnstile(endless) as (loop, gate):
        asyncio.run(scenario(loop))


def test_abort_by_id_ends_the_stream(endless: Loaded) -> None:
    async def scenario(backend: EngineBackend) -> list[Chunk]:
        reader = asyncio.create_task(collect(backend, ask("a", max_tokens=300, mode=Mode.AR)))
        await asyncio.to_thread(gate.wait_for_forward)
        await backend.abort("a")
        await backend.abort("unknown")
        gate.let(10_000)
        return await reader

    with turnstile(endless) as (loop, gate):
        chunks = asyncio.run(scenario(EngineBackend(loop)))
    assert [chunk.finish_reason for chunk in chunks][-1] is FinishReason.ABORT
    assert len(ids_of(chunks)) == 1


def test_errors_reach_the_reader(loaded: Loaded) -> None:
    async def scenario(loop: EngineLoop) -> None:
        backend = EngineBackend(loop)
        with pytest.raises(RequestError, match="prompt is empty"):
            await collect(backend, ask("a", []))
        loaded.model.lm_head.weight.fill_(torch_nan)
        with pytest.raises(EngineError, match="not finite"):
            await collect(backend, ask("a"))
        loop.close()
        with pytest.raises(CapacityError, match="stopping"):
            await collect(backend, ask("a"))

    torch_nan = float("nan")
    with engine(loaded) as loop:
        asyncio.run(scenario(loop))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the abandoned Queue.get
def test_an_event_loop_that_is_gone_hurts_nobody(loaded: Loaded) -> None:
    """A caller's loop may close while its request runs; the engine goes on for the others."""
    abandoned = asyncio.new_event_loop()
    with turnstile(loaded) as (loop, gate):
        reader = abandoned.create_task(collect(EngineBackend(loop), ask("a", max_tokens=20, mode=Mode.AR)))
        abandoned.run_until_complete(asyncio.sleep(0.01))
        gate.wait_for_forward()
        abandoned.close()
        gate.let(10_000)
        asyncio.run(until_idle(loop))
        chunks = asyncio.run(collect(EngineBackend(loop), ask("c", max_tokens=3)))
        assert chunks[-1].finish_reason is not FinishReason.ABORT
        assert not reader.done()
    del reader
    gc.collect()


def test_several_event_loops_share_an_engine(loaded: Loaded) -> None:
    requests = mixed_requests(loaded, 16)
    got: dict[str, list[int]] = {}

    async def some(backend: EngineBackend, mine: list[Request]) -> None:
        for request, chunks in zip(mine, await asyncio.gather(*(collect(backend, r) for r in mine)), strict=True):
            got[request.id] = ids_of(chunks)

    with engine(loaded, max_running=5) as loop:
        direct = answers(run(loop, requests))
        backend = EngineBackend(loop)
        threads = [threading.Thread(target=lambda i=i: asyncio.run(some(backend, requests[i::4]))) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)
    assert got == {name: ids for name, (ids, _) in direct.items()}


def test_a_storm_of_aborts_loses_nobody(loaded: Loaded) -> None:
    dice = random.Random(0)
    requests = mixed_requests(loaded, 50, longest=30, max_tokens=30)
    fates = [dice.choice(["read", "read", "close", "abort", "cancel"]) for _ in requests]
    delays = [dice.random() * 0.2 for _ in requests]

    async def live(backend: EngineBackend, request: Request, fate: str, delay: float) -> tuple[str, list[Chunk]]:
        chunks: list[Chunk] = []
        await asyncio.sleep(delay / 4)
        if fate == "close":
            stream = backend.generate(request)
            chunks.append(await anext(stream))
            await stream.aclose()
            return fate, chunks
        reader = asyncio.create_task(collect(backend, request))
        if fate == "read":
            return fate, await reader
        await asyncio.sleep(delay)
        if fate == "abort":
            await backend.abort(request.id)
            return fate, await reader
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
        return fate, chunks

    async def storm(loop: EngineLoop) -> list[tuple[str, list[Chunk]]]:
        backend = EngineBackend(loop)
        async with asyncio.timeout(WAIT_S):
            lives = [live(backend, *facts) for facts in zip(requests, fates, delays, strict=True)]
            ends = await asyncio.gather(*lives)
        await until_idle(loop)
        return ends

    with engine(loaded, max_running=6) as loop:
        direct = answers(run(loop, requests))
        ends = asyncio.run(storm(loop))
        assert loop._scheduler.everyone() == []
        assert loop._listeners == {}
        assert answers(run(loop, requests[:5])) == {r.id: direct[r.id] for r in requests[:5]}
    for request, (fate, chunks) in zip(requests, ends, strict=True):
        ids, reason = direct[request.id]
        if fate == "read":
            assert (ids_of(chunks), chunks[-1].finish_reason) == (ids, reason)
        else:
            assert ids[: len(ids_of(chunks))] == ids_of(chunks), "an aborted answer is a prefix of the whole"
