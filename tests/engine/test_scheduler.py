"""Who runs next: first come first served, prompt rows rationed, nobody starves."""

import pytest

from tests.engine.running import ask
from tests.models.random_weights import random_loaded
from unmask.core.errors import CapacityError
from unmask.core.request import Mode
from unmask.engine.rule_table import make_rule
from unmask.engine.scheduler import Scheduler
from unmask.engine.sequence import Running
from unmask.engine.settings import EngineSettings, admit, cache_shape, resolve
from unmask.models.config import AttentionPattern

LOADED = {
    pattern: random_loaded(attention=pattern)
    for pattern in (AttentionPattern.CAUSAL_CONTEXT, AttentionPattern.BLOCK_CAUSAL)
}
CAUSAL, BLOCKS = LOADED


def sequence(
    name: str, prompt: int = 1, max_tokens: int = 8, attention: AttentionPattern = CAUSAL, mode: Mode = Mode.DIFFUSION
) -> Running:
    loaded = LOADED[attention]
    request = ask(name, [5] * prompt, max_tokens=max_tokens, mode=mode)
    params = admit(request, resolve(EngineSettings(), loaded.traits), loaded.traits)
    shape = cache_shape(loaded.config, loaded.traits)
    return Running.start(request, params, make_rule(params, loaded.traits), shape, loaded.traits.eos_ids)


def scheduler(
    *, max_running: int = 100, max_waiting: int = 100, max_cached_tokens: int = 10_000, max_prefill_rows: int = 10_000
) -> Scheduler:
    return Scheduler(
        max_running=max_running,
        max_waiting=max_waiting,
        max_cached_tokens=max_cached_tokens,
        max_prefill_rows=max_prefill_rows,
    )


def names(batch: list[tuple[Running, int]]) -> list[tuple[str, int]]:
    return [(member.request.id, rows) for member, rows in batch]


def feed(batch: list[tuple[Running, int]]) -> dict[str, int]:
    """Stands in for a forward: plans and observes as the runner does; returns the clean rows fed."""
    fed: dict[str, int] = {}
    for member, rows in batch:
        plan = member.cache.plan(member.canvas, member.rule.reads(member.canvas), max_rows=rows)
        fed[member.request.id] = plan.clean_end - int(plan.positions_T[0])
        member.cache.stored = plan.clean_end
    return fed


def test_first_come_first_served() -> None:
    plan = scheduler(max_running=2)
    members = [sequence(name) for name in "abcd"]
    for member in members:
        plan.add(member)
    assert [name for name, _ in names(plan.next_batch())] == ["a", "b"]
    assert [member.request.id for member in plan.everyone()] == ["a", "b", "c", "d"]
    plan.remove([members[0], members[2]])
    assert [name for name, _ in names(plan.next_batch())] == ["b", "d"]
    plan.remove(members)
    assert plan.everyone() == []
    assert plan.next_batch() == []


def test_nothing_overtakes_one_that_waits_for_room() -> None:
    """Each sequence reserves prompt, answer and two windows: 1 + 8 + 2 * 4."""
    assert sequence("a").num_reserved == 17
    plan = scheduler(max_cached_tokens=60)
    big, small = sequence("big", prompt=30), sequence("small")
    for member in (sequence("a"), big, small):
        plan.add(member)
    plan.next_batch()
    assert [member.request.id for member in plan.running] == ["a"]
    plan.remove([plan.running[0]])
    plan.next_batch()
    assert [member.request.id for member in plan.running] == ["big"]
    plan.remove([big])
    plan.next_batch()
    assert [member.request.id for member in plan.running] == ["small"]


def test_room_is_used_to_the_last_position() -> None:
    plan = scheduler(max_cached_tokens=34)
    for name in "abc":
        plan.add(sequence(name))
    plan.next_batch()
    assert len(plan.running) == 2


def test_the_queue_is_bounded() -> None:
    plan = scheduler(max_waiting=2, max_running=1)
    plan.add(sequence("a"))
    plan.next_batch()
    plan.add(sequence("b"))
    plan.add(sequence("c"))
    with pytest.raises(CapacityError, match="2 requests are waiting"):
        plan.add(sequence("d"))
    assert [member.request.id for member in plan.waiting] == ["b", "c"]


def test_prompts_share_the_ration_in_order_of_arrival() -> None:
    plan = scheduler(max_prefill_rows=16)
    for name, prompt in (("a", 10), ("b", 20), ("c", 3), ("d", 1)):
        plan.add(sequence(name, prompt=prompt))
    batch = plan.next_batch()
    assert names(batch) == [("a", 10), ("b", 6), ("d", 1)], "a prompt of one token is no prefill"
    feed(batch)
    batch = plan.next_batch()
    assert names(batch) == [("a", 0), ("b", 14), ("c", 2), ("d", 0)]
    assert feed(batch) == {"a": 0, "b": 14, "c": 2, "d": 0}
    assert names(plan.next_batch()) == [("a", 0), ("b", 0), ("c", 1), ("d", 0)]


@pytest.mark.parametrize("attention", [CAUSAL, BLOCKS])
@pytest.mark.parametrize("ration", [1, 3, 4, 6, 50])
def test_every_prompt_gets_through(attention: AttentionPattern, ration: int) -> None:
    plan = scheduler(max_prefill_rows=ration)
    members = [sequence(str(i), prompt=1 + 7 * i, attention=attention) for i in range(6)]
    for member in members:
        plan.add(member)
    for _ in range(200):
        batch = plan.next_batch()
        prefilling = {member.request.id for member, _ in batch if member.is_prefilling}
        fed = feed(batch)
        assert sum(fed[name] for name in prefilling) <= ration + 3, "at most one block over the ration"
        if not any(member.is_prefilling for member in members):
            break
    assert not any(member.is_prefilling for member in members)


def test_running_answers_are_in_every_batch() -> None:
    """A stream of long prompts delays an answer by its ration, never by a turn."""
    plan = scheduler(max_prefill_rows=4)
    old = sequence("old")
    plan.add(old)
    feed(plan.next_batch())
    for i in range(20):
        plan.add(sequence(f"new-{i}", prompt=40))
        batch = plan.next_batch()
        assert batch[0][0] is old
        assert sum(rows for _, rows in batch[1:]) <= 4
        feed(batch)
