"""The engine as a `core.request.Backend`: an async face on the loop's thread."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from unmask.core.errors import UnmaskError
from unmask.core.request import BackendStats, Chunk, Request
from unmask.engine.loop import EngineLoop


class EngineBackend:
    """Serves requests from any asyncio loop of the process; the model runs on the engine's own thread.

    Args:
        loop: the engine loop; closed by its owner, not by this class.
    """

    def __init__(self, loop: EngineLoop) -> None:
        self._loop = loop

    async def generate(self, request: Request) -> AsyncIterator[Chunk]:
        """See `Backend.generate`."""
        events = asyncio.get_running_loop()
        news: asyncio.Queue[Chunk | UnmaskError] = asyncio.Queue()

        def listen(item: Chunk | UnmaskError) -> None:
            with contextlib.suppress(RuntimeError):  # the caller's loop was closed: nobody is left to tell
                events.call_soon_threadsafe(news.put_nowait, item)

        self._loop.submit(request, listen)
        finished = False
        try:
            while not finished:
                item = await news.get()
                finished = isinstance(item, UnmaskError) or item.finish_reason is not None
                if isinstance(item, UnmaskError):
                    raise item
                yield item
        finally:
            if not finished:
                self._loop.abort(request.id)

    async def abort(self, request_id: str) -> None:
        """See `Backend.abort`."""
        self._loop.abort(request_id)

    def stats(self) -> BackendStats:
        """See `Backend.stats`."""
        return self._loop.stats()
