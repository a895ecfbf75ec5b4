"""The engine loop: one thread owns the model and all sequences; callers use a lock and callbacks."""

import logging
import threading
import time
from collections.abc import Callable

import torch

from unmask.cache.prefix import PrefixPool
from unmask.core.errors import CapacityError, EngineError, RequestError, UnmaskError
from unmask.core.request import BackendStats, Chunk, FinishReason, Request
from unmask.engine.rule_table import make_rule
from unmask.engine.runner import denoise
from unmask.engine.scheduler import Scheduler
from unmask.engine.sequence import Running
from unmask.engine.settings import EngineSettings, admit, cache_shape, resolve
from unmask.engine.speculative import DraftModel
from unmask.models.loading import Loaded

Listener = Callable[[Chunk | UnmaskError], None]
"""Called from the loop's thread, under its lock, with each chunk or once with an error. It must return at once and not
call the loop back; what it raises ends its own request only."""

_log = logging.getLogger(__name__)


class EngineLoop:
    """Continuous batching on one thread.

    Args:
        loaded: the model with its traits.
        settings: limits and defaults; resolved here.
        draft: a smaller model that drafts for requests in AR mode, or None.

    Raises:
        ConfigError: the settings or the draft model do not fit the model.
    """

    def __init__(self, loaded: Loaded, settings: EngineSettings, draft: Loaded | None = None) -> None:
        self._model = loaded.model
        self.traits = loaded.traits
        self.settings = resolve(settings, loaded.traits)
        self._shape = cache_shape(loaded.config, loaded.traits)
        self._draft = None if draft is None else DraftModel(draft, self.traits, self.settings)
        self._scheduler = Scheduler(
            max_running=settings.max_running,
            max_waiting=settings.max_waiting,
            max_cached_tokens=settings.max_cached_tokens,
            max_prefill_rows=settings.max_prefill_rows,
        )
        # a draft model keeps step with its target from the first token, so nothing is skipped where there is one
        self._prefixes = PrefixPool(0 if draft is not None else settings.max_prefix_tokens)
        self._listeners: dict[str, tuple[Running, Listener]] = {}
        self._aborted: set[str] = set()
        self._changed = threading.Condition()
        self._closing = False
        self._num_forwards = self._num_sequence_forwards = self._num_tokens = 0
        self._thread = threading.Thread(target=self._run, name="unmask-engine", daemon=True)
        self._thread.start()

    def submit(self, request: Request, listener: Listener) -> None:
        """Checks and queues a request.

        Raises:
            RequestError, CapacityError, EngineError: see `Backend.generate`.
        """
        params = admit(request, self.settings, self.traits)
        rule = make_rule(params, self.traits, request.constraint)
        sequence = Running.start(request, params, rule, self._shape, self.traits.eos_ids)
        if self._draft is not None:
            self._draft.join(sequence)
        with self._changed:
            if self._closing:
                raise CapacityError("the engine is stopping; try another instance")
            if not self._thread.is_alive():
                raise EngineError("the engine thread has died; restart the server")
            if request.id in self._listeners:
                raise RequestError(f"request id {request.id!r} is in use", param="id")
            self._scheduler.add(sequence)
            self._listeners[request.id] = (sequence, listener)
            self._changed.notify()

    def abort(self, request_id: str) -> None:
        """Frees the request's slot before the next forward; its listener gets finish reason "abort"."""
        with self._changed:
            if request_id in self._listeners:
                self._aborted.add(request_id)
                self._changed.notify()

    def stats(self) -> BackendStats:
        """Counters.

        Raises:
            EngineError: the loop's thread is dead.
        """
        if not self._thread.is_alive() and not self._closing:
            raise EngineError("the engine thread has died; restart the server")
        with self._changed:
            return BackendStats(
                num_running=len(self._scheduler.running),
                num_waiting=len(self._scheduler.waiting),
                num_forwards=self._num_forwards,
                num_sequence_forwards=self._num_sequence_forwards,
                num_tokens=self._num_tokens,
            )

    def close(self) -> None:
        """Aborts everything and ends the thread; safe to call twice."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        if self.settings.threads is not None:
            torch.set_num_threads(self.settings.threads)
        while True:
            with self._changed:
                while not self._closing and not self._aborted and not self._scheduler.everyone():
                    self._changed.wait()
                self._drop_aborted()
                if self._closing:
                    for sequence in self._scheduler.everyone():
                        self._end([sequence], _abort_chunk(sequence))
                    return
                batch = self._scheduler.next_batch()
            if batch:
                self._forward(batch)

    def _drop_aborted(self) -> None:
        """Ends sequences that callers or deadlines gave up. Holds the lock."""
        now = time.monotonic()
        for sequence in self._scheduler.everyone():
            late = sequence.deadline is not None and now >= sequence.deadline
            if late or sequence.request.id in self._aborted:
                self._end([sequence], _abort_chunk(sequence))
        self._aborted.clear()

    def _forward(self, batch: list[tuple[Running, int]]) -> None:
        """One denoising step of the batch and its news to the listeners."""
        sequences = [sequence for sequence, _ in batch]
        error = _attempt(lambda: self._advance(batch))
        if error is not None:
            _log.error("a forward failed; its %d sequences are ended", len(batch), exc_info=error)
            with self._changed:
                self._end(sequences, EngineError(f"the engine failed during a forward: {error}"))
            return
        with self._changed:
            self._num_forwards += 1
            self._num_sequence_forwards += len(batch)
            for sequence in sequences:
                chunk = sequence.take_chunk()
                if chunk is None:
                    continue
                self._num_tokens += len(chunk.token_ids)
                if chunk.finish_reason is None:
                    self._tell(sequence, self._listeners[sequence.request.id][1], chunk)
                else:
                    self._end([sequence], chunk)

    def _advance(self, batch: list[tuple[Running, int]]) -> None:
        """The model's forward, after the draft model's if there is one."""
        for sequence, _ in batch:
            if not sequence.num_forwards:
                prompt = sequence.canvas.ids_L[: sequence.canvas.prompt_length]
                sequence.num_prefix_cached = self._prefixes.lend(prompt, sequence.cache)
        if self._draft is not None:
            batch = self._draft.propose(batch)
        denoise(self._model, batch)

    def _end(self, sequences: list[Running], news: Chunk | UnmaskError) -> None:
        """Removes sequences and sends each its last news. Holds the lock."""
        self._scheduler.remove(sequences)
        for sequence in sequences:
            if not isinstance(news, UnmaskError):
                self._prefixes.keep(sequence.canvas.ids_L[: sequence.cache.stored], sequence.cache)
            _, listener = self._listeners.pop(sequence.request.id)
            self._aborted.discard(sequence.request.id)
            self._tell(sequence, listener, news)

    def _tell(self, sequence: Running, listener: Listener, news: Chunk | UnmaskError) -> None:
        """Calls a listener; one that raises gives up its request. Holds the lock."""
        error = _attempt(lambda: listener(news))
        if error is not None:
            _log.error("the listener of %s failed; the request is aborted", sequence.request.id, exc_info=error)
            if sequence.request.id in self._listeners:
                self._aborted.add(sequence.request.id)


def _attempt(action: Callable[[], None]) -> Exception | None:
    """Runs what may fail for any reason without taking the loop along; returns what it raised."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 - the loop must outlive a forward and a listener
        return error
    return None


def _abort_chunk(sequence: Running) -> Chunk:
    return Chunk(
        num_forwards=sequence.num_forwards,
        num_draft_forwards=sequence.num_draft_forwards,
        finish_reason=FinishReason.ABORT,
    )
