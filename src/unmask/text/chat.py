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


def _with_parsed_arguments(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """OpenAI sends arguments as JSON text, Hugging Face templates expect the object; text that is none stays."""
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

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """Renders a conversation in OpenAI form (tool call arguments are JSON text).

        Raises:
            RequestError: the template refuses these messages.
        """
        try:
            return self._template.render(
                messages=[_with_parsed_arguments(message) for message in messages],
                tools=tools or None,
                add_generation_prompt=add_generation_prompt,
            )
        except (jinja2.TemplateError, *_TEMPLATE_FAULTS) as error:
            raise RequestError(f"the chat template refuses these messages: {error}", param="messages") from error
