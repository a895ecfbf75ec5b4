"""Speculation changes how many forwards an answer takes, never the answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.engine.running import Listening, answers, ask, engine, mixed_requests, run, wanted
from tests.models.random_weights import random_loaded
from tests.tiny import make_checkpoint
from unmask.core.errors import ConfigError, RequestError
from unmask.core.request import FinishReason, Mode, Request, SamplingParams
from unmask.engine.llm import LLM
from unmask.engine.loop import EngineLoop
from unmask.engine.settings import EngineSettings, admit, resolve
from unmask.models.config import AttentionPattern
from unmask.models.linear import Int8Linear, LinearFactory, TiledLinear
from unmask.models.loading import Loaded

pytestmark = pytest.mark.filterwarnings("ignore:torch.quantize_per")  # of torch, once a process

PATTERNS = AttentionPattern


def num_draft_forwards(heard: Listening) -> int:
    return heard.wait().chunks[-1].num_draft_forwards


@contextmanager
def drafted(loaded: Loaded, draft: Loaded, **settings: Any) -> Iterator[EngineLoop]:
    loop = EngineLoop(loaded, EngineSettings(**settings), draft)
    try:
        yield loop
    finally:
        loop.close()


def ar_requests(count: int = 10, **params: Any) -> list[Request]:
    """Greedy and sampled, prompts with and without repetitions."""
    rng = np.random.default_rng(3)
    requests: list[Request] = []
    for i in range(count):
        phrase = rng.integers(0, 48, 1 + 5 * i)
        prompt = np.concatenate((phrase, phrase[: i + 1])).tolist()
        temperature = (0.0, 0.9)[i % 2]
        requests.append(ask(f"r{i}", prompt, mode=Mode.AR, max_tokens=25, temperature=temperature, seed=i, **params))
    return requests


def forever(loaded: Loaded) -> Loaded:
    """The same model without an EOS that it could draw, so that every answer has its full length."""
    return replace(loaded, traits=replace(loaded.traits, eos_ids=frozenset([10**6])))


def looping() -> Loaded:
    """A model whose greedy answer depends on the last token alone, so that it soon runs in circles."""
    loaded = random_loaded()
    for block in loaded.model.layers:
        assert isinstance(block, nn.Module)
        for name, parameter in block.named_parameters():
            if "out." in name or "down." in name:
                parameter.data.zero_()
    return forever(loaded)


@pytest.mark.parametrize("linear", [TiledLinear, Int8Linear])
@pytest.mark.parametrize("lookup", [1, 3, 10])
def test_lookup_ids_equal_ar_ids(linear: LinearFactory, lookup: int) -> None:
    loaded = random_loaded(linear=linear)
    with engine(loaded, max_prefill_rows=2000) as loop:
        plain = run(loop, ar_requests())
        copied = run(loop, ar_requests(lookup=lookup))
    assert answers(copied) == answers(plain)
    assert {listening.reason for listening in plain.values()} == {FinishReason.STOP, FinishReason.LENGTH}
    assert all(copied[name].num_forwards <= plain[name].num_forwards for name in plain)


def test_lookup_equals_the_reference() -> None:
    loaded = random_loaded()
    requests = ar_requests(8, lookup=4)
    with engine(loaded, max_prefill_rows=2000) as loop:
        heard = run(loop, requests)
    for request in requests:
        assert (heard[request.id].ids, heard[request.id].num_forwards) == wanted(loaded, request)


@pytest.mark.parametrize("max_prefill_rows", [1, 7, 16])
def test_prompts_read_in_pieces(max_prefill_rows: int) -> None:
    """A piece may end among the drafts after the prompt."""
    loaded = random_loaded()
    with engine(loaded) as loop:
        plain = answers(run(loop, ar_requests(6)))
    with drafted(loaded, random_loaded(seed=5), max_prefill_rows=max_prefill_rows) as loop:
        assert answers(run(loop, ar_requests(6, lookup=5))) == plain
        assert answers(run(loop, ar_requests(6))) == plain


def test_repetitive_text_takes_few_forwards() -> None:
    loaded = looping()
    request = ask("r", [5, 6], mode=Mode.AR, max_tokens=250)
    with engine(loaded) as loop:
        plain = run(loop, [request])["r"]
        copied = run(loop, [replace(request, params=replace(request.params, lookup=9))])["r"]
    assert copied.ids == plain.ids
    assert plain.num_forwards == 250
    assert copied.num_forwards < 40


def test_modes_side_by_side() -> None:
    """Diffusion, verified, plain and speculative requests in one batch do not disturb one another."""
    loaded, draft = random_loaded(), random_loaded(seed=4, num_layers=1)
    others = mixed_requests(loaded, 6)
    copying = [replace(r, id=f"c-{r.id}") for r in ar_requests(4, lookup=3)]
    with engine(loaded) as loop:
        alone = {r.id: answers(run(loop, [r]))[r.id] for r in [*others, *copying, *ar_requests(4)]}
    with drafted(loaded, draft, max_prefill_rows=40) as loop:
        together = run(loop, [*others, *copying, *ar_requests(4)])
    assert answers(together) == alone
    for request in [*others, *copying, *ar_requests(4)]:
        params = request.params
        is_drafted = params.mode is Mode.AR and params.lookup is None and params.max_tokens > 1
        assert (num_draft_forwards(together[request.id]) > 0) == is_drafted, request


@pytest.mark.parametrize("num_drafts", [1, 6])
@pytest.mark.parametrize("linear", [TiledLinear, Int8Linear])
def test_drafted_ids_equal_ar_ids(num_drafts: int, linear: LinearFactory) -> None:
    loaded = random_loaded(linear=linear)
    draft = random_loaded(seed=1, num_layers=1, linear=linear)
    with engine(loaded, max_prefill_rows=2000) as loop:
        plain = run(loop, ar_requests())
    with drafted(loaded, draft, num_drafts=num_drafts, max_prefill_rows=2000) as loop:
        heard = run(loop, ar_requests())
    assert answers(heard) == answers(plain)
    assert all(heard[name].num_forwards <= plain[name].num_forwards for name in plain)
    assert all(num_draft_forwards(h) > 0 for h in heard.values())


def nearly(loaded: Loaded, noise: float) -> Loaded:
    """The same model with every weight a little off: often of the same opinion, not always."""
    generator = torch.Generator().manual_seed(0)
    for parameter in loaded.model.parameters():
        parameter.data += noise * torch.randn(parameter.shape, generator=generator)
    return loaded


@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_drafts_are_the_draft_models_own_answer(temperature: float) -> None:
    """Its cache is cut back after a rejection: the drafts are what it says without any cache."""
    loaded, draft = forever(random_loaded()), forever(nearly(random_loaded(), 0.02))
    prompt = list(range(8, 20))
    request = ask("r", prompt, mode=Mode.AR, max_tokens=60, temperature=temperature, seed=1)
    with drafted(loaded, draft, num_drafts=5) as loop:
        heard = run(loop, [request])["r"]
    assert heard.ids == wanted(loaded, request)[0]
    accepted: list[int] = []
    text = prompt
    for chunk in heard.chunks:
        room = min(5, len(prompt) + 60 - len(text) - 1)
        ahead = replace(request, prompt_ids=tuple(text), params=replace(request.params, max_tokens=max(room, 1)))
        drafts = wanted(draft, ahead)[0][:room]
        agree = [a == b for a, b in zip(drafts, chunk.token_ids, strict=False)]
        accepted.append(agree.index(False) if False in agree else len(agree))
        assert len(chunk.token_ids) == accepted[-1] + 1
        text = [*text, *chunk.token_ids]
    assert {0, 5} < set(accepted), "nothing between all and nothing was accepted; the draft shows nothing"


@pytest.mark.parametrize("temperature", [0.0, 0.7, 2.0])
@pytest.mark.parametrize("num_drafts", [1, 3, 7])
def test_a_draft_model_with_the_same_weights_is_always_right(num_drafts: int, temperature: float) -> None:
    loaded = forever(random_loaded())
    request = ask("r", [5, 6, 7], mode=Mode.AR, max_tokens=8 * (num_drafts + 1), temperature=temperature, seed=2)
    with drafted(loaded, forever(random_loaded()), num_drafts=num_drafts) as loop:
        heard = run(loop, [request])["r"]
        assert loop.stats().num_forwards == 8, "draft forwards are not among the model's"
    assert heard.num_forwards == 8
    assert [len(chunk.token_ids) for chunk in heard.chunks] == [num_drafts + 1] * 8
    assert num_draft_forwards(heard) == 8 * num_drafts
    assert heard.ids == wanted(loaded, request)[0]


def test_nothing_is_drafted_that_cannot_be_used() -> None:
    loaded = forever(random_loaded())
    requests = [ask(f"{n}", [5, 6], mode=Mode.AR, max_tokens=n) for n in (1, 2, 3, 8)]
    with drafted(loaded, forever(random_loaded()), num_drafts=4) as loop:
        heard = run(loop, requests)
    counts = {name: (h.num_forwards, num_draft_forwards(h)) for name, h in heard.items()}
    # the last token needs no draft; 8 tokens are 4 drafts and one, then 2 drafts and one
    assert counts == {"1": (1, 0), "2": (1, 1), "3": (1, 2), "8": (2, 6)}


def test_drafts_end_with_the_answer() -> None:
    loaded = random_loaded()
    with drafted(loaded, random_loaded(), num_drafts=20, max_prefill_rows=2000) as loop:
        heard = run(loop, ar_requests())
    stopped = [h for h in heard.values() if h.reason is FinishReason.STOP]
    assert stopped
    for listening in stopped:
        # every token of the answer and its EOS are drafted at most once
        assert num_draft_forwards(listening) <= len(listening.ids) + 1


def test_a_draft_model_with_a_shorter_context() -> None:
    loaded = forever(random_loaded())
    request = ask("r", [5] * 20, mode=Mode.AR, max_tokens=40)
    too_long = ask("l", [5] * 33, mode=Mode.AR, max_tokens=9)
    with drafted(loaded, forever(random_loaded(max_positions=32)), num_drafts=3) as loop:
        heard = run(loop, [request, too_long])
    assert heard["r"].ids == wanted(loaded, request)[0]
    assert heard["r"].num_forwards == 3 + 28, "plain AR from position 32 on"
    assert heard["l"].ids == wanted(loaded, too_long)[0]
    assert (heard["l"].num_forwards, num_draft_forwards(heard["l"])) == (9, 0)


def test_a_draft_model_that_fails_ends_its_requests_only() -> None:
    loaded, draft = random_loaded(), nearly(random_loaded(), float("nan"))
    with drafted(loaded, draft) as loop:
        failed = run(loop, [ask("r", mode=Mode.AR)])["r"]
        assert "logits are not finite" in str(failed.error)
        assert run(loop, [ask("d", mode=Mode.DIFFUSION)])["d"].error is None


BAD_PAIRS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"vocab_size": 50}, "vocabulary of 50 ids, the model one of 48; take a draft model of the same family"),
    ({}, {"attention": PATTERNS.BLOCK_CAUSAL}, "must run mode 'ar', but this one has attention 'block_causal'"),
    ({"attention": PATTERNS.BLOCK_CAUSAL}, {}, "which this model cannot run; leave the draft model out"),
]


@pytest.mark.parametrize(("target", "draft", "message"), BAD_PAIRS)
def test_models_that_do_not_go_together(target: dict[str, Any], draft: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message), drafted(random_loaded(**target), random_loaded(**draft)):
        pass


@pytest.mark.parametrize("num_drafts", [0, 65])
def test_num_drafts_is_bounded(num_drafts: int) -> None:
    with pytest.raises(ConfigError, match="num_drafts must be between 1 and 64"):
        EngineSettings(num_drafts=num_drafts)


@pytest.mark.parametrize("mode", [Mode.DIFFUSION, Mode.VERIFIED, None])
def test_lookup_needs_mode_ar(mode: Mode | None) -> None:
    traits = random_loaded().traits
    with pytest.raises(RequestError, match="lookup only acts in mode 'ar'") as caught:
        admit(ask("r", mode=mode, lookup=4), resolve(EngineSettings(), traits), traits)
    assert caught.value.param == "diffusion.lookup"


@pytest.mark.parametrize("lookup", [0, -1, 65, 1.5, True])
def test_lookup_is_bounded(lookup: Any) -> None:
    with pytest.raises(RequestError) as caught:
        ask("r", mode=Mode.AR, lookup=lookup)
    assert caught.value.param == "diffusion.lookup"


def test_offline_with_a_draft_model(tmp_path: Path) -> None:
    """From folders to completions, for a model that is nothing but AR; its draft is itself."""
    folder = str(make_checkpoint(tmp_path / "m", attention="causal"))
    params = SamplingParams(max_tokens=20, temperature=0.5)
    prompts = ["one two", "three"]
    with LLM(folder, precision="fp32") as llm:
        plain = llm.generate(prompts, params, raw=True)
        copied = llm.generate(prompts, replace(params, lookup=4), raw=True)
    with LLM(folder, precision="fp32", draft_model=folder, settings=EngineSettings(num_drafts=3)) as llm:
        drafted = llm.generate(prompts, params, raw=True)
        with pytest.raises(ConfigError, match="brings its own draft model"):
            LLM(llm.model, draft_model=folder)
    for one, two, three in zip(plain, copied, drafted, strict=True):
        assert one.token_ids == two.token_ids == three.token_ids
        assert one.num_draft_forwards == two.num_draft_forwards == 0
        assert three.num_forwards <= -(-one.num_forwards // 4)
        assert three.num_draft_forwards >= len(three.token_ids) - three.num_forwards
    other = make_checkpoint(tmp_path / "other", attention="causal", vocab_size=280)
    with pytest.raises(ConfigError, match="a vocabulary of 280 ids"):
        LLM(folder, precision="fp32", draft_model=other)
