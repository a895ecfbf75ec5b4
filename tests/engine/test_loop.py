"""Queueing, aborts, deadlines, failures and news of the engine loop, with forwards that wait for the test."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.engine.running import Listening, answers, ask, engine, mixed_requests, run, turnstile, wanted
from tests.models.random_weights import EOS, MASK, random_loaded
from unmask.core.errors import CapacityError, ConfigError, EngineError, RequestError
from unmask.core.request import FinishReason, Mode, Request
from unmask.engine.loop import EngineLoop
from unmask.engine.settings import EngineSettings
from unmask.models.config import AttentionPattern
from unmask.models.loading import Loaded

LONG = {"max_tokens": 40, "mode": Mode.AR, "seed": 1}


def never_ending() -> Loaded:
    """A model without an end-of-sequence id, so that answers have the length they were given."""
    loaded = random_loaded()
    return replace(loaded, traits=replace(loaded.traits, eos_ids=frozenset()))


@pytest.fixture
def loaded() -> Loaded:
    return never_ending()


def submit(loop: EngineLoop, request: Request) -> Listening:
    listening = Listening()
    loop.submit(request, listening)
    return listening


# --- queueing ----------------------------------------------------------------------------------------------------


def test_a_full_queue_refuses_and_recovers(loaded: Loaded) -> None:
    with turnstile(loaded, max_running=1, max_waiting=2) as (loop, gate):
        running = submit(loop, ask("a", max_tokens=1))
        gate.wait_for_forward()
        waiting = [submit(loop, ask(name, max_tokens=1)) for name in "bc"]
        assert (loop.stats().num_running, loop.stats().num_waiting) == (1, 2)
        with pytest.raises(CapacityError, match="queue is full"):
            submit(loop, ask("d", max_tokens=1))
        gate.let(1)
        gate.wait_for_forward()
        assert running.reason is FinishReason.LENGTH
        late = submit(loop, ask("d", max_tokens=1))
        gate.let(10)
        assert [listening.reason for listening in (*waiting, late)] == [FinishReason.LENGTH] * 3
        assert (loop.stats().num_running, loop.stats().num_waiting) == (0, 0)


def test_waits_for_room_in_the_cache_then_runs(loaded: Loaded) -> None:
    """A request reserves 2 + 40 + 2 * 4 positions; two do not fit into 80."""
    with turnstile(loaded, max_cached_tokens=80) as (loop, gate):
        first = submit(loop, ask("a", **LONG))
        second = submit(loop, ask("b", **LONG))
        gate.wait_for_forward()
        assert (loop.stats().num_running, loop.stats().num_waiting) == (1, 1)
        gate.let(1000)
        assert first.wait().ids == second.wait().ids
        assert len(first.ids) == 40


def test_what_never_fits_is_refused_by_name(loaded: Loaded) -> None:
    with engine(loaded, max_cached_tokens=80) as loop:
        with pytest.raises(RequestError, match=r"need 81 cached tokens, but the engine keeps 80") as caught:
            submit(loop, ask("a", max_tokens=71))
        assert caught.value.param == "max_tokens"
        assert submit(loop, ask("a", max_tokens=70, mode=Mode.AR)).reason is FinishReason.LENGTH


def test_an_id_in_use_is_refused_and_free_again_at_the_end(loaded: Loaded) -> None:
    with turnstile(loaded) as (loop, gate):
        first = submit(loop, ask("a", max_tokens=1))
        gate.wait_for_forward()
        with pytest.raises(RequestError, match="'a' is in use") as caught:
            submit(loop, ask("a", max_tokens=1))
        assert caught.value.param == "id"
        gate.let(10)
        assert first.reason is FinishReason.LENGTH
        assert submit(loop, ask("a", max_tokens=1)).reason is FinishReason.LENGTH


def test_after_close_nothing_is_taken(loaded: Loaded) -> None:
    with turnstile(loaded, max_running=1) as (loop, gate):
        running, waiting = submit(loop, ask("a", **LONG)), submit(loop, ask("b", **LONG))
        gate.wait_for_forward()
        gate.let(10_000)
        loop.close()
        assert running.reason is FinishReason.ABORT or len(running.ids) == 40
        assert waiting.reason is FinishReason.ABORT or len(waiting.ids) == 40
        with pytest.raises(CapacityError, match="stopping"):
            submit(loop, ask("c"))
        loop.close()
        loop.abort("a")
        assert loop.stats().num_running == 0


def test_settings_that_do_not_fit_start_no_thread(loaded: Loaded) -> None:
    blocks = random_loaded(attention=AttentionPattern.BLOCK_CAUSAL)
    with pytest.raises(ConfigError, match="mode 'ar' needs another model"):
        EngineLoop(blocks, EngineSettings(mode=Mode.AR))


# --- joining, leaving, aborting ----------------------------------------------------------------------------------


def test_sequences_join_and_leave_between_forwards(loaded: Loaded) -> None:
    requests = mixed_requests(loaded, 9, max_tokens=12)
    with turnstile(loaded) as (loop, gate):
        heard: dict[str, Listening] = {}
        for request in requests:
            heard[request.id] = submit(loop, request)
            gate.wait_for_forward()
            gate.let(2)
            gate.wait_for_forward()
        gate.let(1000)
        for listening in heard.values():
            listening.wait()
    for request in requests:
        assert heard[request.id].ids == wanted(loaded, request)[0]


def test_abort_frees_the_slot_before_the_next_forward(loaded: Loaded) -> None:
    with turnstile(loaded, max_running=1) as (loop, gate):
        running, waiting, next_up = (submit(loop, ask(name, **LONG)) for name in "abc")
        gate.wait_for_forward()
        gate.let(3)
        for _ in range(3):
            gate.wait_for_forward()
        loop.abort("a")
        loop.abort("b")
        loop.abort("nobody")
        gate.let(1)
        gate.wait_for_forward()
        assert running.reason is waiting.reason is FinishReason.ABORT
        assert (len(running.ids), running.num_forwards, waiting.ids) == (4, 4, [])
        assert (loop.stats().num_running, loop.stats().num_waiting) == (1, 0)
        gate.let(1000)
        assert next_up.reason is FinishReason.LENGTH


def test_abort_when_idle_changes_nothing(loaded: Loaded) -> None:
    with engine(loaded) as loop:
        loop.abort("a")
        assert submit(loop, ask("a", max_tokens=3)).reason is FinishReason.LENGTH
        loop.abort("a")
        assert submit(loop, ask("a", max_tokens=3)).reason is FinishReason.LENGTH


def test_an_aborted_id_is_forgotten(loaded: Loaded) -> None:
    with turnstile(loaded) as (loop, gate):
        for _ in range(3):
            aborted = submit(loop, ask("a", **LONG))
            gate.wait_for_forward()
            loop.abort("a")
            loop.abort("a")
            gate.let(1)
            assert aborted.reason is FinishReason.ABORT
        gate.let(1000)
        assert submit(loop, ask("a", **LONG)).reason is FinishReason.LENGTH


def test_deadlines(loaded: Loaded) -> None:
    with turnstile(loaded, max_running=1) as (loop, gate):
        running = submit(loop, ask("a", timeout_s=0.05, **LONG))
        waiting = submit(loop, ask("b", timeout_s=0.05, **LONG))
        patient = submit(loop, ask("c", timeout_s=1000.0, max_tokens=2))
        gate.wait_for_forward()
        time.sleep(0.06)
        gate.let(1)
        assert running.reason is waiting.reason is FinishReason.ABORT
        assert (len(running.ids), len(waiting.ids)) == (1, 0)
        gate.let(1000)
        assert patient.reason is FinishReason.LENGTH
        assert submit(loop, ask("d", timeout_s=0.0, **LONG)).reason is FinishReason.ABORT


# --- failures ----------------------------------------------------------------------------------------------------


class FailsOnce(nn.Module):
    """A head that breaks at its n-th forward."""

    def __init__(self, inner: nn.Module, at: int, ruin: str = "raise") -> None:
        super().__init__()
        self.inner, self.left, self.ruin = inner, at, ruin

    def forward(self, x: Tensor) -> Tensor:
        self.left -= 1
        if self.left == 0 and self.ruin == "raise":
            raise RuntimeError("out of paper")
        logits = self.inner(x)
        return torch.full_like(logits, torch.nan) if self.left == 0 else logits


@pytest.mark.parametrize(("ruin", "message"), [("raise", "out of paper"), ("nan", "not finite")])
def test_a_failed_forward_ends_its_batch_only(loaded: Loaded, ruin: str, message: str) -> None:
    requests = [ask(name, max_tokens=8, mode=Mode.AR) for name in "abc"]
    with engine(loaded) as loop:
        whole = answers(run(loop, requests))
    loaded.model.lm_head = FailsOnce(loaded.model.lm_head, at=4, ruin=ruin)
    with turnstile(loaded, max_running=2) as (loop, gate):
        first, second, third = (submit(loop, request) for request in requests)
        gate.wait_for_forward()
        gate.let(1000)
        for listening in (first, second):
            assert isinstance(listening.error, EngineError)
            assert message in str(listening.error)
        assert first.ids == whole["a"][0][:3], "what was final before stays said"
        assert second.ids == whole["b"][0][: len(second.ids)]
        assert (third.wait().ids, third.reason) == whole["c"]
        assert (loop.stats().num_running, loop.stats().num_waiting) == (0, 0)
        assert submit(loop, requests[0]).reason is FinishReason.LENGTH


# --- news --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[Mode.DIFFUSION, Mode.VERIFIED])
def live(request: pytest.FixtureRequest) -> Iterator[tuple[Mode, Listening, list[int]]]:
    loaded = random_loaded(block_size=6)
    asked = ask("r", [5, 6, 8], drafts=True, max_tokens=23, mode=request.param, seed=4, temperature=0.3)
    with engine(loaded) as loop:
        yield request.param, run(loop, [asked])["r"], wanted(loaded, asked)[0]


def test_the_stream_is_the_whole_in_pieces(live: tuple[Mode, Listening, list[int]]) -> None:
    _, listening, whole = live
    assert listening.ids == whole
    assert [chunk.finish_reason for chunk in listening.chunks[:-1]] == [None] * (len(listening.chunks) - 1)
    counts = [chunk.num_forwards for chunk in listening.chunks]
    assert counts == sorted(set(counts)), "one chunk a forward at most"
    assert not {EOS, MASK} & set(listening.ids)


def test_drafts_replace_one_another(live: tuple[Mode, Listening, list[int]]) -> None:
    mode, listening, whole = live
    num_final = 0
    for chunk in listening.chunks[:-1]:
        num_final += len(chunk.token_ids)
        assert chunk.token_ids or chunk.draft_ids
        assert len(chunk.draft_ids) <= min(2 * 6, 23 - num_final)
        assert -1 in chunk.draft_ids or num_final + len(chunk.draft_ids) == 23 or mode is Mode.VERIFIED
        assert MASK not in chunk.draft_ids
        if mode is Mode.DIFFUSION:  # what is decided stays, though it is not final yet
            decided = {num_final + i: token for i, token in enumerate(chunk.draft_ids) if token not in (-1, EOS)}
            assert all(whole[p] == token for p, token in decided.items() if p < len(whole))
    assert listening.chunks[-1].draft_ids == ()


def test_without_drafts_every_chunk_says_something_final() -> None:
    loaded = never_ending()
    with engine(loaded) as loop:
        heard = run(loop, [ask("r", max_tokens=16, mode=Mode.DIFFUSION, threshold=1.0)])["r"]
    assert all(chunk.token_ids for chunk in heard.chunks)
    assert all(chunk.draft_ids == () for chunk in heard.chunks)


def test_counters_add_up(loaded: Loaded) -> None:
    requests = mixed_requests(loaded, 6)
    with engine(loaded) as loop:
        heard = run(loop, requests)
        stats = loop.stats()
    assert stats.num_tokens == sum(len(listening.ids) for listening in heard.values())
    assert stats.num_sequence_forwards == sum(listening.num_forwards for listening in heard.values())
    assert max(h.num_forwards for h in heard.values()) <= stats.num_forwards <= stats.num_sequence_forwards
