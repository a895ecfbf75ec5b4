"""One tool call through the OpenAI API. Start the server first: `unmask serve`.

python examples/tools.py [URL]
"""

import json
import sys

from openai import OpenAI

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "unit": {"enum": ["celsius", "fahrenheit"]}},
            "required": ["city"],
        },
    },
}


def main(url: str) -> None:
    client = OpenAI(base_url=url, api_key="none")
    model = client.models.list().data[0].id
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "How warm is it in Lisbon, in Celsius?"}],
        tools=[WEATHER],
        extra_body={"diffusion": {"mode": "verified"}},  # unmask's own options; see docs/glossary.md
    )
    message = answer.choices[0].message
    for call in message.tool_calls or []:
        print("call: ", call.function.name, json.loads(call.function.arguments))
    if message.content:
        print("text: ", message.content)
    print("usage:", answer.usage.completion_tokens, "tokens,", answer.usage.model_extra["unmask"])


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1")
