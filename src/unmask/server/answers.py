"""One request's answer: whole, or as server-sent events. Also the one place that decides how it ended."""

import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from unmask.server.assembly import Aborted, Finished
from unmask.server.drafts import Draft, DraftShown
from unmask.server.errors import ApiError, as_api_error, timed_out
from unmask.server.generation import Failed, Generation, News
from unmask.server.metrics import Outcome, ServerMetrics, outcome_of
from unmask.server.prepare import PreparedChat
from unmask.server.replies import DenoisingUsage, FinishName, PromptDetails, UsageReply
from unmask.text.toolcalls import ContentDelta, ToolCall

_DONE = b"data: [DONE]\n\n"


class Form(Protocol):
    """How one endpoint writes an answer; events are whole server-sent events."""

    def whole(
        self,
        contents: Sequence[str],
        calls: Sequence[Sequence[ToolCall]],
        reasons: Sequence[FinishName],
        usage: UsageReply,
    ) -> bytes:
        """The body of an answer that is not streamed; one text, its calls and one finish reason per choice."""
        ...

    def opening(self) -> list[bytes]:
        """Events before the first piece."""
        ...

    def content(self, choice: int, text: str) -> bytes:
        """The event of new text."""
        ...

    def call(self, choice: int, call: ToolCall) -> bytes:
        """The event of a whole call."""
        ...

    def draft(self, choice: int, draft: Draft) -> bytes:
        """The event of what is not final yet: no text of its own, so that clients that know no drafts pass it by."""
        ...

    def end(self, choice: int, reason: FinishName) -> bytes:
        """The event of a complete choice."""
        ...

    def counts(self, usage: UsageReply) -> bytes:
        """The event of the token counts."""
        ...


class Answer:
    """Turns a generation into the bytes a client reads.

    Use `whole` or `start` and `events`, and `close` in any case.

    Args:
        prepared: the request.
        generation: its running choices.
        form: how the endpoint writes it.
        metrics: counts the outcome.
        received_at: `time.perf_counter()` when the request came in.
    """

    def __init__(
        self,
        prepared: PreparedChat,
        generation: Generation,
        *,
        form: Form,
        metrics: ServerMetrics,
        received_at: float,
    ) -> None:
        self._prepared = prepared
        self._generation = generation
        self._form = form
        self._metrics = metrics
        self._received_at = received_at
        self._news = generation.news()
        self._first: News | None = None
        self._counted = False

    async def whole(self) -> bytes:
        """Waits for all choices and returns the body of the answer.

        Raises:
            ApiError: a choice failed or met its deadline.
        """
        num_choices = len(self._prepared.requests)
        contents = ["" for _ in range(num_choices)]
        calls: list[list[ToolCall]] = [[] for _ in range(num_choices)]
        async for choice, piece in self._news:
            match piece:
                case ContentDelta():
                    contents[choice] += piece.text
                case ToolCall():
                    calls[choice].append(piece)
                case Finished() | DraftShown():
                    pass
                case Aborted() | Failed():
                    raise self._fail(piece)
        reasons: list[FinishName] = [self._generation.finished[index].reason for index in range(num_choices)]
        return self._form.whole(contents, calls, reasons, self._complete())

    async def start(self) -> None:
        """Waits for the first piece, so that what fails before it becomes a status and not an event.

        Raises:
            ApiError: a choice was refused, failed or met its deadline.
        """
        self._first = await anext(self._news)
        if isinstance(piece := self._first[1], Aborted | Failed):
            raise self._fail(piece)

    async def events(self) -> AsyncIterator[bytes]:
        """Yields server-sent events; a failure becomes the last one."""
        for event in self._form.opening():
            yield event
        async for choice, piece in self._all_news():
            match piece:
                case ContentDelta():
                    yield self._form.content(choice, piece.text)
                case ToolCall():
                    yield self._form.call(choice, piece)
                case DraftShown():
                    yield self._form.draft(choice, piece.draft)
                case Finished():
                    yield self._form.end(choice, piece.reason)
                case Aborted() | Failed():
                    yield b"data: " + json.dumps(self._fail(piece).body).encode() + b"\n\n"
                    return
        usage = self._complete()
        if self._prepared.include_usage:
            yield self._form.counts(usage)
        yield _DONE

    def close(self) -> None:
        """Frees what still runs. An answer that has come to no end by now has lost its client."""
        self._generation.close()
        if not self._counted:
            self._counted = True
            self._metrics.count(Outcome.DISCONNECTED)

    async def _all_news(self) -> AsyncIterator[News]:
        """The piece `start` waited for, then the others."""
        if self._first is not None:
            yield self._first
        async for news in self._news:
            yield news

    def _fail(self, piece: Aborted | Failed) -> ApiError:
        """Counts the failure and returns it as the client will read it."""
        if isinstance(piece, Failed):
            error = as_api_error(piece.error)
        else:
            timeout_s = self._prepared.requests[0].timeout_s
            late = timeout_s is not None and time.perf_counter() - self._received_at >= timeout_s
            error = timed_out(timeout_s) if late and timeout_s is not None else _given_up()
        error.headers["x-request-id"] = self._prepared.id
        self._counted = True
        self._metrics.count(outcome_of(error))
        self._generation.close()
        return error

    def _complete(self) -> UsageReply:
        """Counts the success and returns the token counts."""
        finished = self._generation.finished.values()
        num_tokens = sum(choice.num_tokens for choice in finished)
        num_forwards = sum(choice.num_forwards for choice in finished)
        tokens_per_forward = num_tokens / num_forwards if num_forwards else 0.0
        first_token_at = self._generation.first_token_at
        self._counted = True
        self._metrics.observe(
            latency_s=time.perf_counter() - self._received_at,
            first_token_s=None if first_token_at is None else first_token_at - self._received_at,
            tokens_per_forward=tokens_per_forward,
        )
        return UsageReply(
            prompt_tokens=self._prepared.prompt_length,
            completion_tokens=num_tokens,
            total_tokens=self._prepared.prompt_length + num_tokens,
            prompt_tokens_details=PromptDetails(cached_tokens=self._num_cached()),
            unmask=DenoisingUsage(num_forwards=num_forwards, tokens_per_forward=round(tokens_per_forward, 3)),
        )

    def _num_cached(self) -> int:
        """Choices of one prompt share it: what every one of them found in the cache was there before the request."""
        found, group = self._generation.finished, self._prepared.num_choices
        firsts = range(0, len(self._prepared.requests), group)
        return sum(min(found[i].num_prefix_cached for i in range(first, first + group)) for first in firsts)


def _given_up() -> ApiError:
    message = "the server gave the request up before it was complete (it may be stopping); try again"
    return ApiError(503, message, kind="server_error", code="aborted")
