"""POST /v1/chat/completions: how its answer is written."""

import hashlib
import time
from collections.abc import Sequence

from unmask.server.drafts import Draft, Extension
from unmask.server.endpoint import Surface
from unmask.server.prepare import PreparedChat, prepare
from unmask.server.replies import (
    ChatReply,
    ChoiceDelta,
    ChoiceReply,
    ChunkReply,
    DeltaReply,
    FinishName,
    Function,
    MessageReply,
    ToolCallReply,
    UsageReply,
)
from unmask.text.toolcalls import ToolCall


class ChatForm:
    """Writes one answer; see `answers.Form`."""

    def __init__(self, prepared: PreparedChat, model_id: str) -> None:
        self._prepared = prepared
        self._model_id = model_id
        self._created = int(time.time())
        self._num_calls = [0] * len(prepared.requests)

    def whole(
        self,
        contents: Sequence[str],
        calls: Sequence[Sequence[ToolCall]],
        reasons: Sequence[FinishName],
        usage: UsageReply,
    ) -> bytes:
        """The body of an answer that is not streamed."""
        choices = [
            _choice(index, contents[index], [self._call(index, call) for call in calls[index]], reason)
            for index, reason in enumerate(reasons)
        ]
        reply = ChatReply(
            id=self._prepared.id,
            object="chat.completion",
            created=self._created,
            model=self._model_id,
            choices=choices,
            usage=usage,
        )
        return reply.to_bytes()

    def opening(self) -> list[bytes]:
        """Each choice begins with its role."""
        return [self._event(i, DeltaReply(role="assistant", content="")) for i in range(len(self._num_calls))]

    def content(self, choice: int, text: str) -> bytes:
        """New text."""
        return self._event(choice, DeltaReply(content=text))

    def call(self, choice: int, call: ToolCall) -> bytes:
        """A whole call in one delta."""
        return self._event(choice, DeltaReply(tool_calls=[self._call(choice, call)]))

    def draft(self, choice: int, draft: Draft) -> bytes:
        """What is not final yet, beside an empty delta."""
        empty = ChoiceDelta(index=choice, delta=DeltaReply(), logprobs=None, finish_reason=None)
        return self._chunk([empty]).model_copy(update={"unmask": Extension(draft=draft)}).to_event()

    def end(self, choice: int, reason: FinishName) -> bytes:
        """The choice's last event."""
        return self._event(choice, DeltaReply(), reason)

    def counts(self, usage: UsageReply) -> bytes:
        """The token counts as an event."""
        return self._chunk([], usage).to_event()

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


CHAT = Surface(path="/v1/chat/completions", id_prefix="chatcmpl-", prepare=prepare, form=ChatForm)
