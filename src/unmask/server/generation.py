"""Running the choices of one request side by side, with nothing left behind whatever happens."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from unmask.core.errors import EngineError
from unmask.core.request import Backend, Request
from unmask.server.assembly import ChoiceAssembler, Finished, Piece
from unmask.server.prepare import PreparedChat, ServedModel


@dataclass(frozen=True, kw_only=True)
class Failed:
    """The choice came to nothing."""

    error: BaseException


News = tuple[int, Piece | Failed]


class Generation:
    """The pieces of all choices of one request, in the order in which they come.

    One task per choice pulls chunks from the backend. A task that ends early (stop string, client gone, another choice
    failed) frees its slot in the backend itself, so `close` needs no await and works while everything is cancelled.

    Attributes:
        first_token_at: `time.perf_counter()` at the first final token of any choice.
        finished: counts of the choices that are complete, by choice index.
    """

    def __init__(self) -> None:
        self.first_token_at: float | None = None
        self.finished: dict[int, Finished] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._news: asyncio.Queue[News | None] = asyncio.Queue()

    async def news(self) -> AsyncIterator[News]:
        """Yields (choice index, piece) until every choice is complete."""
        num_running = len(self._tasks)
        while num_running or not self._news.empty():
            news = await self._news.get()
            if news is None:
                num_running -= 1
                continue
            choice, piece = news
            if isinstance(piece, Finished):
                self.finished[choice] = piece
            yield news

    def close(self) -> None:
        """Stops whatever still runs; harmless when nothing does."""
        for task in self._tasks:
            task.cancel()

    def start_choice(self, backend: Backend, request: Request, assembler: ChoiceAssembler) -> asyncio.Task[None]:
        """Starts one choice."""
        task = asyncio.create_task(self._pull(backend, request, assembler), name=f"choice {request.id}")
        self._tasks.append(task)
        task.add_done_callback(lambda done: self._end_choice(request.choice, done))
        return task

    async def _pull(self, backend: Backend, request: Request, assembler: ChoiceAssembler) -> None:
        chunks = backend.generate(request)
        ended = False
        try:
            async for chunk in chunks:
                if chunk.token_ids and self.first_token_at is None:
                    self.first_token_at = time.perf_counter()
                ended = chunk.finish_reason is not None
                for piece in assembler.push(chunk):
                    self._news.put_nowait((request.choice, piece))
                if assembler.done and not ended:
                    return
            if not ended:
                raise EngineError("the engine ended an answer without saying why")
        finally:
            if not ended:
                await backend.abort(request.id)
            if isinstance(chunks, AsyncGenerator):
                await chunks.aclose()

    def _end_choice(self, choice: int, task: asyncio.Task[None]) -> None:
        """Hands a failure on as a value: the consumer decides whether it becomes a status or an event."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._news.put_nowait((choice, Failed(error=error)))
        self._news.put_nowait(None)


class Dispatcher:
    """Starts generations and keeps their tasks alive until each has freed its slot."""

    def __init__(self, backend: Backend, served: ServedModel) -> None:
        self._backend = backend
        self._served = served
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, prepared: PreparedChat) -> Generation:
        """Starts all choices; the caller closes the generation."""
        generation = Generation()
        for request in prepared.requests:
            task = generation.start_choice(self._backend, request, ChoiceAssembler(prepared, self._served))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return generation
