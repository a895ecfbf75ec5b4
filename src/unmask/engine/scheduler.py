"""Who runs in the next forward. Plain bookkeeping: no threads, no torch, no clock of its own."""

from collections import deque
from collections.abc import Iterable

from unmask.core.errors import CapacityError
from unmask.engine.sequence import Running


class Scheduler:
    """Continuous batching: sequences join and leave between forwards, first come first served.

    A sequence is admitted when a slot and enough cached positions are free; whoever is admitted runs in every
    forward until it ends, so nobody starves. Prompt rows are rationed: prompts still being prefilled share
    `max_prefill_rows` per forward in order of arrival, so a long prompt delays running answers only a little.

    Args:
        max_running, max_waiting, max_cached_tokens, max_prefill_rows: see `EngineSettings`.
    """

    def __init__(self, *, max_running: int, max_waiting: int, max_cached_tokens: int, max_prefill_rows: int) -> None:
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._max_cached_tokens = max_cached_tokens
        self._max_prefill_rows = max_prefill_rows
        self.waiting: deque[Running] = deque()
        self.running: list[Running] = []

    def add(self, sequence: Running) -> None:
        """Queues a sequence.

        Raises:
            CapacityError: the queue is full.
        """
        free = max(self._max_running - len(self.running), 0)
        if len(self.waiting) >= self._max_waiting + free:
            raise CapacityError(f"the queue is full ({self._max_waiting} requests are waiting); try again later")
        self.waiting.append(sequence)

    def next_batch(self) -> list[tuple[Running, int]]:
        """Admits what fits and returns who runs now, each with the most prompt rows it may feed."""
        used = sum(sequence.num_reserved for sequence in self.running)
        while self.waiting and len(self.running) < self._max_running:
            if used + self.waiting[0].num_reserved > self._max_cached_tokens:
                break
            used += self.waiting[0].num_reserved
            self.running.append(self.waiting.popleft())
        batch: list[tuple[Running, int]] = []
        budget = self._max_prefill_rows
        for sequence in self.running:
            if not sequence.is_prefilling:
                batch.append((sequence, sequence.num_pending))
            elif budget > 0:
                rows = min(sequence.num_pending, budget)
                batch.append((sequence, rows))
                budget -= rows
        return batch

    def remove(self, leaving: Iterable[Running]) -> None:
        """Frees the slots of sequences that ended or were aborted, running or waiting."""
        gone = {id(sequence) for sequence in leaving}
        self.running = [sequence for sequence in self.running if id(sequence) not in gone]
        if any(id(sequence) in gone for sequence in self.waiting):
            self.waiting = deque(sequence for sequence in self.waiting if id(sequence) not in gone)

    def everyone(self) -> list[Running]:
        """All sequences, running first."""
        return [*self.running, *self.waiting]
