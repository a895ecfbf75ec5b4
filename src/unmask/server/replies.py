"""The chat completions answer as it goes over the wire, whole and in chunks.

Written with `exclude_unset`: a field that was given appears, null included; a field left out does not. That is how
OpenAI's own answers differ between "content": null and no content at all.
"""

from typing import Literal

from pydantic import BaseModel

from unmask.server.drafts import Extension

FinishName = Literal["stop", "length", "tool_calls"]


class Function(BaseModel):
    """Name and arguments (a JSON text) of a call."""

    name: str
    arguments: str


class ToolCallReply(BaseModel):
    """One whole call; `index` only in chunks."""

    index: int = 0
    id: str
    type: Literal["function"]
    function: Function


class MessageReply(BaseModel):
    """The whole answer of one choice."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: list[ToolCallReply] = []


class ChoiceReply(BaseModel):
    """One choice."""

    index: int
    message: MessageReply
    logprobs: None
    finish_reason: FinishName


class PromptDetails(BaseModel):
    """Where the prompt's tokens came from."""

    cached_tokens: int


class DenoisingUsage(BaseModel):
    """unmask's extension: model forwards that all choices took part in, and final tokens per forward."""

    num_forwards: int
    tokens_per_forward: float


class UsageReply(BaseModel):
    """Token counts over all choices; the prompt counts once, end-of-sequence tokens do not count."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    unmask: DenoisingUsage


class ChatReply(BaseModel):
    """The answer to a request without `stream`."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChoiceReply]
    usage: UsageReply

    def to_bytes(self) -> bytes:
        """The HTTP body."""
        return self.model_dump_json(exclude_unset=True).encode()


class DeltaReply(BaseModel):
    """What one chunk adds to a choice."""

    role: Literal["assistant"] = "assistant"
    content: str = ""
    tool_calls: list[ToolCallReply] = []


class ChoiceDelta(BaseModel):
    """One choice of a chunk."""

    index: int
    delta: DeltaReply
    logprobs: None
    finish_reason: FinishName | None


class ChunkReply(BaseModel):
    """One server-sent event of a streamed answer."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChoiceDelta]
    usage: UsageReply | None = None
    unmask: Extension | None = None

    def to_event(self) -> bytes:
        """The event's bytes."""
        return b"data: " + self.model_dump_json(exclude_unset=True).encode() + b"\n\n"


class ModelCard(BaseModel):
    """A served model; `context_length` is unmask's extension."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    context_length: int


class ModelList(BaseModel):
    """All served models."""

    object: Literal["list"]
    data: list[ModelCard]
