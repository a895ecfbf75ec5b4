import itertools
import json
from typing import Any

import openai
import pytest

from tests.fakes import FakeBackend
from tests.server.serving import CALL_TEXT, MODEL, USER, WEATHER, body, http_client, openai_client, sse
from unmask.core.request import Mode, Request

pytestmark = pytest.mark.anyio


async def create(backend: FakeBackend, **changes: Any) -> Any:
    return await openai_client(backend).chat.completions.create(**body(**changes))


def prompt(request: Request) -> str:
    return "".join(chr(i) if i < 256 else "|" for i in request.prompt_ids)


async def test_a_whole_answer() -> None:
    backend = FakeBackend("Grüezi!", bursts=(3,), num_prefix_cached=5)
    reply = await create(backend)
    assert reply.id.startswith("chatcmpl-")
    assert (reply.object, reply.model) == ("chat.completion", MODEL)
    (choice,) = reply.choices
    assert (choice.index, choice.finish_reason, choice.logprobs) == (0, "stop", None)
    assert (choice.message.role, choice.message.content, choice.message.tool_calls) == ("assistant", "Grüezi!", None)
    prompt_length = len(backend.requests[0].prompt_ids)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (prompt_length, 8)
    assert reply.usage.total_tokens == prompt_length + 8
    assert reply.usage.prompt_tokens_details.cached_tokens == 5
    assert reply.usage.unmask == {"num_forwards": 3, "tokens_per_forward": 2.667}
    assert reply.usage.completion_tokens_details is None


async def test_the_raw_body_has_what_openai_requires() -> None:
    async with http_client(FakeBackend("hi")) as client:
        response = await client.post("/v1/chat/completions", json=body())
    assert response.headers["x-request-id"] == response.json()["id"]
    assert response.json()["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "hi", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]


async def test_length() -> None:
    reply = await create(FakeBackend("abcdef"), max_tokens=3)
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("abc", "length")
    assert reply.usage.completion_tokens == 3


async def test_an_empty_answer_is_text() -> None:
    reply = await create(FakeBackend(""))
    assert (reply.choices[0].message.content, reply.usage.completion_tokens) == ("", 0)


async def test_defaults_and_extension_reach_the_backend() -> None:
    backend = FakeBackend("x")
    client = openai_client(backend, default_mode=Mode.VERIFIED)
    await client.chat.completions.create(**body())
    diffusion = {"mode": "diffusion", "threshold": 0.7, "block_size": 16}
    await client.chat.completions.create(
        **body(temperature=0.5, top_p=0.9, seed=7, max_completion_tokens=5),
        extra_body={"top_k": 3, "diffusion": diffusion},
    )
    await client.chat.completions.create(**body(), extra_body={"diffusion": {"mode": "ar"}})
    first, second, third = (request.params for request in backend.requests)
    assert (first.mode, first.block_size, first.threshold) == (Mode.VERIFIED, None, None)
    assert (first.temperature, first.top_p, first.top_k, first.max_tokens) == (0.0, 1.0, 0, 256)
    assert (second.mode, second.block_size, second.threshold, second.num_steps) == (Mode.DIFFUSION, 16, 0.7, None)
    assert (second.temperature, second.top_p, second.top_k) == (0.5, 0.9, 3)
    assert (second.seed, second.max_tokens) == (7, 5)
    assert (third.mode, third.block_size, third.threshold) == (Mode.AR, None, None)


async def test_choices_share_prompt_and_seed() -> None:
    backend = FakeBackend(lambda request: f"answer {request.choice}")
    reply = await create(backend, n=3)
    assert [(c.index, c.message.content) for c in reply.choices] == [(i, f"answer {i}") for i in range(3)]
    assert [request.choice for request in backend.requests] == [0, 1, 2]
    assert len({(request.prompt_ids, request.params) for request in backend.requests}) == 1
    assert len({request.id for request in backend.requests}) == 3
    assert reply.usage.prompt_tokens == len(backend.requests[0].prompt_ids)
    assert reply.usage.completion_tokens == 24


async def test_every_kind_of_message_is_rendered() -> None:
    backend = FakeBackend("ok")
    function = {"name": "get_weather", "arguments": '{"city": "Bern"}'}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "assistant", "content": "Sunny.", "refusal": None, "annotations": [], "reasoning": "hm"},
        {"role": "user", "content": "thanks"},
    ]
    await create(backend, messages=messages)
    text = prompt(backend.requests[0])
    assert text == (
        "|system\nBe brief.|\n|user\none\ntwo|\n"
        '|assistant\n<tool_call>{"name": "get_weather", "arguments": {"city": "Bern"}}</tool_call>|\n'
        "|tool\nsunny|\n|assistant\nSunny.|\n|user\nthanks|\n|assistant\n"
    )


async def test_an_answer_can_be_sent_back_as_history() -> None:
    backend = FakeBackend(CALL_TEXT)
    reply = await create(backend, tools=[WEATHER])
    message = reply.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}
    for replayed in (message, message.model_dump(), message.to_dict()):
        await create(backend, messages=[USER, replayed, result], tools=[WEATHER])
        assert '{"name": "get_weather"' in prompt(backend.requests[-1])


async def test_tool_calls() -> None:
    backend = FakeBackend(f"Let me look.\n{CALL_TEXT}\n{CALL_TEXT}")
    reply = await create(backend, tools=[WEATHER])
    (choice,) = reply.choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Let me look.")
    assert [call.function.name for call in choice.message.tool_calls] == ["get_weather"] * 2
    assert [json.loads(call.function.arguments) for call in choice.message.tool_calls] == [{"city": "Zürich"}] * 2
    assert len({call.id for call in choice.message.tool_calls}) == 2
    assert "Weather of a city." in prompt(backend.requests[0])


async def test_only_calls_leave_content_null() -> None:
    async with http_client(FakeBackend(CALL_TEXT)) as client:
        response = await client.post("/v1/chat/completions", json=body(tools=[WEATHER]))
    message = response.json()["choices"][0]["message"]
    assert message["content"] is None
    assert set(message["tool_calls"][0]) == {"id", "type", "function"}


@pytest.mark.parametrize("changes", [{}, {"tools": []}, {"tools": [WEATHER], "tool_choice": "none"}])
async def test_without_tools_calls_are_text(changes: dict[str, Any]) -> None:
    backend = FakeBackend(CALL_TEXT)
    reply = await create(backend, **changes)
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == (CALL_TEXT, "stop")
    assert "Weather" not in prompt(backend.requests[0])


async def test_a_cut_call_is_text_and_says_length() -> None:
    reply = await create(FakeBackend(CALL_TEXT), tools=[WEATHER], max_tokens=20)
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == (CALL_TEXT[:20], "length")


@pytest.mark.parametrize("burst", [1, 7, 1000])
async def test_without_parallel_calls_the_first_ends_the_answer(burst: int) -> None:
    backend = FakeBackend(f"{CALL_TEXT}\n{CALL_TEXT}\n" + "x" * 100, bursts=(burst,), delay_s=0.001)
    reply = await create(backend, tools=[WEATHER], parallel_tool_calls=False)
    assert (len(reply.choices[0].message.tool_calls), reply.choices[0].finish_reason) == (1, "tool_calls")
    assert reply.usage.completion_tokens == len(CALL_TEXT.encode())
    assert backend.live == set()
    assert len(backend.completed) == (burst == 1000)


@pytest.mark.parametrize("burst", [1, 2, 3, 5, 1000])
async def test_stop_strings(burst: int) -> None:
    backend = FakeBackend("one two€ three" + "." * 100, bursts=(burst,))
    reply = await create(backend, stop=["€ t", "zzz"])
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == ("one two", "stop")
    assert reply.usage.completion_tokens == len("one two€ t".encode())
    assert backend.live == set()
    assert len(backend.completed) == (burst == 1000)


async def test_a_stop_string_that_never_comes_holds_nothing_back() -> None:
    reply = await create(FakeBackend("abc ab"), stop="abd")
    assert reply.choices[0].message.content == "abc ab"


async def stream(backend: FakeBackend, **changes: Any) -> list[Any]:
    async with http_client(backend) as client:
        response = await client.post("/v1/chat/completions", json=body(stream=True, **changes))
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return sse(response.text)


async def test_a_stream_event_by_event() -> None:
    events = await stream(FakeBackend("Grüezi", bursts=(3,)))
    assert events[-1] == "[DONE]"
    assert [event["choices"] for event in events[:-1]] == [
        [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]
        for delta, reason in [
            ({"role": "assistant", "content": ""}, None),
            ({"content": "Gr"}, None),
            ({"content": "üez"}, None),
            ({"content": "i"}, None),
            ({}, "stop"),
        ]
    ]
    assert len({(event["id"], event["created"], event["object"], event["model"]) for event in events[:-1]}) == 1
    assert all("usage" not in event for event in events[:-1])


async def test_stream_usage() -> None:
    events = await stream(FakeBackend("abc", bursts=(3,)), stream_options={"include_usage": True})
    assert [event["usage"] for event in events[:-2]] == [None] * (len(events) - 2)
    assert events[-2]["choices"] == []
    assert events[-2]["usage"]["completion_tokens"] == 3
    assert events[-2]["usage"]["unmask"] == {"num_forwards": 1, "tokens_per_forward": 3.0}


async def test_streamed_calls_come_whole_in_one_delta() -> None:
    events = await stream(FakeBackend(f"Look:\n{CALL_TEXT}\n{CALL_TEXT}", bursts=(1,)), tools=[WEATHER])
    deltas = [event["choices"][0]["delta"] for event in events[:-1]]
    calls = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
    assert [set(call) for (call,) in calls] == [{"index", "id", "type", "function"}] * 2
    assert [call["index"] for (call,) in calls] == [0, 1]
    assert [call["function"] for (call,) in calls] == [{"name": "get_weather", "arguments": '{"city": "Zürich"}'}] * 2
    assert "".join(delta.get("content", "") for delta in deltas) == "Look:"
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("bursts", [(1,), (2, 1), (5,), (1, 40), (1000,)])
async def test_the_openai_accumulator_rebuilds_the_whole_answer(bursts: tuple[int, ...]) -> None:
    text = f"Grüße an 👋 alle.\n{CALL_TEXT}{CALL_TEXT}"
    client = openai_client(FakeBackend(text, bursts=bursts))
    async with client.chat.completions.stream(**body(tools=[WEATHER], n=2)) as running:
        async for _ in running:
            pass
        streamed = await running.get_final_completion()
    whole = await client.chat.completions.create(**body(tools=[WEATHER], n=2))
    for one, other in zip(streamed.choices, whole.choices, strict=True):
        assert one.finish_reason == other.finish_reason == "tool_calls"
        assert one.message.content == other.message.content == "Grüße an 👋 alle."
        assert [c.function.arguments for c in one.message.tool_calls or []] == ['{"city": "Zürich"}'] * 2
        assert [c.function.arguments for c in other.message.tool_calls or []] == ['{"city": "Zürich"}'] * 2


@pytest.mark.parametrize("bursts", list(itertools.product((1, 2, 3), (1, 4))))
async def test_a_stop_string_never_shows_in_a_stream(bursts: tuple[int, ...]) -> None:
    backend = FakeBackend("aab aabaaab rest" * 5, bursts=bursts)
    events = await stream(backend, stop="aaab")
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1]) == "aab aab"
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert backend.live == set()


async def test_choices_stream_side_by_side() -> None:
    backend = FakeBackend(lambda request: "ab" * (request.choice + 1), bursts=(1,))
    events = await stream(backend, n=2)
    texts = ["", ""]
    for event in events[:-1]:
        (choice,) = event["choices"]
        texts[choice["index"]] += choice["delta"].get("content", "")
    assert texts == ["ab", "abab"]


async def test_same_seed_same_params_and_none_follows_from_the_id() -> None:
    backend = FakeBackend("x")
    await create(backend, seed=-1)
    await create(backend)
    await create(backend)
    seeds = [request.params.seed for request in backend.requests]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert len(set(seeds)) == 3


async def test_harmless_fields_are_taken() -> None:
    reply = await create(
        FakeBackend("x"),
        user="u",
        metadata={"a": "b"},
        store=False,
        logprobs=False,
        logit_bias={},
        frequency_penalty=0,
        presence_penalty=0.0,
        response_format={"type": "text"},
        modalities=["text"],
        service_tier="auto",
        parallel_tool_calls=True,
        stop=None,
        tool_choice="auto",
    )
    assert reply.choices[0].message.content == "x"


async def test_a_failure_before_the_stream_is_a_status() -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        await create(FakeBackend("x", fails_after=0), stream=True)
    assert (caught.value.code, caught.value.type) == ("engine_error", "server_error")


async def test_a_failure_inside_the_stream_is_its_last_event() -> None:
    backend = FakeBackend("abcdef", bursts=(1,), fails_after=2)
    events = await stream(backend)
    assert events[-1] == {
        "error": {"message": "the engine broke", "type": "server_error", "param": None, "code": "engine_error"}
    }
    with pytest.raises(openai.APIError, match="the engine broke"):
        async for _ in await create(backend, stream=True):
            pass
    assert backend.live == set()


async def test_one_choice_failing_frees_the_others() -> None:
    backend = FakeBackend("abc" * 50, capacity=2, delay_s=0.001)
    with pytest.raises(openai.RateLimitError):
        await create(backend, n=3)
    assert backend.completed == []
    assert (await create(backend, n=2)).choices[1].message.content == "abc" * 50
