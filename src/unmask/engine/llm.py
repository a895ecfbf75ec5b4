"""The offline API: prompts in, completions out, everything batched on one engine loop."""

import queue
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

from unmask.core.errors import ConfigError, RequestError, UnmaskError
from unmask.core.request import Chunk, FinishReason, Request, SamplingParams
from unmask.engine.loop import EngineLoop
from unmask.engine.opening import OpenModel, Precision, open_model
from unmask.engine.settings import EngineSettings, admit
from unmask.text.detokenizer import Detokenizer
from unmask.text.prompt import encode_chat
from unmask.text.toolcalls import ContentDelta, ToolCall, ToolCallFormat, ToolCallParser

Message = Mapping[str, Any]
Prompt = str | Sequence[Message]
"""One user message, or a conversation in OpenAI form."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """The answer to one prompt.

    Attributes:
        text: the answer without its tool calls.
        token_ids: all final ids, calls included, without the end-of-sequence id.
        tool_calls: whole calls in order; empty unless tools were given.
        finish_reason: STOP, LENGTH or ABORT.
        num_prompt_tokens: length of the prompt.
        num_forwards: model forwards it took part in.
        num_draft_forwards: forwards of the draft model for it; not among `num_forwards`.
    """

    text: str
    token_ids: tuple[int, ...]
    tool_calls: tuple[ToolCall, ...]
    finish_reason: FinishReason
    num_prompt_tokens: int
    num_forwards: int
    num_draft_forwards: int = 0

    @property
    def tokens_per_forward(self) -> float:
        """Final tokens for each forward; prefill forwards count."""
        return len(self.token_ids) / self.num_forwards if self.num_forwards else 0.0


_UNBOUNDED = 2**31  # `LLM._run` bounds the engine's queue itself


class LLM:
    """A model in this process.

        with LLM("smol-agent") as llm:
            print(llm.generate("What is the capital of France?")[0].text)

    Not thread-safe; one `generate` or `stream` at a time.

    Args:
        model: "smol-agent", the path of a checkpoint folder, or an opened model.
        precision: "int8", "fp32", or "auto" for what is fastest here.
        settings: limits and defaults of the engine; `max_waiting` has no meaning here, prompts wait for their turn.
        draft_model: a smaller model with the same vocabulary that drafts for requests in AR mode: its name or folder
            (an opened model brings its own).
        cache_dir: where the embedded model is kept; None for ~/.cache/unmask.
        progress: told what takes time at the start, one line each.

    Raises:
        ConfigError, CheckpointError: see `open_model` and `EngineLoop`.
    """

    def __init__(
        self,
        model: str | Path | OpenModel,
        *,
        precision: Precision = "auto",
        settings: EngineSettings | None = None,
        draft_model: str | Path | None = None,
        cache_dir: Path | None = None,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        if not isinstance(model, OpenModel):
            cache_dir = cache_dir or Path.home() / ".cache" / "unmask"
            draft_name = None if draft_model is None else str(draft_model)
            model = open_model(
                str(model), cache_dir=cache_dir, precision=precision, draft_model=draft_name, progress=progress
            )
        elif draft_model is not None:
            raise ConfigError("an opened model brings its own draft model; give draft_model to open_model instead")
        self.model = model
        settings = replace(settings or EngineSettings(), max_waiting=_UNBOUNDED)
        self._loop = EngineLoop(model.loaded, settings, model.draft)
        self._ids = count()

    @property
    def settings(self) -> EngineSettings:
        """The engine's settings with every default filled in."""
        return self._loop.settings

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        raw: bool = False,
        on_completion: Callable[[int, Completion], None] | None = None,
    ) -> list[Completion]:
        """Answers all prompts, as many at a time as the engine holds.

        Args:
            prompts: a text, a conversation (list of messages), or a list of either.
            params: settings for all prompts, or one for each. Equal prompts with equal seeds have equal answers.
            tools: OpenAI tool objects offered in every prompt; calls are then parsed out of the answers.
            raw: texts go to the model as they are, without the chat template.
            on_completion: called with a prompt's index as soon as its answer is complete.

        Returns:
            One completion for each prompt, in order.

        Raises:
            RequestError: a prompt or setting cannot be honoured; nothing has run then.
            EngineError: the engine failed.
        """
        requests = self._requests(_as_prompts(prompts), params, tools, raw)
        completions: dict[int, Completion] = {}
        chunks: list[list[Chunk]] = [[] for _ in requests]
        for index, chunk in self._run(requests):
            chunks[index].append(chunk)
            if chunk.finish_reason is not None:
                completions[index] = self._completion(requests[index], chunks[index], bool(tools))
                if on_completion is not None:
                    on_completion(index, completions[index])
        return [completions[index] for index in range(len(requests))]

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        raw: bool = False,
        drafts: bool = False,
    ) -> Generator[Chunk, None, None]:
        """Answers one prompt chunk by chunk; closing the generator early frees its slot.

        Args:
            prompt: a text or a conversation.
            params: its settings.
            tools: OpenAI tool objects offered.
            raw: see `generate`.
            drafts: chunks carry what the rest of the answer looks like now, too.
        """
        (request,) = self._requests([prompt], params, tools, raw, drafts=drafts)
        for _, chunk in self._run([request]):
            yield chunk

    def close(self) -> None:
        """Ends the engine's thread; safe to call twice."""
        self._loop.close()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    def _requests(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None,
        tools: Sequence[Mapping[str, Any]] | None,
        raw: bool,
        drafts: bool = False,
    ) -> list[Request]:
        """Renders and checks every prompt before any of them runs."""
        each = [params or SamplingParams()] * len(prompts) if not isinstance(params, Sequence) else list(params)
        if len(each) != len(prompts):
            raise ConfigError(f"there are {len(prompts)} prompts but {len(each)} params; give one, or one for each")
        requests: list[Request] = []
        for index, (prompt, own) in enumerate(zip(prompts, each, strict=True)):
            ids = tuple(self._encode(prompt, tools, raw))
            request = Request(id=f"offline-{next(self._ids)}", prompt_ids=ids, params=own, drafts=drafts)
            try:
                admit(request, self._loop.settings, self._loop.traits)
            except RequestError as error:
                where = f"prompt {index}: " if len(prompts) > 1 else ""
                raise RequestError(f"{where}{error}", param=error.param, code=error.code) from error
            requests.append(request)
        return requests

    def _encode(self, prompt: Prompt, tools: Sequence[Mapping[str, Any]] | None, raw: bool) -> list[int]:
        if isinstance(prompt, str) and raw:
            if tools:
                raise ConfigError("a raw prompt cannot offer tools; leave 'raw' or 'tools' out")
            return self.model.tokenizer.encode(prompt)
        if raw:
            raise ConfigError("raw prompts are text; leave 'raw' out for conversations")
        messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        return encode_chat(self.model.tokenizer, self.model.chat_template(), messages, tools)

    def _run(self, requests: Sequence[Request]) -> Generator[tuple[int, Chunk], None, None]:
        """Yields (index, chunk) as they come; never more in flight than run at once, and the next few waiting."""
        news: queue.SimpleQueue[tuple[int, Chunk | UnmaskError]] = queue.SimpleQueue()
        limit = 2 * self.settings.max_running
        running: set[int] = set()
        num_started = 0
        try:
            while running or num_started < len(requests):
                while num_started < len(requests) and len(running) < limit:
                    self._loop.submit(requests[num_started], partial(_put, news, num_started))
                    running.add(num_started)
                    num_started += 1
                index, item = news.get()
                if isinstance(item, UnmaskError) or item.finish_reason is not None:
                    running.discard(index)
                if isinstance(item, UnmaskError):
                    raise item
                yield index, item
        finally:
            for index in running:
                self._loop.abort(requests[index].id)

    def _completion(self, request: Request, chunks: Sequence[Chunk], parse_tools: bool) -> Completion:
        ids = tuple(i for chunk in chunks for i in chunk.token_ids)
        detokenizer = Detokenizer(self.model.tokenizer)
        text, calls = detokenizer.push(ids) + detokenizer.flush(), ()
        if parse_tools:
            parser = ToolCallParser(ToolCallFormat())
            pieces = [*parser.push(text), *parser.flush()]
            text = "".join(piece.text for piece in pieces if isinstance(piece, ContentDelta))
            calls = tuple(piece for piece in pieces if isinstance(piece, ToolCall))
        reason = chunks[-1].finish_reason
        assert reason is not None, "the last chunk carries the reason"
        return Completion(
            text=text,
            token_ids=ids,
            tool_calls=calls,
            finish_reason=reason,
            num_prompt_tokens=len(request.prompt_ids),
            num_forwards=chunks[-1].num_forwards,
            num_draft_forwards=chunks[-1].num_draft_forwards,
        )


def _put(news: "queue.SimpleQueue[tuple[int, Chunk | UnmaskError]]", index: int, item: Chunk | UnmaskError) -> None:
    news.put((index, item))


def _as_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    """One text or one conversation becomes a list of one."""
    if isinstance(prompts, str):
        return [prompts]
    if prompts and isinstance(prompts[0], Mapping):
        return [prompts]  # pyright: ignore[reportReturnType] - a conversation, as its first item shows
    return list(prompts)  # pyright: ignore[reportReturnType]
