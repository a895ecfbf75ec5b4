"""Tiny real implementations of our own seams, for tests. No mocks."""

import asyncio
import itertools
import re
import time
from collections.abc import AsyncIterator, Callable, Sequence

from unmask.core.errors import CapacityError, EngineError
from unmask.core.request import BackendStats, Chunk, FinishReason, Request

SPECIALS = ("<|im_start|>", "<|im_end|>")

# ChatML with tools as JSON lines and calls as the model writes them.
CHAT_TEMPLATE = """\
{%- if tools %}<|im_start|>tools
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] %}
<tool_call>{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments }}}</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


class ByteTokenizer:
    """One id per byte, then the special tokens: the smallest tokenizer that can split UTF-8 anywhere."""

    vocab_size = 256 + len(SPECIALS)
    special_ids = frozenset(range(256, 256 + len(SPECIALS)))
    eos_ids = frozenset({257})

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for piece in re.split(f"({'|'.join(map(re.escape, SPECIALS))})", text):
            ids.extend([256 + SPECIALS.index(piece)] if piece in SPECIALS else piece.encode())
        return ids

    special_spellings = SPECIALS

    def encode_text(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(self.token_bytes(i) for i in ids).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b""


class FakeBackend:
    """A Backend that plays scripted answers in bursts; one burst is one forward.

    Args:
        script: request -> answer ids; a text stands for its UTF-8 bytes. Where the answer ends, an EOS would stand.
        bursts: sizes of the bursts, over and over.
        delay_s: seconds a forward takes.
        capacity: most live requests.
        fails_after: number of forwards after which a request fails; None never.
        num_prefix_cached: prompt tokens said to come from the cache.
    """

    def __init__(
        self,
        script: str | Callable[[Request], str],
        *,
        bursts: Sequence[int] = (4,),
        delay_s: float = 0.0,
        capacity: int | None = None,
        fails_after: int | None = None,
        num_prefix_cached: int = 0,
    ) -> None:
        self._script = script
        self._bursts = tuple(bursts)
        self._delay_s = delay_s
        self._capacity = capacity
        self._fails_after = fails_after
        self._num_prefix_cached = num_prefix_cached
        self._aborted: set[str] = set()
        self._num_forwards = 0
        self._num_tokens = 0
        self.dead = False
        self.live: set[str] = set()
        self.requests: list[Request] = []
        self.completed: list[str] = []

    async def generate(self, request: Request) -> AsyncIterator[Chunk]:
        if self.dead:
            raise EngineError("the engine has died")
        if self._capacity is not None and len(self.live) >= self._capacity:
            raise CapacityError("the queue is full")
        self.requests.append(request)
        self.live.add(request.id)
        try:
            async for chunk in self._play(request):
                yield chunk
            self.completed.append(request.id)
        finally:
            self.live.discard(request.id)
            self._aborted.discard(request.id)

    async def _play(self, request: Request) -> AsyncIterator[Chunk]:
        script = self._script if isinstance(self._script, str) else self._script(request)
        answer = list(script.encode())
        reason = FinishReason.STOP if len(answer) < request.params.max_tokens else FinishReason.LENGTH
        answer = answer[: request.params.max_tokens]
        started, at = time.monotonic(), 0
        for num_forwards, burst in enumerate(itertools.cycle(self._bursts), 1):
            await asyncio.sleep(self._delay_s)
            late = request.timeout_s is not None and time.monotonic() - started >= request.timeout_s
            if request.id in self._aborted or late:
                yield Chunk(num_forwards=num_forwards - 1, finish_reason=FinishReason.ABORT)
                return
            if self._fails_after is not None and num_forwards > self._fails_after:
                raise EngineError("the engine broke")
            ids = tuple(answer[at : at + burst])
            at += burst
            self._num_forwards += 1
            self._num_tokens += len(ids)
            yield Chunk(
                token_ids=ids,
                draft_ids=(-1,) * min(burst, max(len(answer) - at, 0)) if request.drafts else (),
                num_forwards=num_forwards,
                num_prefix_cached=self._num_prefix_cached,
                finish_reason=reason if at >= len(answer) else None,
            )
            if at >= len(answer):
                return

    async def abort(self, request_id: str) -> None:
        if request_id in self.live:
            self._aborted.add(request_id)

    def stats(self) -> BackendStats:
        if self.dead:
            raise EngineError("the engine has died")
        return BackendStats(
            num_running=len(self.live),
            num_waiting=0,
            num_forwards=self._num_forwards,
            num_sequence_forwards=self._num_forwards,
            num_tokens=self._num_tokens,
        )
