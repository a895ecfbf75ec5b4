"""Running requests through a real engine loop, and the answers they must get."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unmask.cache.block_causal import BlockCausalCache, Slots
from unmask.core.canvas import BoolArray, IntArray
from unmask.core.constraint import AnswerConstraint
from unmask.core.errors import UnmaskError
from unmask.core.plan import Plan
from unmask.core.request import Chunk, FinishReason, Mode, Request, SamplingParams
from unmask.decoding import reference
from unmask.decoding.randomness import RandomStream
from unmask.engine.loop import EngineLoop
from unmask.engine.rule_table import make_rule
from unmask.engine.settings import EngineSettings, admit, cache_shape, resolve
from unmask.models.config import AttentionPattern
from unmask.models.loading import Loaded
from unmask.models.transformer import Undecided

WAIT_S = 60.0


@dataclass
class Listening:
    """What one listener heard."""

    news: list[Chunk | UnmaskError] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def __call__(self, item: Chunk | UnmaskError) -> None:
        assert not self.ended.is_set(), "news after the end"
        self.news.append(item)
        if isinstance(item, UnmaskError) or item.finish_reason is not None:
            self.ended.set()

    def wait(self) -> "Listening":
        assert self.ended.wait(WAIT_S), "the request got lost"
        return self

    @property
    def chunks(self) -> list[Chunk]:
        return [item for item in self.news if isinstance(item, Chunk)]

    @property
    def ids(self) -> list[int]:
        return [token for chunk in self.chunks for token in chunk.token_ids]

    @property
    def reason(self) -> FinishReason | None:
        return self.wait().chunks[-1].finish_reason

    @property
    def num_forwards(self) -> int:
        return self.wait().chunks[-1].num_forwards

    @property
    def error(self) -> UnmaskError | None:
        last = self.wait().news[-1]
        return last if isinstance(last, UnmaskError) else None


@contextmanager
def engine(loaded: Loaded, **settings: Any) -> Iterator[EngineLoop]:
    loop = EngineLoop(loaded, EngineSettings(**settings))
    try:
        yield loop
    finally:
        loop.close()


def run(loop: EngineLoop, requests: Sequence[Request]) -> dict[str, Listening]:
    """Submits all at once and waits for all."""
    heard = {request.id: Listening() for request in requests}
    for request in requests:
        loop.submit(request, heard[request.id])
    for listening in heard.values():
        listening.wait()
    return heard


def ask(
    name: str,
    prompt: Sequence[int] = (5, 6),
    *,
    drafts: bool = False,
    timeout_s: float | None = None,
    constraint: AnswerConstraint | None = None,
    **params: Any,
) -> Request:
    return Request(
        id=name,
        prompt_ids=tuple(prompt),
        params=SamplingParams(**params),
        drafts=drafts,
        timeout_s=timeout_s,
        constraint=constraint,
    )


def mixed_requests(
    loaded: Loaded, count: int, *, longest: int = 60, max_tokens: int = 24, seed: int = 0
) -> list[Request]:
    """Every mode the model has, greedy and sampled, all prompt lengths; prompts hold mask and EOS ids too."""
    rng = np.random.default_rng(seed)
    causal = loaded.traits.attention is AttentionPattern.CAUSAL_CONTEXT
    modes = [Mode.DIFFUSION, Mode.VERIFIED, Mode.AR] if causal else [Mode.DIFFUSION]
    requests: list[Request] = []
    for i in range(count):
        mode = modes[i % len(modes)]
        extra: dict[str, Any] = {}
        if mode is Mode.DIFFUSION:
            extra = [{"threshold": 0.3}, {"threshold": 0.95}, {"num_steps": 2}][i // len(modes) % 3]
        if causal and i % 4 == 1 and mode is not Mode.AR:
            extra["block_size"] = int(rng.integers(2, 12))
        params = SamplingParams(
            max_tokens=int(rng.integers(1, max_tokens + 1)),
            mode=mode,
            temperature=(0.0, 0.8)[i // 2 % 2],
            top_p=(1.0, 0.9)[i // 4 % 2],
            seed=i - 3,
            **extra,
        )
        length = int(rng.integers(1, longest + 1))
        prompt = tuple(rng.integers(0, loaded.config.vocab_size, length).tolist())
        requests.append(Request(id=f"{mode.value}-{i}", prompt_ids=prompt, params=params, choice=i % 3))
    return requests


def whole_canvas(loaded: Loaded) -> reference.ReferenceModel:
    """No cache: every row of the canvas is fed anew. The kernel is the engine's, so equality is to the bit."""
    model, shape = loaded.model, cache_shape(loaded.config, loaded.traits)
    nothing = np.zeros(0, np.int64)

    def forward(
        ids_L: IntArray, visible_LL: BoolArray, open_L: BoolArray | None = None, said: Tensor | None = None
    ) -> Tensor:
        length = ids_L.shape[0]
        open_L = np.zeros(length, np.bool_) if open_L is None else open_L
        window_start = int(open_L.argmax()) if open_L.any() else length
        count_L = visible_LL.sum(1)
        assert (visible_LL == (np.arange(length)[None] < count_L[:, None])).all(), "every row sees a prefix"
        plan = Plan(
            ids_T=ids_L,
            positions_T=np.arange(length),
            visible_T=count_L,
            clean_end=window_start,
            read_R=nothing,
            predicts_R=nothing,
            causal_R=nothing.astype(np.bool_),
        )
        cache, slots = BlockCausalCache(shape, length), Slots(plan)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            cache.update(layer, slots, k, v)
            return cache.attend(layer, slots, q)

        with torch.inference_mode():
            undecided = Undecided(
                is_open_N=torch.from_numpy(open_L), said=() if said is None else ((window_start, said),)
            )
            return model.head(model(torch.from_numpy(ids_L), torch.arange(length), attend, undecided))

    return forward


def wanted(
    loaded: Loaded, request: Request, model: reference.ReferenceModel | None = None, **settings: Any
) -> tuple[list[int], int]:
    """Ids and number of forwards by `decoding/reference.py`."""
    params = admit(request, resolve(EngineSettings(**settings), loaded.traits), loaded.traits)
    ids, num_forwards = reference.generate(
        model or whole_canvas(loaded),
        make_rule(params, loaded.traits, request.constraint),
        np.array(request.prompt_ids),
        max_tokens=params.max_tokens,
        eos_ids=loaded.traits.eos_ids,
        random=RandomStream(seed=params.seed, choice=request.choice),
        align=cache_shape(loaded.config, loaded.traits).align,
        logit_shift=loaded.traits.logit_shift,
    )
    return ids.tolist(), num_forwards


def answers(heard: Mapping[str, Listening]) -> dict[str, tuple[list[int], FinishReason | None]]:
    return {name: (listening.ids, listening.reason) for name, listening in heard.items()}


class Turnstile(nn.Module):
    """A head that lets one forward through per ticket, so that a test can act between two forwards."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.arrived = threading.Semaphore(0)
        self.tickets = threading.Semaphore(0)

    def forward(self, x: Tensor) -> Tensor:
        self.arrived.release()
        assert self.tickets.acquire(timeout=WAIT_S)
        return self.inner(x)

    def wait_for_forward(self) -> None:
        """Returns once the engine stands before the turnstile."""
        assert self.arrived.acquire(timeout=WAIT_S)

    def let(self, count: int) -> None:
        self.tickets.release(count)


@contextmanager
def turnstile(loaded: Loaded, **settings: Any) -> Iterator[tuple[EngineLoop, Turnstile]]:
    """An engine whose forwards wait for tickets; it runs free at the end."""
    gate = Turnstile(loaded.model.lm_head)
    loaded.model.lm_head = gate
    loop = EngineLoop(loaded, EngineSettings(**settings))
    try:
        yield loop, gate
    finally:
        gate.let(10_000)
        loop.close()
