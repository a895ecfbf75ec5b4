"""Writes general.jsonl: the base model's own greedy answers to general prompts, mixed into training.

python benchmarks/default_model/general_answers.py BASE_FOLDER > benchmarks/default_model/general.jsonl
"""

import json
import sys
import threading
from pathlib import Path

from unmask.core.errors import UnmaskError
from unmask.core.request import Chunk, FinishReason, Mode, Request, SamplingParams
from unmask.engine.loop import EngineLoop
from unmask.engine.settings import EngineSettings
from unmask.models.linear import Int8Linear
from unmask.models.loading import load
from unmask.text.chat import ChatTemplate
from unmask.text.tokenizer import Tokenizer

TOPICS = (
    "gravity", "photosynthesis", "the water cycle", "a black hole", "inflation", "democracy", "evolution",
    "electricity",
    "a volcano", "the internet", "machine learning", "a computer virus", "the moon", "vitamins", "recycling", "jazz",
    "chess", "yoga", "an algorithm", "a database", "climate change", "magnetism", "a vaccine", "the stock market",
)  # fmt: skip
TASKS = (
    "What is {}?",
    "Explain {} in one sentence.",
    "Explain {} to a child.",
    "Why is {} important?",
    "Tell me a fun fact about {}.",
)
SINGLE = (
    "Write a haiku about autumn.", "Give me three tips for better sleep.", "How do I boil an egg?",
    "Write a short poem about the sea.", "What should I cook for dinner?", "How can I learn to play the guitar?",
    "Suggest a name for a cat.", "Write a birthday wish for a friend.", "How do I make coffee?",
    "What are the benefits of walking?", "Name five fruits.", "List the planets of the solar system.",
    "How many days are in a year?", "Write a tagline for a bakery.", "What makes a good leader?",
    "Give me a synonym for happy.", "Write a thank-you note to a teacher.", "How do airplanes fly?",
    "What is the largest ocean?", "Who wrote Romeo and Juliet?", "How do I write a cover letter?",
    "What causes rain?", "How do bees make honey?", "What is the boiling point of water?",
)  # fmt: skip
MAX_TOKENS = 40


def main() -> None:
    base = Path(sys.argv[1])
    prompts = [task.format(topic) for task in TASKS for topic in TOPICS] + list(SINGLE)
    loaded = load(base, linear=Int8Linear)
    tokenizer = Tokenizer.load(base, loaded.traits.eos_ids)
    template = ChatTemplate.load(base / "chat_template.jinja")
    loop = EngineLoop(loaded, EngineSettings(mode=Mode.AR))
    answers: dict[str, list[int]] = {prompt: [] for prompt in prompts}
    done = threading.Semaphore(0)
    whole: set[str] = set()

    failures: list[UnmaskError] = []

    def listen(prompt: str, item: Chunk | UnmaskError) -> None:
        if isinstance(item, UnmaskError):
            failures.append(item)
        else:
            answers[prompt] += item.token_ids
            if item.finish_reason is FinishReason.STOP:
                whole.add(prompt)
        if isinstance(item, UnmaskError) or item.finish_reason is not None:
            done.release()

    for prompt in prompts:
        ids = tokenizer.encode(template.render([{"role": "user", "content": prompt}]))
        params = SamplingParams(max_tokens=MAX_TOKENS)
        loop.submit(Request(id=prompt, prompt_ids=tuple(ids), params=params), lambda c, p=prompt: listen(p, c))
    for _ in prompts:
        done.acquire()
    if failures:
        raise SystemExit(f"generation failed: {failures[0]}")
    loop.close()
    for prompt in prompts:
        text = tokenizer.decode(answers[prompt])
        if prompt not in whole:  # keep whole sentences only
            text = text[: max(text.rfind(mark) for mark in ".!?") + 1]
        if len(text.split()) >= 3:
            print(json.dumps({"prompt": prompt, "answer": text.strip()}, ensure_ascii=False))


if __name__ == "__main__":
    main()
