"""An answer is a function of the request alone: not of load, order, neighbours or how the prompt was cut."""

import pytest

from tests.engine.running import answers, ask, engine, mixed_requests, run
from tests.models.random_weights import random_loaded
from unmask.core.request import Mode
from unmask.models.config import AttentionPattern
from unmask.models.linear import Int8Linear, LinearFactory, TiledLinear

pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per")  # of torch, once a process

CAUSAL, BLOCKS = AttentionPattern.CAUSAL_CONTEXT, AttentionPattern.BLOCK_CAUSAL


@pytest.mark.parametrize("linear", [TiledLinear, Int8Linear])
@pytest.mark.parametrize(("attention", "shift"), [(CAUSAL, 0), (CAUSAL, 1), (BLOCKS, 0), (BLOCKS, 1)])
def test_same_bytes_at_any_concurrency(linear: LinearFactory, attention: AttentionPattern, shift: int) -> None:
    loaded = random_loaded(attention=attention, logit_shift=shift, linear=linear, seed=5)
    requests = mixed_requests(loaded, 16, longest=140, max_tokens=16, seed=5)
    with engine(loaded, max_running=1) as loop:
        alone = answers(run(loop, requests))
    assert any(ids for ids, _ in alone.values())
    for max_running in (4, 16):
        with engine(loaded, max_running=max_running) as loop:
            assert answers(run(loop, requests)) == alone
    with engine(loaded) as loop:
        assert answers(run(loop, requests[::-1])) == alone


@pytest.mark.parametrize("linear", [TiledLinear, Int8Linear])
@pytest.mark.parametrize("attention", [CAUSAL, BLOCKS])
@pytest.mark.parametrize("ration", [1, 5, 16])
def test_prompts_in_pieces_equal_whole_prompts(linear: LinearFactory, attention: AttentionPattern, ration: int) -> None:
    loaded = random_loaded(attention=attention, linear=linear, logit_shift=1)
    requests = mixed_requests(loaded, 6, longest=50, max_tokens=10, seed=9)
    with engine(loaded, max_prefill_rows=10_000) as loop:
        whole = run(loop, requests)
    with engine(loaded, max_prefill_rows=ration) as loop:
        pieces = run(loop, requests)
    assert answers(pieces) == answers(whole)
    assert sum(h.num_forwards for h in pieces.values()) > sum(h.num_forwards for h in whole.values())


def test_pieces_of_one_prompt_are_counted_as_forwards() -> None:
    loaded = random_loaded()
    request = ask("r", [5] * 41, max_tokens=3, mode=Mode.AR)
    with engine(loaded, max_prefill_rows=10) as loop:
        pieces = run(loop, [request])["r"]
    with engine(loaded, max_prefill_rows=100) as loop:
        whole = run(loop, [request])["r"]
    assert pieces.num_forwards == whole.num_forwards + 4


def test_seed_and_choice_are_the_only_dice() -> None:
    loaded = random_loaded()
    with engine(loaded) as loop:
        twins = run(loop, [ask(f"{i}", max_tokens=30, temperature=1.0, seed=3, mode=Mode.AR) for i in range(3)])
        others = run(loop, [ask(f"{i}", max_tokens=30, temperature=1.0, seed=i, mode=Mode.AR) for i in range(10, 20)])
    assert len({tuple(listening.ids) for listening in twins.values()}) == 1
    assert len({tuple(listening.ids) for listening in others.values()}) > 5
