"""A model in this process, without a server: many prompts at once, in every mode.

python examples/offline.py [MODEL]
"""

import sys

from unmask import LLM, SamplingParams

PROMPTS = ["What is the capital of France?", "Name three colours.", "Write a haiku about rain."]


def main(model: str) -> None:
    with LLM(model, progress=print) as llm:
        for mode in ("ar", "verified", "diffusion"):
            print(f"--- {mode}")
            completions = llm.generate(PROMPTS, SamplingParams(max_tokens=48, mode=mode))
            for prompt, completion in zip(PROMPTS, completions, strict=True):
                print(f"{prompt}\n  {completion.text}")
                print(f"  {completion.num_forwards} forwards, {completion.tokens_per_forward:.2f} tokens per forward")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "smol-agent")
