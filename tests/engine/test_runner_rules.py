"""Random-order and uniform-noise rules through the runner and its cache equal the slow, obvious loop, to the bit."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from tests.engine.running import engine, mixed_requests, run, wanted, whole_canvas
from tests.models.random_weights import random_loaded
from unmask.cache.block_causal import BlockCausalCache
from unmask.decoding import reference
from unmask.decoding.ancestral import Ancestral, FirstHitting
from unmask.decoding.fixed_canvas import FixedCanvas
from unmask.decoding.randomness import RandomStream
from unmask.decoding.renoise import UniformRenoise
from unmask.decoding.rules import DecodingRule, Window, is_finished, visible_answer
from unmask.decoding.sampling import Sampling
from unmask.engine.runner import denoise
from unmask.engine.sequence import Decoding
from unmask.engine.settings import cache_shape
from unmask.models.linear import Int8Linear, LinearFactory, TiledLinear
from unmask.models.loading import Loaded, load

GOLDENS = Path(__file__).parents[1] / "goldens"
ONE = Sampling(temperature=1.0)
PROMPTS = ([256], [256, 5, 90, 17, 230], [256, *range(1, 12)])

pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per")


def opened(name: str, folder: Path, linear: LinearFactory = TiledLinear) -> Loaded:
    """The checkpoint by itself: the expected logits lie beside it as a safetensors file too."""
    (folder / "config.json").write_text((GOLDENS / name / "config.json").read_text())
    save_file(load_file(GOLDENS / name / "model.safetensors"), folder / "model.safetensors")
    return load(folder, linear=linear)


def assert_equals_reference(loaded: Loaded, rule: DecodingRule, prompts: list[np.ndarray], max_tokens: int) -> None:
    """All prompts in one batch, each compared with a run by itself."""
    shape, ends = cache_shape(loaded.config, loaded.traits), loaded.traits.eos_ids
    streams = [RandomStream(seed=seed) for seed in range(len(prompts))]
    batch = [
        Decoding(rule=rule, random=random, canvas=rule.begin(prompt, max_tokens), cache=BlockCausalCache(shape))
        for prompt, random in zip(prompts, streams, strict=True)
    ]
    while running := [sequence for sequence in batch if not is_finished(sequence.canvas, ends)]:
        denoise(loaded.model, [(sequence, 64) for sequence in running])
    for sequence, prompt, random in zip(batch, prompts, streams, strict=True):
        ids, num_forwards = reference.generate(
            whole_canvas(loaded), rule, prompt, max_tokens=max_tokens, eos_ids=ends, random=random, align=shape.align
        )
        assert visible_answer(sequence.canvas, ends).tolist() == ids.tolist()
        assert sequence.num_forwards == num_forwards
    assert max(sequence.num_forwards for sequence in batch) > 3


@pytest.mark.parametrize("linear", [TiledLinear, Int8Linear])
def test_bd3lm_by_confidence(linear: LinearFactory, tmp_path: Path) -> None:
    loaded = opened("bd3lm/block4", tmp_path, linear)
    requests = mixed_requests(loaded, 9, longest=16, max_tokens=14)
    with engine(loaded) as loop:
        heard = run(loop, requests)
    for request in requests:
        assert (heard[request.id].ids, heard[request.id].num_forwards) == wanted(loaded, request), request
    assert sum(len(listening.ids) for listening in heard.values()) > 20


@pytest.mark.parametrize("linear", [TiledLinear, Int8Linear])
def test_bd3lm_by_first_hitting(linear: LinearFactory, tmp_path: Path) -> None:
    loaded = opened("bd3lm/block4", tmp_path, linear)
    window = Window(size=4, align=4, mask_token_id=257, eos_ids=loaded.traits.eos_ids)
    rule = FirstHitting(window=window, sampling=ONE, nucleus_p=0.9)
    assert_equals_reference(loaded, rule, [np.array(prompt) for prompt in PROMPTS], 14)


def test_mdlm_by_ancestral_sampling(tmp_path: Path) -> None:
    loaded = opened("mdlm/small", tmp_path)
    layout = FixedCanvas(mask_token_id=257, eos_ids=loaded.traits.eos_ids)
    rule = Ancestral(layout=layout, sampling=ONE, num_steps=8)
    assert_equals_reference(loaded, rule, [np.array(prompt) for prompt in PROMPTS], 12)


def test_uniform_noise_over_a_causal_context() -> None:
    loaded = random_loaded()
    rule = UniformRenoise(size=6, vocab_size=48, eos_ids=loaded.traits.eos_ids, num_steps=5, entropy_bound=2.0)
    assert_equals_reference(loaded, rule, [np.array([8]), np.arange(10, 25), np.array([3, 7, 9])], 15)
