"""Keys and values of ended sequences, lent to later prompts that begin alike.

An agent sends the same system prompt and tools with every call, and each turn repeats the conversation so far. A stored
slot holds what any forward over the same tokens would compute, bit for bit (see `block_causal`), so reuse changes no
output; it only saves forwards over the prompt. Fixed-canvas models store nothing and lend nothing.
"""

from dataclasses import dataclass

import numpy as np

from unmask.cache.block_causal import BlockCausalCache
from unmask.core.canvas import IntArray

# Shape legend: P tokens of a prompt, S stored tokens of an entry.


@dataclass(frozen=True, kw_only=True, eq=False)
class _Entry:
    """One ended sequence."""

    ids_S: IntArray
    cache: BlockCausalCache

    @property
    def num_slots(self) -> int:
        """Slots its buffers hold, used or not."""
        return self.cache.capacity


class PrefixPool:
    """The most recently used caches of ended sequences. Not thread-safe; owned by the engine loop.

    Args:
        max_tokens: slots kept, all together; 0 keeps nothing. The least recently used go first.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._entries: list[_Entry] = []  # least recently used first

    def keep(self, ids_S: IntArray, cache: BlockCausalCache) -> None:
        """Takes over the cache of a sequence that ended.

        Args:
            ids_S: the tokens of its stored slots, `cache.stored` of them.
            cache: not used by anyone else from now on.
        """
        entry = _Entry(ids_S=ids_S.copy(), cache=cache.fork(cache.stored))
        if not cache.stored or entry.num_slots > self._max_tokens:
            return
        covered = [one for one in self._entries if _common(one.ids_S, ids_S) == one.ids_S.shape[0]]
        self._entries = [one for one in self._entries if one not in covered] + [entry]
        while sum(one.num_slots for one in self._entries) > self._max_tokens:
            self._entries.pop(0)

    def lend(self, prompt_P: IntArray, cache: BlockCausalCache) -> int:
        """Fills an empty cache with the longest beginning that `prompt_P` shares with an entry.

        Returns:
            How many slots it now holds: a multiple of the model's alignment, 0 if there is nothing to share.
        """
        if not self._entries:
            return 0
        shared = [_common(entry.ids_S, prompt_P) for entry in self._entries]
        best = int(np.argmax(shared))
        length = shared[best] // cache.shape.align * cache.shape.align
        if not length:
            return 0
        entry = self._entries.pop(best)
        self._entries.append(entry)
        cache.adopt(entry.cache.fork(length))
        return length


def _common(first: IntArray, second: IntArray) -> int:
    """Length of the common beginning."""
    length = min(first.shape[0], second.shape[0])
    differs = first[:length] != second[:length]
    return int(differs.argmax()) if differs.any() else length
