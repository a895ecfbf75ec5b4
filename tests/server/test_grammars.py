"""Schemas over HTTP, on a real engine with random weights: what comes back is valid whatever the model believes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx2
import jsonschema
import openai
import pytest
from pydantic import BaseModel

from tests.server.serving import MODEL, USER, WEATHER, body, settings
from tests.tiny import make_checkpoint
from unmask.engine.backend import EngineBackend
from unmask.engine.loop import EngineLoop
from unmask.engine.opening import open_model
from unmask.engine.settings import EngineSettings
from unmask.server.app import create_app
from unmask.text.toolcalls import ToolCallFormat

pytestmark = pytest.mark.anyio

MODES = ("verified", "diffusion", "ar")
ALARM: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "set_alarm",
        "parameters": {
            "type": "object",
            "properties": {"hour": {"type": "integer", "minimum": 0, "maximum": 23}, "loud": {"type": "boolean"}},
            "required": ["hour"],
        },
    },
}
OPEN: dict[str, Any] = {"type": "function", "function": {"name": "log", "strict": False, "parameters": {"not": {}}}}
BARE: dict[str, Any] = {"type": "function", "function": {"name": "ping"}}
CONDITIONAL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"if": {}}}}
NAMELESS: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}
SCHEMAS = {tool["function"]["name"]: tool["function"].get("parameters") for tool in (WEATHER, ALARM)}


@pytest.fixture(scope="module")
def transport(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.ASGITransport]:
    folder = make_checkpoint(tmp_path_factory.mktemp("model"), logit_shift=1, max_positions=1024)
    model = open_model(str(folder), cache_dir=Path("unused"), precision="fp32")
    loop = EngineLoop(model.loaded, EngineSettings())
    app = create_app(
        backend=EngineBackend(loop),
        tokenizer=model.tokenizer,
        template=model.chat_template(),
        settings=settings(context_length=1024, tool_format=ToolCallFormat().as_rendered(model.chat_template().render)),
        vocabulary=model.vocabulary(),
    )
    yield httpx2.ASGITransport(app=app)
    loop.close()


@pytest.fixture
def client(transport: httpx2.ASGITransport) -> openai.AsyncOpenAI:
    http = httpx2.AsyncClient(transport=transport, base_url="http://toy")
    return openai.AsyncOpenAI(base_url="http://toy/v1", api_key="any", http_client=http, max_retries=0)


def check_call(call: Any) -> None:
    jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
async def test_a_required_call_is_always_a_valid_one(client: openai.AsyncOpenAI, mode: str, temperature: float) -> None:
    answer = await client.chat.completions.create(
        **body(tools=[WEATHER, ALARM], tool_choice="required", temperature=temperature, seed=1, n=4, max_tokens=120),
        parallel_tool_calls=False,
        extra_body={"diffusion": {"mode": mode}},
    )
    for choice in answer.choices:
        assert choice.finish_reason == "tool_calls"
        assert not choice.message.content
        assert choice.message.tool_calls
        for call in choice.message.tool_calls:
            check_call(call)


@pytest.mark.parametrize("mode", MODES)
async def test_a_named_tool_is_called_once(client: openai.AsyncOpenAI, mode: str) -> None:
    choice = {"type": "function", "function": {"name": "set_alarm"}}
    answer = await client.chat.completions.create(
        **body(tools=[WEATHER, ALARM], tool_choice=choice, max_tokens=90), extra_body={"diffusion": {"mode": mode}}
    )
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.function.name == "set_alarm"
    check_call(call)


@pytest.mark.parametrize("mode", MODES)
async def test_with_auto_a_call_that_comes_is_valid(client: openai.AsyncOpenAI, mode: str) -> None:
    answer = await client.chat.completions.create(
        **body(tools=[WEATHER, ALARM, BARE], temperature=1.0, seed=2, n=4, max_tokens=80, parallel_tool_calls=False),
        extra_body={"diffusion": {"mode": mode}},
    )
    for choice in answer.choices:
        assert "<tool_call>" not in (choice.message.content or "")
        assert len(choice.message.tool_calls or []) <= 1


async def test_arguments_of_a_loose_tool_are_any_object_and_of_a_bare_one_none(client: openai.AsyncOpenAI) -> None:
    for tool, wanted in ((OPEN, dict), (BARE, None)):
        answer = await client.chat.completions.create(
            **body(tools=[tool], tool_choice="required", parallel_tool_calls=False, max_tokens=80, temperature=1.0)
        )
        (call,) = answer.choices[0].message.tool_calls or []
        arguments = json.loads(call.function.arguments)
        assert isinstance(arguments, wanted) if wanted else arguments == {}


class Person(BaseModel):
    name: str
    age: int
    kind: Literal["cat", "dog"]
    tags: list[bool]


@pytest.mark.parametrize("mode", MODES)
async def test_the_client_parses_what_it_asked_for(client: openai.AsyncOpenAI, mode: str) -> None:
    answer = await client.chat.completions.parse(
        model=MODEL,
        messages=[USER],
        response_format=Person,
        max_tokens=200,
        temperature=0.8,
        top_p=0.9,
        seed=4,
        extra_body={"diffusion": {"mode": mode}},
    )
    assert isinstance(answer.choices[0].message.parsed, Person)
    assert answer.choices[0].finish_reason == "stop"


async def test_streamed_text_is_the_whole_one(client: openai.AsyncOpenAI) -> None:
    fields = body(response_format={"type": "json_object"}, max_tokens=60, seed=3, temperature=1.0)
    whole = await client.chat.completions.create(**fields)
    text = whole.choices[0].message.content or ""
    assert isinstance(json.loads(text), dict)
    stream = await client.chat.completions.create(**fields, stream=True)
    assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == text


def schema(value: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}


@pytest.mark.parametrize(
    ("changes", "param", "words"),
    [
        ({"response_format": schema({"type": "array", "uniqueItems": True})}, "response_format", "uniqueItems"),
        ({"response_format": schema({"type": "tree"})}, "response_format", "must be one of"),
        ({"response_format": schema({"type": "integer"}), "max_tokens": 1, "n": 9}, "n", "at most"),
        ({"response_format": schema(WEATHER["function"]["parameters"]), "max_tokens": 4}, "max_tokens", "at least"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing"),
        ({"response_format": {"type": "yaml"}}, "response_format.type", "json_object"),
        ({"response_format": NAMELESS}, "response_format.json_schema.name", "match"),
        ({"tools": [CONDITIONAL]}, "tools[0].function.parameters", "'strict': false"),
        ({"tool_choice": "required"}, "tool_choice", "needs 'tools'"),
        ({"tool_choice": {"type": "function", "function": {"name": "nix"}}, "tools": [WEATHER]}, "tool_choice", "nix"),
        ({"tool_choice": {"type": "allowed_tools"}, "tools": [WEATHER]}, "tool_choice", "not supported"),
        ({"tools": [WEATHER], "diffusion": {"mode": "ar", "lookup": 3}}, "diffusion.lookup", "constraint"),
    ],
)  # fmt: skip
async def test_what_cannot_be_kept_is_refused(
    client: openai.AsyncOpenAI, changes: dict[str, Any], param: str, words: str
) -> None:
    extra = {name: changes.pop(name) for name in ("diffusion",) if name in changes}
    with pytest.raises(openai.BadRequestError, match=words) as caught:
        await client.chat.completions.create(**body(**changes), extra_body=extra)
    assert caught.value.param == param
