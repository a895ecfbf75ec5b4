"""The chat completions request as it comes over the wire.

Strict: wrong types are refused, not converted, and an unknown field is an error that names it. `null` means absent.
Fields that OpenAI knows and this server cannot honour stand in one table with the values that ask for nothing.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from unmask.core.errors import RequestError
from unmask.core.request import Mode
from unmask.server.errors import quoted, unsupported

MAX_STOPS = 4
MAX_STOP_CHARS = 256  # bounds the search that runs at every token
MAX_TOOLS = 128

Refused = Mapping[str, tuple[tuple[object, ...], str]]
"""Field -> (values that ask for nothing, what to do instead)."""

_UNSUPPORTED: Refused = {
    "audio": ((), "this server writes text only"),
    "frequency_penalty": ((0,), "leave it out"),
    "function_call": (("auto", "none"), "use 'tool_choice'"),
    "functions": (([],), "use 'tools'"),
    "logit_bias": (({},), "leave it out"),
    "logprobs": ((False,), "leave it out"),
    "modalities": ((["text"],), "this server writes text only"),
    "moderation": ((), "leave it out"),
    "prediction": ((), "leave it out"),
    "presence_penalty": ((0,), "leave it out"),
    "prompt_cache_options": ((), "prefixes are not cached yet"),
    "prompt_cache_retention": ((), "prefixes are not cached yet"),
    "reasoning_effort": (("none",), "the served model has no reasoning channel"),
    "service_tier": (("auto", "default"), "there is one tier"),
    "store": ((False,), "nothing is stored"),
    "top_logprobs": ((0,), "leave it out"),
    "verbosity": (("medium",), "ask for it in the prompt"),
    "web_search_options": ((), "offer a search tool in 'tools'"),
}


def _join_parts(value: object) -> object:
    """Content parts -> one text, a line break between parts; anything but text parts is refused."""
    if not isinstance(value, list):
        return value
    texts: list[str] = []
    for part in cast("list[object]", value):
        fields = cast("dict[str, object]", part) if isinstance(part, dict) else {}
        text = fields.get("text")
        kind = fields.get("type")
        if isinstance(kind, str) and kind != "text":
            raise PydanticCustomError(
                "unsupported_parameter",
                "content parts of type {kind} are not supported; send {'type': 'text', 'text': ...}",
                {"kind": quoted(kind)},
            )
        if kind != "text" or not isinstance(text, str) or len(fields) > 2:
            raise PydanticCustomError("invalid_value", "each content part must be {'type': 'text', 'text': ...}")
        texts.append(text)
    if not texts:
        raise PydanticCustomError("invalid_value", "must not be an empty array")
    return "\n".join(texts)


def _as_stops(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _as_tool_choice(value: object) -> object:
    """A word, or `{"type": "function", "function": {"name": ...}}`."""
    if value is None:
        return None
    if isinstance(value, str):
        return {"kind": value}
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    if isinstance(kind := fields.get("type"), str) and kind != "function":
        raise PydanticCustomError(
            "unsupported_parameter", "choices of type {kind} are not supported", {"kind": quoted(kind)}
        )
    function = fields.get("function")
    named = cast("dict[str, object]", function) if isinstance(function, dict) else {}
    if set(fields) != {"type", "function"} or set(named) != {"name"}:
        raise PydanticCustomError(
            "invalid_value",
            "must be 'auto', 'none', 'required' or {'type': 'function', 'function': {'name': ...}}",
        )
    return {"kind": "named", "name": named["name"]}


def _absent(value: object) -> object:
    """For fields that clients replay from our answers, where they are always empty."""
    if value is not None and value != []:
        raise PydanticCustomError("unsupported_parameter", "is not supported; leave it out")
    return None


_Content = Annotated[str, BeforeValidator(_join_parts)]
_Absent = Annotated[None, BeforeValidator(_absent)]
_Stop = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]
_ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


R = TypeVar("R", bound=_Wire)


class SystemMessage(_Wire):
    """Instructions; `developer` is the same under its newer name."""

    role: Literal["system", "developer"]
    content: _Content
    name: str | None = None


class UserMessage(_Wire):
    """What the user says."""

    role: Literal["user"]
    content: _Content
    name: str | None = None


class CalledFunction(_Wire):
    """Name and arguments (a JSON text) of a call in the history."""

    name: Annotated[str, Field(min_length=1)]
    arguments: str


class HistoryToolCall(_Wire):
    """A call the assistant made earlier."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None  # clients that replay streamed deltas leave it in


class AssistantMessage(_Wire):
    """What the model said earlier. Reasoning text is taken and left out of the prompt."""

    role: Literal["assistant"]
    content: Annotated[str | None, BeforeValidator(_join_parts)] = None
    tool_calls: list[HistoryToolCall] | None = None
    name: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    annotations: _Absent = None
    audio: _Absent = None
    function_call: _Absent = None


class ToolMessage(_Wire):
    """The result of a call."""

    role: Literal["tool"]
    content: _Content
    tool_call_id: str
    name: str | None = None


Message = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


class FunctionSpec(_Wire):
    """A function the model may call; the order of fields is the order in the prompt."""

    name: _ToolName
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(_Wire):
    """A tool; only functions exist."""

    type: Literal["function"]
    function: FunctionSpec


class ToolChoice(_Wire):
    """Whether tools may or must be called; `name` with kind "named" only."""

    kind: Literal["auto", "none", "required", "named"]
    name: str | None = None


class TextFormat(_Wire):
    """Any text."""

    type: Literal["text"]


class JsonObjectFormat(_Wire):
    """Any JSON object."""

    type: Literal["json_object"]


class JsonSchema(_Wire):
    """`strict` makes no difference: the schema is always kept. `name` and `description` do not reach the model."""

    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(_Wire):
    """A JSON text of a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


class StreamOptions(_Wire):
    """`include_obfuscation` pads chunks against traffic analysis; only false is honoured."""

    include_usage: bool | None = None
    include_drafts: bool | None = None
    include_obfuscation: Literal[False] | None = None


class DiffusionOptions(_Wire):
    """unmask's extension: how this request is denoised. See `core.request.SamplingParams`."""

    mode: Literal["diffusion", "verified", "ar"] | None = None
    threshold: float | None = None
    block_size: int | None = None
    num_steps: int | None = None
    rule: str | None = None
    lookup: int | None = None

    @property
    def named_mode(self) -> Mode | None:
        """The mode asked for, if any."""
        return None if self.mode is None else Mode(self.mode)


class SampledRequest(_Wire):
    """What every endpoint that generates text takes."""

    model: str
    stop: Annotated[Annotated[list[_Stop], Field(max_length=MAX_STOPS)] | None, BeforeValidator(_as_stops)] = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    diffusion: DiffusionOptions | None = None
    user: str | None = None


class ChatRequest(SampledRequest):
    """Body of POST /v1/chat/completions.

    `user`, `safety_identifier`, `metadata` and `prompt_cache_key` are taken and have no effect on the answer, which is
    also all they promise.
    """

    messages: Annotated[list[Message], Field(min_length=1)]
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Annotated[ToolChoice | None, BeforeValidator(_as_tool_choice)] = None
    response_format: Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")] | None = (
        None
    )
    parallel_tool_calls: bool | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    safety_identifier: str | None = None
    metadata: dict[str, str] | None = None
    prompt_cache_key: str | None = None


def parse_chat(body: Mapping[str, object]) -> ChatRequest:
    """Checks a JSON object and gives it types.

    Raises:
        RequestError: names the first field that is wrong, unknown or not supported.
    """
    return parse_as(ChatRequest, body, _UNSUPPORTED)


def parse_as(kind: type[R], body: Mapping[str, object], refused: Refused) -> R:
    """Checks a JSON object against a wire model and a table of what is refused by name.

    Raises:
        RequestError: names the first field that is wrong, unknown or not supported.
    """
    for name, (harmless, advice) in refused.items():
        value = body.get(name)
        if value is not None and value not in harmless:
            raise unsupported(name, f"'{name}' is not supported by this server; {advice}")
    rest = {name: value for name, value in body.items() if name not in refused}
    try:
        return kind.model_validate(rest)
    except ValidationError as error:
        raise _named(error) from error


def _named(error: ValidationError) -> RequestError:
    """Turns pydantic's first complaint into one line that names the field in OpenAI's spelling."""
    first = error.errors(include_url=False, include_input=False)[0]
    kind, where = first["type"], list(first["loc"])
    # pydantic names a union's tag (a message's role, a format's type) as a step of the path
    if where[:1] == ["messages"] and len(where) > 2:
        del where[2]
    if where[:1] == ["response_format"] and len(where) > 1:
        del where[1]
    if where[:1] == ["tool_choice"]:
        del where[1:]  # the fields behind it are ours
    if kind.startswith("union_tag"):
        where.append("type" if where[:1] == ["response_format"] else "role")
    param = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in where).removeprefix(".")
    if kind == "extra_forbidden":
        return RequestError(f"unknown parameter: {quoted(param)}", param=param, code="unknown_parameter")
    if kind in ("missing", "union_tag_not_found"):
        return RequestError(f"missing required parameter: '{param}'", param=param, code="missing_required_parameter")
    if kind == "union_tag_invalid":
        context: Mapping[str, object] = first.get("ctx", {})
        known = "system, developer, user, assistant, tool" if where[-1] == "role" else "text, json_object, json_schema"
        reason = f"unknown {where[-1]} {quoted(context.get('tag'))} (known: {known})"
        return RequestError(f"{param}: {reason}", param=param, code="invalid_value")
    code = "unsupported_parameter" if kind == "unsupported_parameter" else "invalid_value"
    return RequestError(f"{param}: {first['msg']}", param=param, code=code)
