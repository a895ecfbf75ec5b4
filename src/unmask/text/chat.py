"""Messages -> prompt text, through the checkpoint's own jinja chat template."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from unmask.core.errors import CheckpointError, RequestError


def _raise_exception(message: str) -> None:
    """Templates call it to refuse a conversation."""
    raise jinja2.TemplateError(message)


_TEMPLATE_FAULTS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What a template's expressions can raise on messages it was not written for."""


class _Arguments(dict[str, Any]):
    """Arguments of a call in the history: an object to templates that look inside, the model's text when printed."""

    def __init__(self, fields: Mapping[str, Any], text: str) -> None:
        super().__init__(fields)
        self.text = text

    def __str__(self) -> str:
        return self.text


def _to_json(value: Any, indent: int | None = None) -> str:
    """Like Hugging Face's filter: real characters, not HTML escapes."""
    if isinstance(value, _Arguments) and indent is None:
        return value.text
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _normalised(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """OpenAI allows null content and sends arguments as JSON text; Hugging Face templates want text and the object."""
    message = {**message, "content": message.get("content") or ""}
    if not message.get("tool_calls"):
        return message
    calls: list[dict[str, Any]] = []
    for call in message["tool_calls"]:
        function = call["function"]
        calls.append({**call, "function": {**function, "arguments": _parsed(function["arguments"])}})
    return {**message, "tool_calls": calls}


def _parsed(arguments: Any) -> Any:
    if not isinstance(arguments, str):
        return arguments
    try:
        fields = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return _Arguments(cast("dict[str, Any]", fields), arguments) if isinstance(fields, dict) else arguments


class ChatTemplate:
    """A compiled chat template, run in jinja's sandbox.

    Args:
        source: jinja text in Hugging Face's dialect (`messages`, `tools`, `add_generation_prompt`). The date is not
            offered (`strftime_now`): a prompt is a function of the request alone.
        special_tokens: spelling of special tokens by name, such as "bos_token"; templates use them as variables.

    Raises:
        CheckpointError: the template does not compile.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str] | None = None) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.filters["tojson"] = _to_json  # pyright: ignore[reportUnknownMemberType] - jinja2 has dict[str, Unknown]
        names: dict[str, Any] = {**(special_tokens or {}), "raise_exception": _raise_exception}
        self.source = source
        self._shows_tools: bool | None = None
        try:
            self._template = environment.from_string(source, globals=names)
        except jinja2.TemplateError as error:
            raise CheckpointError(f"the chat template does not compile: {error}") from error

    @classmethod
    def load(cls, file: Path, special_tokens: Mapping[str, str] | None = None) -> "ChatTemplate":
        """Reads a `chat_template.jinja` file.

        Raises:
            CheckpointError: no such file, or it does not compile.
        """
        if not file.is_file():
            raise CheckpointError(f"{file} does not exist; chat needs the checkpoint's template")
        try:
            return cls(file.read_text(encoding="utf-8"), special_tokens)
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"cannot read {file}: {error}") from error

    @property
    def shows_tools(self) -> bool:
        """Whether offered tools reach the prompt; found by rendering one."""
        if self._shows_tools is None:
            function: dict[str, Any] = {"name": "unmask_probe", "parameters": {"type": "object", "properties": {}}}
            probe = [{"role": "user", "content": "x"}]
            try:
                text = self._template.render(
                    messages=probe, tools=[{"type": "function", "function": function}], add_generation_prompt=True
                )
            except (jinja2.TemplateError, *_TEMPLATE_FAULTS):
                text = ""
            self._shows_tools = "unmask_probe" in text
        return self._shows_tools

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """Renders a conversation in OpenAI form (tool call arguments are JSON text).

        A message without content has an empty one.

        Raises:
            RequestError: the template refuses these messages, or there are tools and it would leave them out.
        """
        if tools and not self.shows_tools:
            raise RequestError("tools: this model's chat template does not show tools to the model", param="tools")
        try:
            return self._template.render(
                messages=[_normalised(message) for message in messages],
                tools=tools or None,
                add_generation_prompt=add_generation_prompt,
            )
        except (jinja2.TemplateError, *_TEMPLATE_FAULTS) as error:
            raise RequestError(f"the chat template refuses these messages: {error}", param="messages") from error


def find_template(folder: Path) -> ChatTemplate | None:
    """Returns a checkpoint's template: `chat_template.jinja`, else the one in `tokenizer_config.json`, else None.

    Raises:
        CheckpointError: a damaged file, or a template that does not compile.
    """
    raw = _tokenizer_config(folder / "tokenizer_config.json")
    names = ("bos_token", "eos_token", "pad_token", "unk_token")
    tokens = {name: spelling for name in names if (spelling := _spelling(raw.get(name))) is not None}
    file = folder / "chat_template.jinja"
    if file.exists():
        return ChatTemplate.load(file, tokens)
    source = raw.get("chat_template")
    if isinstance(source, list):  # several templates by name
        source = {entry.get("name"): entry.get("template") for entry in _objects(source)}.get("default")
    if source is None:
        return None
    if not isinstance(source, str):
        raise CheckpointError(
            f"chat_template in {folder / 'tokenizer_config.json'} is {json.dumps(source)[:40]}, not text"
        )
    return ChatTemplate(source, tokens)


def _spelling(token: Any) -> str | None:
    """A special token is written as text or as an object with its text under "content"."""
    text = cast("dict[str, Any]", token).get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def _objects(entries: Any) -> list[dict[str, Any]]:
    return [cast("dict[str, Any]", entry) for entry in cast("list[Any]", entries) if isinstance(entry, dict)]


def _tokenizer_config(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"cannot read {file}: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{file} is not a JSON object")
    return cast("dict[str, Any]", value)
