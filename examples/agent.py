"""A whole agent: it calls Python functions until it has an answer. Start the server first: `unmask serve`.

python examples/agent.py [URL]
"""

import json
import sys

from openai import OpenAI


def convert_currency(amount: float, source: str, target: str) -> dict[str, float]:
    per_euro = {"EUR": 1.0, "USD": 1.09, "CHF": 0.95}
    return {"result": round(amount * per_euro[target] / per_euro[source], 2)}


def set_timer(minutes: int) -> dict[str, str]:
    return {"status": "started", "minutes": str(minutes)}


FUNCTIONS = {"convert_currency": convert_currency, "set_timer": set_timer}
CURRENCY = {"enum": ["EUR", "USD", "CHF"]}
PARAMETERS = {
    "convert_currency": {"amount": {"type": "number"}, "source": CURRENCY, "target": CURRENCY},
    "set_timer": {"minutes": {"type": "integer"}},
}
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": own, "required": list(own)}},
    }
    for name, own in PARAMETERS.items()
]


def main(url: str) -> None:
    client = OpenAI(base_url=url, api_key="none")
    model = client.models.list().data[0].id
    messages = [{"role": "user", "content": "How much is 80 dollars in euros?"}]
    for _ in range(4):
        message = client.chat.completions.create(model=model, messages=messages, tools=TOOLS).choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            print("answer:", message.content)
            break
        for call in message.tool_calls:
            try:
                result = FUNCTIONS[call.function.name](**json.loads(call.function.arguments))
            except (KeyError, TypeError) as error:
                result = {"error": repr(error)}
            print("call:  ", call.function.name, call.function.arguments, "->", result)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1")
