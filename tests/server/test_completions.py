"""POST /v1/completions through the openai client, and every way we know to get a field wrong."""

from typing import Any

import pytest

from tests.fakes import FakeBackend
from tests.server.serving import MODEL, http_client, openai_client, sse
from tests.server.test_server_bad_input import error_of
from unmask.core.request import Mode
from unmask.server.completions import REFUSED, CompletionRequest

pytestmark = pytest.mark.anyio
URL = "/v1/completions"


async def create(backend: FakeBackend, **changes: Any) -> Any:
    return await openai_client(backend).completions.create(**{"model": MODEL, "prompt": "ab", **changes})


async def test_a_whole_answer() -> None:
    backend = FakeBackend("Grüezi!", num_prefix_cached=1)
    reply = await create(backend, prompt="a<|im_end|>")
    assert reply.id.startswith("cmpl-")
    assert (reply.object, reply.model) == ("text_completion", MODEL)
    (choice,) = reply.choices
    assert (choice.text, choice.finish_reason, choice.logprobs) == ("Grüezi!", "stop", None)
    assert backend.requests[0].prompt_ids == (97, 257)
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (2, 8, 10)
    assert reply.usage.prompt_tokens_details.cached_tokens == 1


async def test_settings_reach_the_backend() -> None:
    backend = FakeBackend("abcdef")
    fields = {"temperature": 0.5, "top_p": 0.9, "seed": 7, "max_tokens": 3}
    reply = await create(backend, **fields, extra_body={"top_k": 3, "diffusion": {"mode": "ar"}})
    params = backend.requests[0].params
    assert (params.temperature, params.top_p, params.seed, params.max_tokens, params.top_k) == (0.5, 0.9, 7, 3, 3)
    assert params.mode is Mode.AR
    assert (reply.choices[0].text, reply.choices[0].finish_reason) == ("abc", "length")


@pytest.mark.parametrize("prompt", [["ab", "c"], [[97, 98], [99]]])
async def test_prompts_times_choices(prompt: Any) -> None:
    backend = FakeBackend(lambda request: f"{bytes(request.prompt_ids).decode()}{request.choice}", num_prefix_cached=1)
    reply = await create(backend, prompt=prompt, n=2)
    assert [(c.index, c.text) for c in reply.choices] == [(0, "ab0"), (1, "ab1"), (2, "c2"), (3, "c3")]
    assert (reply.usage.prompt_tokens, reply.usage.prompt_tokens_details.cached_tokens) == (3, 2)


async def test_one_prompt_of_ids() -> None:
    backend = FakeBackend("x")
    await create(backend, prompt=[5, 257])
    assert backend.requests[0].prompt_ids == (5, 257)


async def test_stop() -> None:
    reply = await create(FakeBackend("one two three"), stop=" t")
    assert (reply.choices[0].text, reply.choices[0].finish_reason) == ("one", "stop")


async def test_a_stream_is_the_whole_answer_in_pieces() -> None:
    stream = await create(FakeBackend("Grüezi!", bursts=(3,)), stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks[:-1]) == "Grüezi!"
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]][-1] == "stop"
    assert (chunks[-1].choices, chunks[-1].usage.completion_tokens) == ([], 8)
    assert all(chunk.usage is None for chunk in chunks[:-1])


async def test_a_stream_without_usage_has_no_such_field() -> None:
    async with http_client(FakeBackend("x")) as client:
        response = await client.post(URL, json={"model": MODEL, "prompt": "a", "stream": True})
    *events, last = sse(response.text)
    assert last == "[DONE]"
    assert all("usage" not in event for event in events)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"prompt": None}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": True}, "prompt"),
    ({"prompt": {"a": 1}}, "prompt"),
    ({"prompt": ["a", 5]}, "prompt"),
    ({"prompt": [True]}, "prompt"),
    ({"prompt": [1.5]}, "prompt"),
    ({"prompt": [[]]}, "prompt"),
    ({"prompt": [[[5]]]}, "prompt"),
    ({"prompt": [["a"]]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [258]}, "prompt"),
    ({"prompt": [10**30]}, "prompt"),
    ({"prompt": ["a"] * 33}, "prompt"),
    ({"prompt": ["a"] * 9, "n": 4}, "prompt"),
    ({"prompt": "a" * 5000}, "prompt"),
    ({"prompt": "a" * 200_000}, "prompt"),
    ({"model": 3}, "model"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 10**9}, "max_tokens"),
    ({"max_completion_tokens": 5}, "max_completion_tokens"),
    ({"n": 9}, "n"),
    ({"stop": ["a"] * 5}, "stop"),
    ({"temperature": 3}, "temperature"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"diffusion": {"mode": "warp"}}, "diffusion.mode"),
    ({"messages": []}, "messages"),
    ({"echo": True}, "echo"),
    ({"best_of": 2}, "best_of"),
    ({"logprobs": 0}, "logprobs"),
    ({"suffix": "b"}, "suffix"),
    ({"logit_bias": {"5": 1}}, "logit_bias"),
    ({"presence_penalty": 1}, "presence_penalty"),
    ({"frequency_penalty": 1}, "frequency_penalty"),
]


async def test_bad_fields_are_named_and_the_server_goes_on() -> None:
    backend = FakeBackend("x")
    async with http_client(backend) as client:
        for changes, param in BAD:
            response = await client.post(URL, json={"model": MODEL, "prompt": "a", **changes})
            assert (response.status_code, error_of(response)["param"]) == (400, param), changes
        assert backend.requests == []
        assert (await client.post(URL, json={"model": MODEL, "prompt": "a"})).status_code == 200


def test_every_field_of_openai_is_honoured_or_refused() -> None:
    from openai.types.completion_create_params import CompletionCreateParamsNonStreaming

    theirs = set(CompletionCreateParamsNonStreaming.__annotations__)
    assert theirs <= set(CompletionRequest.model_fields) | set(REFUSED)
