"""POST /v1/completions: raw prompts, OpenAI's legacy shape."""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, cast

from pydantic import BaseModel, Field

from unmask.core.errors import RequestError
from unmask.core.request import Request
from unmask.server.body import parse_object
from unmask.server.drafts import Draft, Extension
from unmask.server.endpoint import Surface
from unmask.server.prepare import (
    PreparedChat,
    ServedModel,
    check_model,
    check_size,
    checked_choices,
    fitted,
    sampling_params,
    seed_of,
)
from unmask.server.replies import FinishName, UsageReply
from unmask.server.wire import Refused, SampledRequest, parse_as
from unmask.text.toolcalls import ToolCall

MAX_SEQUENCES = 32
"""Most choices of all prompts of one request together."""

REFUSED: Refused = {
    "best_of": ((1,), "ask for 'n' choices"),
    "echo": ((False,), "put the prompt before the answer yourself"),
    "frequency_penalty": ((0,), "leave it out"),
    "logit_bias": (({},), "leave it out"),
    "logprobs": ((), "leave it out"),
    "presence_penalty": ((0,), "leave it out"),
    "suffix": (("",), "text is only continued, not filled in"),
}


class CompletionRequest(SampledRequest):
    """Body of POST /v1/completions. Special tokens spelled in a text prompt are special: it is the raw prompt."""

    prompt: str | Annotated[list[str] | list[int] | list[list[int]], Field(min_length=1)]


class TextChoice(BaseModel):
    """One choice, whole or a piece."""

    index: int
    text: str
    logprobs: None
    finish_reason: FinishName | None


class TextReply(BaseModel):
    """The answer, whole or one event; fields left unset are not written."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: UsageReply | None = None
    unmask: Extension | None = None


def prepare_completion(raw: bytes, served: ServedModel, completion_id: str) -> PreparedChat:
    """Parses, checks and tokenises one request; see `prepare.prepare`.

    Raises:
        RequestError: names the field that is wrong or not supported.
        ApiError: 404 for another model.
    """
    wire = parse_as(CompletionRequest, _named_prompt(parse_object(raw)), REFUSED)
    settings = served.settings
    check_model(wire.model, settings)
    num_choices = checked_choices(wire, settings)
    params = sampling_params(wire, settings, seed=seed_of(wire, completion_id))
    prompts = _prompts(wire, served, num_choices)
    include_drafts = bool(wire.stream_options and wire.stream_options.include_drafts)
    requests = tuple(
        Request(
            id=f"{completion_id}-{index * num_choices + choice}",
            prompt_ids=prompt_ids,
            params=fitted(params, wire, len(prompt_ids), settings, "prompt"),
            choice=index * num_choices + choice,
            timeout_s=settings.request_timeout_s,
            drafts=include_drafts,
        )
        for index, prompt_ids in enumerate(prompts)
        for choice in range(num_choices)
    )
    return PreparedChat(
        id=completion_id,
        requests=requests,
        stops=tuple(wire.stop or ()),
        parse_tools=False,
        single_call=False,
        stream=bool(wire.stream),
        include_usage=bool(wire.stream_options and wire.stream_options.include_usage),
        include_drafts=include_drafts,
        num_prompts=len(prompts),
    )


def _named_prompt(body: Mapping[str, object]) -> Mapping[str, object]:
    """Refuses a prompt of the wrong kind in one line, before a union of types complains about each of them."""
    prompt = body.get("prompt")
    if prompt is not None and not _is_prompt(prompt):
        reason = "must be a text, a list of token ids, or a list of either; and not empty"
        raise RequestError(f"prompt: {reason}", param="prompt", code="invalid_value")
    return {name: value for name, value in body.items() if name != "prompt" or value is not None}


def _is_prompt(value: object) -> bool:
    if isinstance(value, str):
        return True
    if not isinstance(value, list) or not value:
        return False
    items = cast("list[object]", value)
    return all(isinstance(item, str) for item in items) or _are_ids(items) or all(_are_ids(item) for item in items)


def _are_ids(value: object) -> bool:
    """Whether it is a list of integers; a bool is none."""
    return isinstance(value, list) and all(type(i) is int for i in cast("list[object]", value))


def _prompts(wire: CompletionRequest, served: ServedModel, num_choices: int) -> list[tuple[int, ...]]:
    """Token ids of each prompt."""
    items = [wire.prompt] if isinstance(wire.prompt, str) or isinstance(wire.prompt[0], int) else wire.prompt
    if len(items) * num_choices > MAX_SEQUENCES:
        reason = f"{len(items)} prompts of {num_choices} choices are more than {MAX_SEQUENCES} answers; send fewer"
        raise RequestError(f"prompt: {reason}", param="prompt", code="invalid_value")
    prompts: list[tuple[int, ...]] = []
    for item in items:
        if isinstance(item, str):
            check_size(len(item), served.settings, "prompt")
            prompts.append(tuple(served.tokenizer.encode(item)))
            continue
        ids = tuple(i for i in ([item] if isinstance(item, int) else item) if isinstance(i, int))
        if any(not 0 <= i < served.tokenizer.vocab_size for i in ids):
            reason = f"holds an id outside the vocabulary of {served.tokenizer.vocab_size}"
            raise RequestError(f"prompt: {reason}", param="prompt", code="invalid_value")
        prompts.append(ids)
    return prompts


class CompletionForm:
    """Writes one answer; see `answers.Form`."""

    def __init__(self, prepared: PreparedChat, model_id: str) -> None:
        self._prepared = prepared
        self._model_id = model_id
        self._created = int(time.time())

    def whole(
        self,
        contents: Sequence[str],
        calls: Sequence[Sequence[ToolCall]],
        reasons: Sequence[FinishName],
        usage: UsageReply,
    ) -> bytes:
        """The body of an answer that is not streamed."""
        assert not any(calls), "tool calls are not parsed in a completion"
        choices = [
            TextChoice(index=index, text=text, logprobs=None, finish_reason=reason)
            for index, (text, reason) in enumerate(zip(contents, reasons, strict=True))
        ]
        return self._reply(choices).model_copy(update={"usage": usage}).model_dump_json(exclude_unset=True).encode()

    def opening(self) -> list[bytes]:
        """Nothing comes before the text."""
        return []

    def content(self, choice: int, text: str) -> bytes:
        """New text."""
        return self._event([TextChoice(index=choice, text=text, logprobs=None, finish_reason=None)])

    def call(self, choice: int, call: ToolCall) -> bytes:
        """Never happens: `parse_tools` is off."""
        raise AssertionError(f"choice {choice} called {call.name} in a completion")

    def draft(self, choice: int, draft: Draft) -> bytes:
        """What is not final yet, beside an empty text."""
        reply = self._reply([TextChoice(index=choice, text="", logprobs=None, finish_reason=None)])
        return _event_of(self._counted(reply, None).model_copy(update={"unmask": Extension(draft=draft)}))

    def end(self, choice: int, reason: FinishName) -> bytes:
        """The choice's last event."""
        return self._event([TextChoice(index=choice, text="", logprobs=None, finish_reason=reason)])

    def counts(self, usage: UsageReply) -> bytes:
        """The token counts as an event."""
        return self._event([], usage)

    def _event(self, choices: list[TextChoice], usage: UsageReply | None = None) -> bytes:
        return _event_of(self._counted(self._reply(choices), usage))

    def _counted(self, reply: TextReply, usage: UsageReply | None) -> TextReply:
        """With include_usage every event has the field, null until the last; without it none has."""
        return reply.model_copy(update={"usage": usage}) if self._prepared.include_usage else reply

    def _reply(self, choices: list[TextChoice]) -> TextReply:
        return TextReply(
            id=self._prepared.id,
            object="text_completion",
            created=self._created,
            model=self._model_id,
            choices=choices,
        )


def _event_of(reply: TextReply) -> bytes:
    return b"data: " + reply.model_dump_json(exclude_unset=True).encode() + b"\n\n"


COMPLETIONS = Surface(path="/v1/completions", id_prefix="cmpl-", prepare=prepare_completion, form=CompletionForm)
