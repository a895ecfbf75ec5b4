"""Prompts that begin alike skip what an earlier one has computed, and nothing else changes."""

import pytest

from tests.engine.running import ask, engine, run, wanted
from tests.models.random_weights import random_loaded
from unmask.core.request import Mode, Request
from unmask.models.config import AttentionPattern

CAUSAL, BLOCKS = AttentionPattern.CAUSAL_CONTEXT, AttentionPattern.BLOCK_CAUSAL
SYSTEM = [*range(5, 37)]


def conversation(modes: list[Mode], repeat: int) -> list[Request]:
    return [
        ask(
            f"{mode}-{i}-{repeat}",
            [*SYSTEM, *range(3 * i)],
            mode=mode,
            max_tokens=9,
            temperature=0.7 * (i % 2),
        )
        for mode in modes
        for i in range(3)
    ]


@pytest.mark.parametrize("shift", [0, 1])
@pytest.mark.parametrize("attention", [CAUSAL, BLOCKS])
def test_outputs_do_not_change(attention: AttentionPattern, shift: int) -> None:
    loaded = random_loaded(attention=attention, logit_shift=shift, seed=3)
    modes = [Mode.DIFFUSION, Mode.VERIFIED, Mode.AR] if attention is CAUSAL else [Mode.DIFFUSION]
    with engine(loaded) as loop:
        for repeat in range(3):
            requests = conversation(modes, repeat)
            heard = run(loop, requests)
            for request in requests:
                assert heard[request.id].ids == wanted(loaded, request)[0]
                if repeat:
                    cached = heard[request.id].chunks[-1].num_prefix_cached
                    assert len(SYSTEM) // 8 * 8 <= cached <= len(request.prompt_ids)


def test_a_second_turn_reuses_the_answer_too() -> None:
    loaded = random_loaded(attention=CAUSAL)
    with engine(loaded) as loop:
        first = ask("first", SYSTEM, mode=Mode.AR, max_tokens=8)
        answer = run(loop, [first])["first"].ids
        second = ask("second", [*SYSTEM, *answer, 7, 8, 9], mode=Mode.AR, max_tokens=8)
        heard = run(loop, [second])["second"]
    assert heard.chunks[-1].num_prefix_cached >= len(SYSTEM) + len(answer) - 1
    assert heard.ids == wanted(loaded, second)[0]


def test_it_can_be_switched_off() -> None:
    loaded = random_loaded(attention=CAUSAL)
    with engine(loaded, max_prefix_tokens=0) as loop:
        for name in ("a", "b"):
            heard = run(loop, [ask(name, SYSTEM, mode=Mode.AR, max_tokens=3)])[name]
            assert heard.chunks[-1].num_prefix_cached == 0
