"""The engine equals the slow, obvious loop of decoding/reference.py: same ids, same number of forwards."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.engine.running import Listening, answers, ask, engine, mixed_requests, run, wanted
from tests.models.random_weights import EOS, MASK, random_loaded
from unmask.core.canvas import BoolArray, IntArray
from unmask.core.request import FinishReason, Mode, Request
from unmask.engine.loop import EngineLoop
from unmask.models.config import AttentionPattern
from unmask.models.linear import Int8Linear, LinearFactory, TiledLinear
from unmask.models.loading import Loaded
from unmask.models.transformer import masked_attention

pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per")  # of torch, once a process

CAUSAL, BLOCKS = AttentionPattern.CAUSAL_CONTEXT, AttentionPattern.BLOCK_CAUSAL


def assert_equals_reference(
    loaded: Loaded, heard: Mapping[str, Listening], requests: Sequence[Request], *, forwards: bool = True
) -> None:
    for request in requests:
        ids, num_forwards = wanted(loaded, request)
        assert heard[request.id].ids == ids, request
        if forwards:
            assert heard[request.id].num_forwards == num_forwards, request


@pytest.mark.parametrize("linear", [TiledLinear, Int8Linear])
@pytest.mark.parametrize("attention", [CAUSAL, BLOCKS])
@pytest.mark.parametrize("shift", [0, 1])
def test_engine_equals_reference(linear: LinearFactory, attention: AttentionPattern, shift: int) -> None:
    loaded = random_loaded(attention=attention, logit_shift=shift, linear=linear, seed=shift)
    requests = mixed_requests(loaded, 18, seed=shift)
    with engine(loaded, max_prefill_rows=2000) as loop:
        heard = run(loop, requests)
    assert_equals_reference(loaded, heard, requests)
    reasons = {listening.reason for listening in heard.values()}
    assert reasons == {FinishReason.STOP, FinishReason.LENGTH}, "the requests are too alike to show anything"


@pytest.mark.parametrize("attention", [CAUSAL, BLOCKS])
def test_engine_equals_an_independent_attention(attention: AttentionPattern) -> None:
    """The same with torch's own attention under the visibility matrix in place of our kernel."""
    loaded = random_loaded(attention=attention, qk_norm=True, tied=False, num_heads=6, num_kv_heads=3)

    def model(ids_L: IntArray, visible_LL: BoolArray) -> Tensor:
        attend = masked_attention(torch.from_numpy(visible_LL))
        with torch.inference_mode():
            return loaded.model.head(loaded.model(torch.from_numpy(ids_L), torch.arange(len(ids_L)), attend))

    requests = mixed_requests(loaded, 9)
    with engine(loaded) as loop:
        heard = run(loop, requests)
    for request in requests:
        assert heard[request.id].ids == wanted(loaded, request, model)[0], request


def test_block_size_7_aligned() -> None:
    """Blocks that divide neither the chunk of the cache nor the tile of the products."""
    loaded = random_loaded(attention=BLOCKS, block_size=7)
    requests = mixed_requests(loaded, 9, longest=150)
    with engine(loaded, max_prefill_rows=2000) as loop:
        assert_equals_reference(loaded, run(loop, requests), requests)


@pytest.mark.parametrize("attention", [CAUSAL, BLOCKS])
def test_answers_that_cross_the_caches_chunks(attention: AttentionPattern) -> None:
    loaded = random_loaded(attention=attention)
    requests = [
        ask("a", [5] * 120, max_tokens=20, mode=Mode.DIFFUSION, threshold=0.5),
        ask("b", list(np.arange(250) % 40 + 8), max_tokens=12, mode=Mode.DIFFUSION, threshold=1.0),
        ask("c", [9] * 380, max_tokens=8, mode=Mode.DIFFUSION, num_steps=1),
    ]
    if attention is CAUSAL:
        requests += [
            ask("d", [9] * 120, max_tokens=12, mode=Mode.AR, seed=3, temperature=1.5),
            ask("e", [9] * 121, max_tokens=12, mode=Mode.VERIFIED, block_size=1, seed=3, temperature=1.5),
        ]
    with engine(loaded, max_prefill_rows=2000) as loop:
        assert_equals_reference(loaded, run(loop, requests), requests)


@pytest.fixture(scope="module")
def odd() -> Iterator[tuple[Loaded, EngineLoop]]:
    loaded = random_loaded()
    with engine(loaded) as loop:
        yield loaded, loop


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("block_size", [1, 2, 40])
@pytest.mark.parametrize("prompt", [[5], [MASK], [EOS], [0, 47], [EOS, MASK, EOS, MASK, MASK]])
def test_small_and_odd_requests(odd: tuple[Loaded, EngineLoop], mode: Mode, block_size: int, prompt: list[int]) -> None:
    loaded, loop = odd
    size = None if mode is Mode.AR else block_size
    requests = [
        ask(f"{n}", prompt, mode=mode, block_size=size, max_tokens=n, seed=-n, temperature=0.5) for n in (1, 2, 7)
    ]
    heard = run(loop, requests)
    assert_equals_reference(loaded, heard, requests)
    for request in requests:
        assert len(heard[request.id].ids) <= request.params.max_tokens
        assert not {MASK, EOS} & set(heard[request.id].ids)


@pytest.mark.parametrize("attention", [CAUSAL, BLOCKS])
@pytest.mark.parametrize("prompt_length", [1, 50, 62, 63])
@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("block_size", [5, 32])
def test_the_context_can_be_used_to_its_last_position(
    attention: AttentionPattern, prompt_length: int, shift: int, block_size: int
) -> None:
    """The last windows reach past the answer's end, and so past the context."""
    loaded = random_loaded(attention=attention, max_positions=64, block_size=block_size, logit_shift=shift)
    modes = [Mode.DIFFUSION, Mode.VERIFIED, Mode.AR] if attention is CAUSAL else [Mode.DIFFUSION]
    requests = [ask(m.value, [5] * prompt_length, mode=m, max_tokens=64 - prompt_length, seed=2) for m in modes]
    with engine(loaded) as loop:
        heard = run(loop, requests)
    for request in requests:
        assert heard[request.id].error is None
    assert_equals_reference(loaded, heard, requests)
    if attention is CAUSAL:
        assert heard["verified"].ids == heard["ar"].ids


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("linear", [TiledLinear, Int8Linear])
@pytest.mark.parametrize("shift", [0, 1])
def test_verified_ids_equal_ar_ids(temperature: float, linear: LinearFactory, shift: int) -> None:
    loaded = random_loaded(linear=linear, logit_shift=shift)
    prompts = [np.random.default_rng(i).integers(0, 48, 1 + 9 * i).tolist() for i in range(10)]
    requests = [
        ask(f"{mode}-{i}", prompt, mode=mode, max_tokens=30, temperature=temperature, seed=i)
        for i, prompt in enumerate(prompts)
        for mode in (Mode.AR, Mode.VERIFIED)
    ]
    with engine(loaded) as loop:
        got = answers(run(loop, requests))
    for i in range(len(prompts)):
        assert got[f"ar-{i}"] == got[f"verified-{i}"]
