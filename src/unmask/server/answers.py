"""One chat request's answer: whole, or as server-sent events. Also the one place that decides how it ended."""

import hashlib
import json
import time
from collections.abc import AsyncIterator

from unmask.server.assembly import Aborted, Finished
from unmask.server.drafts import DraftShown, Extension
from unmask.server.errors import ApiError, as_api_error, timed_out
from unmask.server.generation import Failed, Generation, News
from unmask.server.metrics import Outcome, ServerMetrics, outcome_of
from unmask.server.prepare import PreparedChat
from unmask.server.replies import (
    ChatReply,
    ChoiceDelta,
    ChoiceReply,
    ChunkReply,
    DeltaReply,
    DenoisingUsage,
    FinishName,
    Function,
    MessageReply,
    PromptDetails,
    ToolCallReply,
    UsageReply,
)
from unmask.text.toolcalls import ContentDelta, ToolCall

_DONE = b"data: [DONE]\n\n"


class Answer:
    """Turns a generation into the bytes a client reads.

    Use `whole` or `start` and `events`, and `close` in any case.

    Args:
        prepared: the request.
        generation: its running choices.
        model_id: shown in the answer.
        metrics: counts the outcome.
        received_at: `time.perf_counter()` when the request came in.
    """

    def __init__(
        self,
        prepared: PreparedChat,
        generation: Generation,
        *,
        model_id: str,
        metrics: ServerMetrics,
        received_at: float,
    ) -> None:
        self._prepared = prepared
        self._generation = generation
        self._model_id = model_id
        self._metrics = metrics
        self._received_at = received_at
        self._created = int(time.time())
        self._news = generation.news()
        self._first: News | None = None
        self._counted = False
        self._num_calls = [0] * len(prepared.requests)

    async def whole(self) -> bytes:
        """Waits for all choices and returns the body of the answer.

        Raises:
            ApiError: a choice failed or met its deadline.
        """
        num_choices = len(self._prepared.requests)
        contents = ["" for _ in range(num_choices)]
        calls: list[list[ToolCallReply]] = [[] for _ in range(num_choices)]
        async for choice, piece in self._news:
            match piece:
                case ContentDelta():
                    contents[choice] += piece.text
                case ToolCall():
                    calls[choice].append(self._call(choice, piece))
                case Finished() | DraftShown():
                    pass
                case Aborted() | Failed():
                    raise self._fail(piece)
        choices = [
            _choice(index, contents[index], calls[index], self._generation.finished[index].reason)
            for index in range(num_choices)
        ]
        reply = ChatReply(
            id=self._prepared.id,
            object="chat.completion",
            created=self._created,
            model=self._model_id,
            choices=choices,
            usage=self._complete(),
        )
        return reply.to_bytes()

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
        for index in range(len(self._prepared.requests)):
            yield self._event(index, DeltaReply(role="assistant", content=""))
        async for choice, piece in self._all_news():
            match piece:
                case ContentDelta():
                    yield self._event(choice, DeltaReply(content=piece.text))
                case ToolCall():
                    yield self._event(choice, DeltaReply(tool_calls=[self._call(choice, piece)]))
                case DraftShown():
                    yield self._draft_event(choice, piece)
                case Finished():
                    yield self._event(choice, DeltaReply(), piece.reason)
                case Aborted() | Failed():
                    yield b"data: " + json.dumps(self._fail(piece).body).encode() + b"\n\n"
                    return
        usage = self._complete()
        if self._prepared.include_usage:
            yield self._chunk([], usage).to_event()
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
            # Choices share one prompt; what every one of them found in the cache was there before the request.
            prompt_tokens_details=PromptDetails(cached_tokens=min(choice.num_prefix_cached for choice in finished)),
            unmask=DenoisingUsage(num_forwards=num_forwards, tokens_per_forward=round(tokens_per_forward, 3)),
        )

    def _call(self, choice: int, call: ToolCall) -> ToolCallReply:
        """Gives a call its index and an id that follows from the answer's id."""
        index = self._num_calls[choice]
        self._num_calls[choice] += 1
        key = f"{self._prepared.id}/{choice}/{index}".encode()
        fields = ToolCallReply(
            id=f"call_{hashlib.blake2b(key, digest_size=12).hexdigest()}",
            type="function",
            function=Function(name=call.name, arguments=call.arguments),
        )
        return fields.model_copy(update={"index": index}) if self._prepared.stream else fields

    def _event(self, choice: int, delta: DeltaReply, reason: FinishName | None = None) -> bytes:
        return self._chunk([ChoiceDelta(index=choice, delta=delta, logprobs=None, finish_reason=reason)]).to_event()

    def _draft_event(self, choice: int, piece: DraftShown) -> bytes:
        """An empty delta, so that clients that know nothing of drafts pass it by."""
        empty = ChoiceDelta(index=choice, delta=DeltaReply(), logprobs=None, finish_reason=None)
        return self._chunk([empty]).model_copy(update={"unmask": Extension(draft=piece.draft)}).to_event()

    def _chunk(self, choices: list[ChoiceDelta], usage: UsageReply | None = None) -> ChunkReply:
        chunk = ChunkReply(
            id=self._prepared.id,
            object="chat.completion.chunk",
            created=self._created,
            model=self._model_id,
            choices=choices,
        )
        # With include_usage every chunk has the field, null until the last; without it none has.
        return chunk.model_copy(update={"usage": usage}) if self._prepared.include_usage else chunk


def _choice(index: int, content: str, calls: list[ToolCallReply], reason: FinishName) -> ChoiceReply:
    if calls:
        message = MessageReply(role="assistant", content=content or None, refusal=None, tool_calls=calls)
    else:
        message = MessageReply(role="assistant", content=content, refusal=None)
    return ChoiceReply(index=index, message=message, logprobs=None, finish_reason=reason)


def _given_up() -> ApiError:
    message = "the server gave the request up before it was complete (it may be stopping); try again"
    return ApiError(503, message, kind="server_error", code="aborted")
