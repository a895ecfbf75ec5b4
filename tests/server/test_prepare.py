import json
from typing import Any

import pytest

from tests.server.bad_fields import BAD_FIELDS
from tests.server.serving import WEATHER, body, served
from unmask.core.errors import RequestError
from unmask.server.prepare import PreparedChat, prepare


def prepared(chat_id: str = "chatcmpl-1", **changes: Any) -> PreparedChat:
    return prepare(json.dumps(body(**changes)).encode(), served(), chat_id)


@pytest.mark.parametrize(
    ("changes", "param", "code"), BAD_FIELDS, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_bad_field_is_named(changes: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        prepared(**changes)
    assert (caught.value.param, caught.value.code or "") == (param, code)


def test_look_up_drafts_reach_the_engine() -> None:
    params = prepared(diffusion={"mode": "ar", "lookup": 8}).requests[0].params
    assert (params.mode, params.lookup) == ("ar", 8)


def test_the_answers_id_is_the_seed_of_last_resort() -> None:
    assert prepared("chatcmpl-1") == prepared("chatcmpl-1")
    assert prepared("chatcmpl-1").requests[0].params.seed != prepared("chatcmpl-2").requests[0].params.seed


def test_the_prompt_does_not_depend_on_the_order_of_a_tools_fields() -> None:
    function = dict(reversed(WEATHER["function"].items()))
    tools = [{"function": {"strict": False, **function}, "type": "function"}]
    assert prepared(tools=tools).requests[0].prompt_ids == prepared(tools=[WEATHER]).requests[0].prompt_ids


def test_null_means_absent() -> None:
    names = (
        "tools",
        "tool_choice",
        "stop",
        "max_tokens",
        "temperature",
        "top_p",
        "seed",
        "n",
        "stream",
        "stream_options",
    )
    others = ("response_format", "logprobs", "functions", "diffusion", "user", "metadata", "parallel_tool_calls")
    assert prepared(**dict.fromkeys(names + others)) == prepared()
