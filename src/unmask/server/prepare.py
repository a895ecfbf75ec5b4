"""Request body -> sequences to generate. Pure: everything that can be refused is refused here, before any work."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from unmask.core.constraint import AnswerConstraint
from unmask.core.errors import RequestError
from unmask.core.request import Mode, Request, SamplingParams
from unmask.server.body import parse_object
from unmask.server.errors import ApiError, quoted, unsupported
from unmask.server.grammars import Demands, Grammars
from unmask.server.settings import ServerSettings
from unmask.server.wire import (
    AssistantMessage,
    ChatRequest,
    DiffusionOptions,
    JsonObjectFormat,
    JsonSchemaFormat,
    Message,
    SampledRequest,
    ToolChoice,
    ToolMessage,
    parse_chat,
)
from unmask.text.chat import ChatTemplate
from unmask.text.prompt import PromptTokenizer, encode_chat


class TextTokenizer(PromptTokenizer, Protocol):
    """The part of a tokenizer that the server needs."""

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        ...

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end an answer."""
        ...

    def token_bytes(self, token_id: int, /) -> bytes:
        """Returns the raw bytes of one token; empty for special tokens."""
        ...


@dataclass(frozen=True, kw_only=True)
class ServedModel:
    """What turns messages into ids and ids into text; without `grammars` no answer can be constrained."""

    tokenizer: TextTokenizer
    template: ChatTemplate
    settings: ServerSettings
    grammars: Grammars | None = None


@dataclass(frozen=True, kw_only=True)
class PreparedChat:
    """A request that can be honoured.

    Attributes:
        id: the answer's id.
        requests: one sequence per choice; all choices of one prompt stand together.
        stops: stop strings.
        parse_tools: whether tool calls are looked for in the answer.
        single_call: whether the answer ends after its first call.
        stream: whether to answer in chunks.
        include_usage: whether the chunks end with token counts.
        include_drafts: whether chunks also show what is not final yet.
        num_prompts: prompts, each with the same number of choices.
    """

    id: str
    requests: tuple[Request, ...]
    stops: tuple[str, ...]
    parse_tools: bool
    single_call: bool
    stream: bool
    include_usage: bool
    include_drafts: bool = False
    num_prompts: int = 1

    @property
    def num_choices(self) -> int:
        """Choices of each prompt."""
        return len(self.requests) // self.num_prompts

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompts; each counts once, however many choices it has."""
        return sum(len(request.prompt_ids) for request in self.requests[:: self.num_choices])


def prepare(raw: bytes, served: ServedModel, chat_id: str) -> PreparedChat:
    """Parses, checks, renders and tokenises one chat request. Takes time in proportion to the body; no I/O.

    Raises:
        RequestError: names the field that is wrong or not supported.
        ApiError: 404 for another model.
    """
    chat = parse_chat(parse_object(raw))
    settings = served.settings
    check_model(chat.model, settings)
    choice = _checked_choice(chat)
    use_tools = bool(chat.tools) and choice.kind != "none"
    num_choices = checked_choices(chat, settings)
    # The settings come first: they are refused without paying for the prompt. Only max_tokens waits for its length.
    params = sampling_params(chat, settings, seed=seed_of(chat, chat_id))
    tools = _tools(chat) if use_tools else None
    constraint = _constraint(_demands(chat, choice, use_tools=use_tools), served)
    check_size(sum(len(str(message.content or "")) for message in chat.messages), settings, "messages")
    prompt_ids = tuple(encode_chat(served.tokenizer, served.template, _history(chat.messages), tools))
    params = fitted(params, chat, len(prompt_ids), settings, "messages")
    include_drafts = bool(chat.stream_options and chat.stream_options.include_drafts)
    requests = tuple(
        Request(
            id=f"{chat_id}-{index}",
            prompt_ids=prompt_ids,
            params=params,
            choice=index,
            timeout_s=settings.request_timeout_s,
            drafts=include_drafts,
            constraint=constraint,
        )
        for index in range(num_choices)
    )
    return PreparedChat(
        id=chat_id,
        requests=requests,
        stops=tuple(chat.stop or ()),
        parse_tools=use_tools,
        single_call=chat.parallel_tool_calls is False,
        stream=bool(chat.stream),
        include_usage=bool(chat.stream_options and chat.stream_options.include_usage),
        include_drafts=include_drafts,
    )


def _checked_choice(chat: ChatRequest) -> ToolChoice:
    """What the request says about calling tools; refuses demands for tools that are not offered."""
    choice = chat.tool_choice or ToolChoice(kind="auto")
    if choice.kind == "required" and not chat.tools:
        raise RequestError("tool_choice: 'required' needs 'tools'", param="tool_choice", code="invalid_value")
    if choice.kind == "named" and choice.name not in [tool.function.name for tool in chat.tools or []]:
        reason = f"no tool named {quoted(choice.name)} is offered"
        raise RequestError(f"tool_choice: {reason}", param="tool_choice", code="invalid_value")
    return choice


def _demands(chat: ChatRequest, choice: ToolChoice, *, use_tools: bool) -> Demands:
    match chat.response_format:
        case JsonSchemaFormat() as wanted:
            response_schema = wanted.json_schema.schema_
        case JsonObjectFormat():
            response_schema = {"type": "object"}
        case _:
            response_schema = None
    functions = [tool.function.model_dump(exclude={"description"}) for tool in chat.tools or []]
    return Demands(
        tools=tuple(functions) if use_tools else (),
        choice=choice.name if choice.name is not None else choice.kind,
        is_named=choice.kind == "named",
        parallel=chat.parallel_tool_calls is not False,
        response_schema=response_schema,
    )


def _constraint(demands: Demands, served: ServedModel) -> AnswerConstraint | None:
    """Compiles what is demanded. A model that takes no constraint still answers where nothing but tools is offered."""
    if served.grammars is not None:
        return served.grammars.constraint(demands)
    if demands.response_schema is not None:
        raise unsupported(
            "response_format", "response_format: this model cannot be held to a schema; ask in the prompt"
        )
    if demands.tools and (demands.is_named or demands.choice != "auto"):
        raise unsupported(
            "tool_choice", "tool_choice: this model cannot be made to call a tool; only 'auto' and 'none'"
        )
    for index, tool in enumerate(demands.tools):
        if tool.get("strict"):
            param = f"tools[{index}].function.strict"
            raise unsupported(param, f"{param}: this model cannot be held to a schema; leave it out")
    return None


def checked_choices(wire: SampledRequest, settings: ServerSettings) -> int:
    """Returns the number of choices of each prompt; refuses too many, and stream options without a stream."""
    num_choices = wire.n or 1
    if num_choices > settings.max_choices:
        raise RequestError(
            f"n: at most {settings.max_choices} choices, got {num_choices}", param="n", code="invalid_value"
        )
    if wire.stream_options is not None and not wire.stream:
        raise RequestError(
            "stream_options: only allowed with 'stream': true", param="stream_options", code="invalid_value"
        )
    return num_choices


def check_model(model_id: str, settings: ServerSettings) -> None:
    """Raises ApiError unless it is the served model."""
    if model_id != settings.model_id:
        message = f"the model {quoted(model_id)} is not served here; this server has {settings.model_id!r}"
        raise ApiError(404, message, param="model", code="model_not_found")


def _history(messages: list[Message]) -> list[dict[str, Any]]:
    """Messages as the template wants them: content is always text, calls are in OpenAI form."""
    history: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        role = "system" if message.role == "developer" else message.role
        entry: dict[str, Any] = {"role": role, "content": message.content or ""}
        if message.name is not None:
            entry["name"] = message.name
        if isinstance(message, ToolMessage):
            entry["tool_call_id"] = message.tool_call_id
        if isinstance(message, AssistantMessage):
            if message.content is None and not message.tool_calls:
                param = f"messages[{index}].content"
                reason = "an assistant message needs content or tool_calls"
                raise RequestError(f"{param}: {reason}", param=param, code="invalid_value")
            if message.tool_calls:
                entry["tool_calls"] = [call.model_dump(exclude={"index"}) for call in message.tool_calls]
        history.append(entry)
    return history


def _tools(chat: ChatRequest) -> list[dict[str, Any]]:
    """Tools in one order of fields, so that the prompt does not depend on the client's habits."""
    tools = [tool.model_dump(exclude_none=True, exclude={"function": {"strict"}}) for tool in chat.tools or []]
    names = [tool["function"]["name"] for tool in tools]
    for index, name in enumerate(names):
        if name in names[:index]:
            param = f"tools[{index}].function.name"
            raise RequestError(f"{param}: '{name}' is offered twice", param=param, code="invalid_value")
    return tools


def seed_of(chat: SampledRequest, chat_id: str) -> int:
    """A number in [0, 2^63); without a seed in the request it follows from the answer's id, so it can be replayed."""
    if chat.seed is not None:
        return chat.seed % 2**63
    return int.from_bytes(hashlib.blake2b(chat_id.encode(), digest_size=8).digest(), "big") >> 1


def sampling_params(chat: SampledRequest, settings: ServerSettings, *, seed: int) -> SamplingParams:
    """Settings with the server's defaults filled in; SamplingParams checks the ranges."""
    options = chat.diffusion or DiffusionOptions()
    mode = options.named_mode or settings.default_mode
    _check_options(options, mode)
    return SamplingParams(
        max_tokens=_asked_tokens(chat) or settings.max_tokens_default,
        temperature=settings.default_temperature if chat.temperature is None else chat.temperature,
        top_p=1.0 if chat.top_p is None else chat.top_p,
        top_k=chat.top_k or 0,
        seed=seed,
        mode=mode,
        threshold=options.threshold,
        block_size=options.block_size,
        num_steps=options.num_steps,
        rule=options.rule,
        lookup=options.lookup,
    )


_CHARACTERS_PER_TOKEN = 32
"""No text reaches this on average; a prompt longer than context times this is refused before it is encoded."""


def check_size(characters: int, settings: ServerSettings, param: str) -> None:
    """Refuses what can never fit, because encoding megabytes would hold up every other request."""
    if characters > _CHARACTERS_PER_TOKEN * settings.context_length:
        raise RequestError(
            f"{param}: {characters} characters cannot fit the context of {settings.context_length} tokens",
            param=param,
            code="context_length_exceeded",
        )


_OPTIONS: Mapping[Mode, frozenset[str]] = {
    Mode.DIFFUSION: frozenset({"block_size", "num_steps", "rule", "threshold"}),
    Mode.VERIFIED: frozenset({"block_size"}),
    Mode.AR: frozenset({"lookup"}),
}
"""Options that act in each mode."""


def _check_options(options: DiffusionOptions, mode: Mode) -> None:
    """Refuses options that would have to be ignored, by the mode or by another option."""
    given = set(options.model_dump(exclude_none=True, exclude={"mode"}))
    idle, why = given - _OPTIONS[mode], f"in mode '{mode}'"
    if not idle and {"threshold", "num_steps"} <= given:
        idle, why = {"threshold"}, "together with num_steps"
    if idle:
        param = f"diffusion.{min(idle)}"
        raise RequestError(f"{param}: has no meaning {why}; leave it out", param=param, code="invalid_value")


def _asked_tokens(chat: SampledRequest) -> int | None:
    """The answer length asked for, under either of its names."""
    old, new = chat.max_tokens, chat.max_completion_tokens if isinstance(chat, ChatRequest) else None
    if old is not None and new is not None and old != new:
        reason = "differs from max_completion_tokens; send one of them"
        raise RequestError(f"max_tokens: {reason}", param="max_tokens", code="invalid_value")
    return old if new is None else new


def fitted(
    params: SamplingParams, chat: SampledRequest, prompt_length: int, settings: ServerSettings, prompt: str
) -> SamplingParams:
    """Checks the context length; a default answer length shrinks to fit, one that was asked for does not."""
    room = settings.context_length - prompt_length
    if prompt_length == 0:
        raise RequestError(f"{prompt}: the prompt is empty", param=prompt, code="invalid_value")
    if room < 1:
        raise RequestError(
            f"the prompt has {prompt_length} tokens and the context holds {settings.context_length}, answer included; "
            "shorten it",
            param=prompt,
            code="context_length_exceeded",
        )
    if params.max_tokens <= room:
        return params
    if _asked_tokens(chat) is None:
        return replace(params, max_tokens=room)
    param = "max_tokens" if chat.max_tokens is not None else "max_completion_tokens"
    raise RequestError(
        f"{param}: {params.max_tokens} is too much; the context holds {settings.context_length} tokens and the prompt "
        f"has {prompt_length}, which leaves {room}",
        param=param,
        code="context_length_exceeded",
    )
