"""Same seed, same answer, whatever else the engine is doing; other seeds, other answers.

python examples/seeds.py [MODEL]
"""

import sys

from unmask import LLM, SamplingParams


def main(model: str) -> None:
    prompt = "Invent a name for a coffee shop."
    params = [SamplingParams(max_tokens=24, temperature=0.8, seed=seed) for seed in (1, 2, 3)]
    with LLM(model, progress=print) as llm:
        alone = llm.generate(prompt, params[0])[0]
        together = llm.generate([prompt] * 3, params)
        for own, completion in zip(params, together, strict=True):
            print(f"seed {own.seed}: {completion.text}")
        assert together[0] == alone, "an answer depends on its request and its seed, not on its company"
        ar = llm.generate(prompt, SamplingParams(max_tokens=24, temperature=0.8, seed=1, mode="ar"))[0]
        verified = llm.generate(prompt, SamplingParams(max_tokens=24, temperature=0.8, seed=1, mode="verified"))[0]
        assert ar.token_ids == verified.token_ids, "verified drafts change the speed, never the answer"
        print(f"ar took {ar.num_forwards} forwards, verified {verified.num_forwards}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "smol-agent")
