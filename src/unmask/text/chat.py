"""Messages -> prompt text, through the checkpoint's own jinja chat template."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from unmask.core.errors import CheckpointError, RequestError


def _raise_exception(message: str) -> None:
    """Templates call it to refuse a conversation."""
    raise jinja2.TemplateError(message)


def _to_json(value: Any, indent: int | None = None) -> str:
    """Like Hugging Face's filter: real characters, not HTML escapes."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


class ChatTemplate:
    """A compiled chat template, run in jinja's sandbox.

    Args:
        source: jinja text in Hugging Face's dialect (`messages`, `tools`, `add_generation_prompt`).

    Raises:
        CheckpointError: the template does not compile.
    """

    def __init__(self, source: str) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise CheckpointError(f"the chat template does not compile: {error}") from error

    @classmethod
    def load(cls, file: Path) -> "ChatTemplate":
        """Reads a `chat_template.jinja` file.

        Raises:
            CheckpointError: no such file, or it does not compile.
        """
        if not file.is_file():
            raise CheckpointError(f"{file} does not exist; chat needs the checkpoint's template")
        return cls(file.read_text(encoding="utf-8"))

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """Renders a conversation in OpenAI form (tool call arguments are JSON strings).

        Raises:
            RequestError: the template refuses these messages.
        """
        try:
            return self._template.render(
                messages=messages, tools=tools or None, add_generation_prompt=add_generation_prompt
            )
        except (jinja2.TemplateError, TypeError, ValueError) as error:
            raise RequestError(f"the chat template refuses these messages: {error}", param="messages") from error
