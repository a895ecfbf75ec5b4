from pathlib import Path
from typing import Any

import pytest

from unmask.core.errors import CheckpointError, RequestError
from unmask.models.smol_agent import TEMPLATE
from unmask.text.chat import ChatTemplate

USER = {"role": "user", "content": "Weather in Zürich?"}
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "unit": {"enum": ["celsius", "fahrenheit"]},
                "days": {"type": "array", "items": {"type": "integer"}, "description": "from today"},
            },
            "required": ["city"],
        },
    },
}


def call(arguments: str) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": arguments}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": function}]}


@pytest.fixture(scope="module")
def ours() -> ChatTemplate:
    return ChatTemplate.load(TEMPLATE)


def test_the_embedded_template_writes_tools_in_one_line_each(ours: ChatTemplate) -> None:
    assert ours.render([{"role": "system", "content": "Be brief."}, USER], [TOOL]) == (
        "<|im_start|>system\nBe brief.\nTools:\n"
        "get_weather(city: string, unit?: celsius|fahrenheit, days?: integer[] (from today)) Weather of a city.\n"
        "<|im_end|>\n<|im_start|>user\nWeather in Zürich?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_calls_in_the_history_keep_the_models_own_text(ours: ChatTemplate) -> None:
    for arguments in ('{"city":"Zürich","days":[1,  2]}', '{"city": 1.0}', "not json", "[1]", "{}"):
        text = ours.render([USER, call(arguments)], add_generation_prompt=False)
        assert f'<tool_call>{{"name": "get_weather", "arguments": {arguments}}}</tool_call><|im_end|>' in text


def test_hugging_face_templates_see_arguments_as_an_object() -> None:
    source = (
        "{%- for call in messages[0].tool_calls %}{{ call.function.arguments | tojson }}"
        "{%- for name, value in call.function.arguments.items() %} {{ name }}={{ value }}{% endfor %}{% endfor %}"
    )
    assert ChatTemplate(source).render([call('{"city":"Zürich"}')]) == '{"city":"Zürich"} city=Zürich'


def test_templates_may_use_special_tokens_and_loop_controls() -> None:
    source = "{{ bos_token }}{% for i in range(5) %}{% if i > 1 %}{% break %}{% endif %}{{ i }}{% endfor %}"
    assert ChatTemplate(source, {"bos_token": "<s>"}).render([]) == "<s>01"


def test_the_clock_is_not_offered() -> None:
    assert ChatTemplate("{{ 'now' if strftime_now is defined else 'then' }}").render([]) == "then"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages[0].content + 1 }}",
        "{{ messages[7].content.x }}",
        "{{ 1 // (messages | length - 1) }}",
        "{{ messages[0].content.__class__.__mro__ }}",
        "{{ strftime_now('%Y') }}",
        "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    ],
)
def test_what_a_template_refuses_is_the_requests_fault(source: str) -> None:
    with pytest.raises(RequestError, match="the chat template refuses") as refused:
        ChatTemplate(source).render([USER])
    assert refused.value.param == "messages"


def test_templates_cannot_change_what_they_are_given() -> None:
    messages = [dict(USER)]
    with pytest.raises(RequestError):
        ChatTemplate("{{ messages[0].update({'content': 'x'}) }}").render(messages)
    assert messages == [USER]


def test_templates_that_do_not_compile(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="does not compile"):
        ChatTemplate("{% for %}")
    with pytest.raises(CheckpointError, match="does not exist"):
        ChatTemplate.load(tmp_path / "none.jinja")
    (tmp_path / "bytes.jinja").write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match="cannot read"):
        ChatTemplate.load(tmp_path / "bytes.jinja")
