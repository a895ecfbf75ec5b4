import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import unmask
from tests.tiny import make_checkpoint
from unmask.core.errors import CheckpointError, ConfigError, RequestError
from unmask.core.request import Chunk, FinishReason, Mode, Request, SamplingParams
from unmask.engine.backend import EngineBackend
from unmask.engine.llm import LLM, Completion
from unmask.engine.settings import EngineSettings

SETTINGS = EngineSettings(max_running=3, max_waiting=2, threads=1)
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = make_checkpoint(tmp_path_factory.mktemp("llm") / "tiny", max_positions=1024)
    with LLM(folder, precision="fp32", settings=SETTINGS) as llm:
        yield llm


def params(**given: object) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 12, **given})  # pyright: ignore[reportArgumentType]


def test_the_root_package_leads_here() -> None:
    assert unmask.LLM is LLM
    assert unmask.SamplingParams is SamplingParams
    with pytest.raises(AttributeError, match="LMM"):
        unmask.LMM  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_one_text_is_one_user_message(llm: LLM) -> None:
    (by_text,) = llm.generate("hello", params())
    assert [by_text] == llm.generate([{"role": "user", "content": "hello"}], params())
    assert [by_text] == llm.generate([[{"role": "user", "content": "hello"}]], params())
    (raw,) = llm.generate("hello", params(), raw=True)
    assert raw.num_prompt_tokens == 5 < by_text.num_prompt_tokens


def test_a_completion_adds_up(llm: LLM) -> None:
    (completion,) = llm.generate("hello", params(mode=Mode.AR))
    assert completion.finish_reason in (FinishReason.LENGTH, FinishReason.STOP)
    assert len(completion.token_ids) <= 12
    assert completion.text == llm.model.tokenizer.decode(completion.token_ids)
    assert completion.tokens_per_forward == len(completion.token_ids) / completion.num_forwards
    assert completion.tool_calls == ()


def test_many_prompts_equal_one_by_one(llm: LLM) -> None:
    """More prompts than the engine holds, in all modes at once; nothing may depend on the company."""
    prompts = [f"prompt {'x' * (i % 7)} {i}" for i in range(20)]
    each = [params(mode=list(Mode)[i % 3], temperature=i % 2, seed=i, max_tokens=1 + i) for i in range(20)]
    together = llm.generate(prompts, each)
    assert together == [llm.generate(prompt, own)[0] for prompt, own in zip(prompts, each, strict=True)]


def test_completions_are_announced_as_they_come(llm: LLM) -> None:
    announced: dict[int, Completion] = {}
    completions = llm.generate(["a", "b", "c"], params(), on_completion=announced.__setitem__)
    assert [announced[i] for i in range(3)] == completions


def test_nothing_in_nothing_out(llm: LLM) -> None:
    assert llm.generate([], params()) == []


def test_tool_calls_are_parsed(llm: LLM) -> None:
    """The tiny model calls no tools, so the ids of a call are put in its mouth."""
    said = 'Sure. <tool_call>{"name": "f", "arguments": {}}</tool_call>'
    ids = tuple(llm.model.tokenizer.encode(said))
    request = Request(id="x", prompt_ids=(5,), params=params())
    chunks = [Chunk(token_ids=ids[:9]), Chunk(token_ids=ids[9:], num_forwards=2, finish_reason=FinishReason.STOP)]
    completion = llm._completion(request, chunks, parse_tools=True)
    assert completion.text == "Sure."
    assert [(call.name, call.arguments) for call in completion.tool_calls] == [("f", "{}")]
    assert llm._completion(request, chunks, parse_tools=False).text == said


def test_streams_carry_drafts_and_concatenate_to_the_whole(llm: LLM) -> None:
    chunks = list(llm.stream("hello", params(mode=Mode.DIFFUSION), drafts=True))
    assert any(-1 in chunk.draft_ids for chunk in chunks)
    (whole,) = llm.generate("hello", params(mode=Mode.DIFFUSION))
    assert tuple(i for chunk in chunks for i in chunk.token_ids) == whole.token_ids


def test_a_stream_closed_early_frees_its_slot(llm: LLM) -> None:
    chunks = llm.stream("hello", params(max_tokens=900, mode=Mode.AR))
    next(chunks)
    chunks.close()
    assert len(llm.generate(["a", "b", "c", "d"], params())) == 4
    assert llm._loop.stats().num_running == 0


@pytest.mark.parametrize(
    ("prompts", "given", "error", "says"),
    [
        (["a", "b"], [SamplingParams()], ConfigError, "2 prompts but 1 params"),
        (["a", "x" * 2000], None, RequestError, "prompt 1: the prompt has"),
        ("a", SamplingParams(max_tokens=5000), RequestError, "exceed the context"),
        ("a", SamplingParams(mode=Mode.AR, threshold=0.5), RequestError, "threshold only acts in mode"),
    ],
)
def test_bad_prompts_are_refused_before_anything_runs(
    llm: LLM, prompts: str | list[str], given: Sequence[SamplingParams] | None, error: type[Exception], says: str
) -> None:
    before = llm._loop.stats().num_forwards
    with pytest.raises(error, match=says):
        llm.generate(prompts, given)
    assert llm._loop.stats().num_forwards == before


def test_raw_prompts_cannot_offer_tools(llm: LLM) -> None:
    with pytest.raises(ConfigError, match="cannot offer tools"):
        llm.generate("a", params(), tools=[TOOL], raw=True)


def test_without_a_template_only_raw_prompts_work(tmp_path: Path) -> None:
    folder = make_checkpoint(tmp_path / "base")
    (folder / "chat_template.jinja").unlink()
    with LLM(folder, precision="fp32", settings=SETTINGS) as llm:
        assert llm.generate("abc", params(), raw=True)[0].num_prompt_tokens == 3
        with pytest.raises(CheckpointError, match="has no chat template"):
            llm.generate("abc", params())


@pytest.mark.filterwarnings("ignore:torch.quantize_per")
def test_the_async_face_says_the_same(tmp_path: Path) -> None:
    """The same request through LLM and through the backend that the server holds, in int8."""

    async def collect(backend: EngineBackend, request: Request) -> list[int]:
        return [i async for chunk in backend.generate(request) for i in chunk.token_ids]

    with LLM(make_checkpoint(tmp_path / "tiny"), settings=SETTINGS) as llm:
        assert llm.model.precision == "int8"
        (completion,) = llm.generate("abc", params(), raw=True)
        ids = tuple(llm.model.tokenizer.encode("abc"))
        request = Request(id="async", prompt_ids=ids, params=params())
        assert tuple(asyncio.run(collect(EngineBackend(llm._loop), request))) == completion.token_ids
