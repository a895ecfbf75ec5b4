"""Text as it becomes final; several tokens may arrive at once. Start the server first: `unmask serve`.

python examples/streaming.py [URL]
"""

import sys

from openai import OpenAI


def main(url: str) -> None:
    client = OpenAI(base_url=url, api_key="none")
    model = client.models.list().data[0].id
    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Explain photosynthesis in two sentences."}],
        max_tokens=120,
        stream=True,
        stream_options={"include_usage": True},
    )
    for chunk in stream:
        for choice in chunk.choices:
            print(choice.delta.content or "", end="", flush=True)
        if chunk.usage:
            print(f"\n[{chunk.usage.completion_tokens} tokens, {chunk.usage.model_extra['unmask']}]")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000/v1")
