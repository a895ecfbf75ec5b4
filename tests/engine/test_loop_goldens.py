"""Answers of dllm's block-causal sampler (A2D checkpoints, BD3LM) that the engine must reproduce."""

import json
from pathlib import Path

import pytest

from tests.engine.running import ask, engine, run
from unmask.core.request import Mode
from unmask.models.linear import TiledLinear
from unmask.models.loading import load

GOLDENS = Path(__file__).parents[1] / "goldens" / "a2d"

# A prompt of whole blocks (dllm pads others on the left, which moves the blocks) and one commit a forward (its other
# schedules are no fixed quota).
CASES = [("qwen2-tied", "bd3-eos", 4)]


@pytest.mark.parametrize(("checkpoint", "name", "num_steps"), CASES)
def test_bd3lm_answers(checkpoint: str, name: str, num_steps: int, tmp_path: Path) -> None:
    raw = json.loads((GOLDENS / checkpoint / "config.json").read_text())
    cases = {case["name"]: case for case in json.loads((GOLDENS / checkpoint / "cases.json").read_text())["cases"]}
    case = cases[name]
    raw["architectures"] = [raw["architectures"][0].removeprefix("A2D").replace("LMHeadModel", "ForCausalLM")]
    raw["unmask"] = {
        "mask_token_id": raw["mask_token_id"],
        "attention": "block_causal",
        "block_size": case["parameters"]["block_size"],
        "logit_shift": 0,
    }
    (tmp_path / "config.json").write_text(json.dumps(raw))
    (tmp_path / "model.safetensors").symlink_to(GOLDENS / checkpoint / "model.safetensors")
    (prompt,) = case["inputs"]
    request = ask(
        "r",
        prompt,
        mode=Mode.DIFFUSION,
        max_tokens=case["parameters"]["max_new_tokens"],
        num_steps=num_steps,
    )
    with engine(load(tmp_path, linear=TiledLinear)) as loop:
        heard = run(loop, [request])["r"]
    (wanted,) = case["output_ids"]
    assert prompt + heard.ids == wanted
    num_blocks = case["parameters"]["max_new_tokens"] // case["parameters"]["block_size"]
    assert heard.num_forwards == case["nfe"] - num_blocks, "storing a block rides along with the next one's first step"
