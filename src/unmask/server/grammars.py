"""From tools and response format to the constraint on the answer.

    tool_choice none      -> the content
    tool_choice auto      -> the content, or text (without the tag that opens a call), then calls
    tool_choice required  -> one call or more; a named tool: one call of it

The content is any text, any JSON object, or a JSON text of the given schema. Where nothing is demanded there is no
constraint at all.
"""

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from unmask.core.constraint import AnswerConstraint
from unmask.core.errors import RequestError
from unmask.grammar.automaton import Automaton
from unmask.grammar.build import Budget, byte_class, concat, difference, literal, optional, repeat, union
from unmask.grammar.constraint import ConstraintCache
from unmask.grammar.schema import compile_schema
from unmask.grammar.tokens import Vocabulary
from unmask.text.toolcalls import ToolCallFormat

_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_ANY_OBJECT: dict[str, Any] = {"type": "object"}


@dataclass(frozen=True, kw_only=True)
class Demands:
    """What a request asks of its answer.

    Attributes:
        tools: offered functions in OpenAI form (name, parameters, strict), in order; empty if none may be called.
        choice: "auto", "required", or the name of the one tool to call.
        is_named: whether `choice` is such a name.
        parallel: whether there may be several calls.
        response_schema: None for any text; a JSON schema of the content.
    """

    tools: tuple[dict[str, Any], ...] = ()
    choice: str = "auto"
    is_named: bool = False
    parallel: bool = True
    response_schema: dict[str, Any] | None = None

    @property
    def source(self) -> str:
        """Equal for equal languages."""
        return json.dumps([self.tools, self.choice, self.is_named, self.parallel, self.response_schema])


@dataclass(frozen=True, kw_only=True)
class Grammars:
    """Compiles constraints for one model and keeps the latest. Safe to share between threads.

    Args:
        vocabulary: bytes of each row of the model's head.
        eos_ids: ids that end an answer.
        encode: text to token ids, specials not parsed.
        tool_format: how the model writes calls.
    """

    vocabulary: Vocabulary
    eos_ids: Collection[int]
    encode: Callable[[str], Sequence[int]]
    tool_format: ToolCallFormat
    _cache: ConstraintCache = field(default_factory=ConstraintCache, init=False)

    def constraint(self, demands: Demands) -> AnswerConstraint | None:
        """The constraint of an answer; None if any text will do.

        Raises:
            RequestError: a schema is not supported or too large; names its field and the keyword.
        """
        if not demands.tools and demands.response_schema is None:
            return None
        return self._cache.get(
            demands.source,
            lambda: _answer(demands, self.tool_format),
            self.vocabulary,
            eos_ids=self.eos_ids,
            encode=self.encode,
            param="tools" if demands.tools else "response_format",
        )


def _answer(demands: Demands, tool_format: ToolCallFormat) -> Automaton:
    """The language of the answer in bytes."""
    budget = Budget(param="tools")
    content: Automaton | None = None
    if demands.response_schema is not None:
        content = compile_schema(demands.response_schema, param="response_format")
        if not demands.tools:
            return content
    calls = _calls(demands, tool_format, budget)
    if demands.is_named or demands.choice == "required":
        return calls
    text = _text_without(tool_format.open, budget)
    if content is not None:
        return union(content, calls, budget=budget)
    return concat(text, optional(calls, budget=budget), budget=budget)


def _calls(demands: Demands, tool_format: ToolCallFormat, budget: Budget) -> Automaton:
    """One call or more."""
    allowed = [
        _call(index, tool, tool_format, budget)
        for index, tool in enumerate(demands.tools)
        if not demands.is_named or demands.choice == tool["name"]
    ]
    one = union(*allowed, budget=budget)
    if not demands.parallel or demands.is_named:
        return one
    more = concat(literal(tool_format.between.encode()), one, budget=budget)
    return concat(one, repeat(more, budget=budget), budget=budget)


def _call(index: int, tool: dict[str, Any], tool_format: ToolCallFormat, budget: Budget) -> Automaton:
    """A call of one tool, tags included; `strict: false` leaves its arguments open."""
    param = f"tools[{index}].function.parameters"
    parameters = tool.get("parameters")
    if tool.get("strict") is False:
        schema = _ANY_OBJECT
    elif not parameters:
        schema = _NO_ARGUMENTS
    else:
        typed = {"type", "$ref", "anyOf", "oneOf", "allOf"} & set(parameters)
        schema = parameters if typed else {**parameters, **_ANY_OBJECT}
    try:
        arguments = compile_schema(schema, param=param)
    except RequestError as error:
        advice = "or set 'strict': false to leave the arguments unconstrained"
        raise RequestError(f"{error}; {advice}", param=error.param, code=error.code) from error
    head, tail = literal(tool_format.head(tool["name"]).encode()), literal(tool_format.tail.encode())
    return concat(head, arguments, tail, budget=budget)


def _text_without(tag: str, budget: Budget) -> Automaton:
    """Any text in which the tag does not occur."""
    anything = repeat(byte_class(range(256)), budget=budget)
    return difference(anything, concat(anything, literal(tag.encode()), anything, budget=budget), budget=budget)
