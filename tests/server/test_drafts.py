import pytest

from tests.fakes import ByteTokenizer, FakeBackend
from tests.server.serving import body, openai_client
from unmask.server.drafts import MASK, read_draft

pytestmark = pytest.mark.anyio


async def test_drafts_ride_beside_the_content() -> None:
    options = {"include_drafts": True}
    stream = await openai_client(FakeBackend("abcdef")).chat.completions.create(
        **body(stream=True), extra_body={"stream_options": options}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "abcdef"
    (shown,) = [chunk for chunk in chunks if "unmask" in (chunk.model_extra or {})]
    assert shown.choices[0].delta.content is None
    draft = shown.model_extra["unmask"]["draft"]
    masks = [{"position": 4, "text": None}, {"position": 5, "text": None}]
    assert draft == {"text": MASK * 2, "tokens": masks, "num_forwards": 1}


async def test_no_drafts_unless_asked_for() -> None:
    backend = FakeBackend("abcdef")
    stream = await openai_client(backend).chat.completions.create(**body(stream=True))
    assert not any("unmask" in (chunk.model_extra or {}) for chunk in [chunk async for chunk in stream])
    assert not backend.requests[0].drafts


def test_a_letter_of_two_tokens_is_whole_in_the_text() -> None:
    draft = read_draft((-1, *"é".encode()), 3, 1, ByteTokenizer()).draft
    assert (draft.text, [token.position for token in draft.tokens]) == (MASK + "é", [3, 4, 5])


async def test_completions_show_drafts_too() -> None:
    fields = {"model": body()["model"], "prompt": "x", "stream": True}
    stream = await openai_client(FakeBackend("abcdef")).completions.create(
        **fields, extra_body={"stream_options": {"include_drafts": True, "include_usage": True}}
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == "abcdef"
    (shown,) = [chunk.model_extra["unmask"] for chunk in chunks if "unmask" in (chunk.model_extra or {})]
    assert shown["draft"]["text"] == MASK * 2
    assert chunks[-1].usage is not None
