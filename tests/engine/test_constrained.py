"""Whatever the weights, the rule and the order of commits: answers satisfy their schema and equal the reference."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from tests.engine.running import Listening, ask, engine, run, wanted
from tests.engine.test_rule_table import FAMILIES, requests_for
from tests.models.golden_checkpoints import checkpoint
from tests.tiny import make_checkpoint
from unmask.core.errors import RequestError
from unmask.core.request import FinishReason, Mode, Request
from unmask.engine.settings import EngineSettings, admit, resolve
from unmask.grammar.constraint import Constraint
from unmask.grammar.schema import compile_schema
from unmask.grammar.tokens import Vocabulary
from unmask.models.config import NoiseKind, Traits
from unmask.models.linear import Int8Linear, TiledLinear
from unmask.models.loading import Loaded, load

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "minimum": -5, "maximum": 120},
        "b": {"enum": ["x", "yy", "xyx"]},
        "aa": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
    },
    "required": ["b"],
}
CHOICE: dict[str, Any] = {"const": "baa"}  # forced from the first byte to the last
TEXTS = [bytes([byte]) for byte in b'{}":, -[]0123456789abxytruefls'] + [b'{"', b'": ', b'", "', b'"b": "']


def vocabulary_of(facts: Traits) -> Vocabulary:
    """The texts over the ids that are neither the mask nor an end, as often as they fit; the others have none."""
    plain = [i for i in range(facts.vocab_size) if i != facts.mask_token_id and i not in facts.eos_ids]
    tokens: list[bytes | None] = [None] * facts.vocab_size
    for index, i in enumerate(plain[: 2 * len(TEXTS)]):
        tokens[i] = TEXTS[index % len(TEXTS)]
    return Vocabulary(tuple(tokens))


def constraint_of(facts: Traits, schema: dict[str, Any] = SCHEMA) -> Constraint:
    vocabulary = vocabulary_of(facts)

    def encode(text: str) -> list[int]:
        """Longest match, lowest id."""
        ids, data = list[int](), text.encode()
        while data:
            spelled = max((t for t in TEXTS if data.startswith(t)), key=len)
            ids.append(vocabulary.tokens_V.index(spelled))
            data = data[len(spelled) :]
        return ids

    return Constraint.compile(compile_schema(schema), vocabulary, eos_ids=facts.eos_ids, encode=encode)


def check(heard: Listening, constraint: Constraint, schema: dict[str, Any]) -> None:
    text = b"".join(constraint.vocabulary.tokens_V[i] or b"?" for i in heard.ids)
    jsonschema.validate(json.loads(text), schema)
    assert constraint.automaton.accepts(text)


def with_schema(requests: list[Request], facts: Traits) -> list[tuple[Request, dict[str, Any]]]:
    """Each request under one of the two schemas, with the shortest possible and with ample room."""
    found: list[tuple[Request, dict[str, Any]]] = []
    for index, request in enumerate(requests):
        schema = (SCHEMA, SCHEMA, CHOICE)[index % 3]
        constraint = constraint_of(facts, schema)
        params = replace(request.params, max_tokens=constraint.minimum_tokens + (0, 3, 9)[index % 3])
        prompt = request.prompt_ids[: facts.max_positions - params.max_tokens]
        found.append((replace(request, prompt_ids=prompt, params=params, constraint=constraint), schema))
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_and_rule_writes_valid_json(family: str, tmp_path: Path) -> None:
    loaded = load(checkpoint(family, tmp_path), linear=TiledLinear)
    if loaded.traits.noise is NoiseKind.UNIFORM:
        request = ask("r", max_tokens=40, constraint=constraint_of(loaded.traits))
        with pytest.raises(RequestError, match="uniform noise takes no constraint"):
            admit(request, resolve(EngineSettings(), loaded.traits), loaded.traits)
        return
    loaded = replace(loaded, traits=replace(loaded.traits, block_size=min(loaded.traits.block_size, 8)))
    cases = with_schema(requests_for(loaded.traits), loaded.traits)
    with engine(loaded, max_running=8) as loop:
        heard = run(loop, [request for request, _ in cases])
    for request, schema in cases:
        assert isinstance(request.constraint, Constraint)
        check(heard[request.id], request.constraint, schema)
        assert (heard[request.id].ids, heard[request.id].num_forwards) == wanted(loaded, request), request.id


@pytest.fixture(scope="module", params=[TiledLinear, Int8Linear], ids=["fp32", "int8"])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Loaded:
    return load(make_checkpoint(tmp_path_factory.mktemp("model"), logit_shift=1), linear=request.param)


def requests_in(mode: Mode, loaded: Loaded, count: int, temperature: float) -> list[Request]:
    rng = np.random.default_rng(5)
    constraint = constraint_of(loaded.traits)
    return [
        ask(
            f"{mode.value}-{index}",
            rng.integers(5, 200, int(rng.integers(1, 30))).tolist(),
            mode=mode,
            max_tokens=constraint.minimum_tokens + int(rng.integers(0, 30)),
            temperature=temperature,
            top_p=(1.0, 0.6)[index % 2],
            top_k=(0, 0, 3)[index % 3],
            seed=index,
            constraint=constraint,
            **({} if mode is Mode.AR else {"block_size": (4, 8, 32)[index % 3]}),
        )
        for index in range(count)
    ]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_verified_equals_ar_and_every_mode_is_valid(loaded: Loaded, temperature: float) -> None:
    requests = {mode: requests_in(mode, loaded, 24, temperature) for mode in Mode}
    with engine(loaded, max_running=8) as loop:
        heard = run(loop, [request for group in requests.values() for request in group])
    for mode, group in requests.items():
        for request in group:
            assert isinstance(request.constraint, Constraint)
            check(heard[request.id], request.constraint, SCHEMA)
            assert (heard[request.id].ids, heard[request.id].num_forwards) == wanted(loaded, request), (mode, request)
    for ours, plain in zip(requests[Mode.VERIFIED], requests[Mode.AR], strict=True):
        assert heard[ours.id].ids == heard[plain.id].ids
        assert heard[ours.id].num_forwards <= heard[plain.id].num_forwards


def test_forced_text_costs_no_forward(loaded: Loaded) -> None:
    constraint = constraint_of(loaded.traits, CHOICE)
    with engine(loaded) as loop:
        heard = run(
            loop, [ask(m.value, mode=m, max_tokens=20, constraint=constraint) for m in (Mode.AR, Mode.VERIFIED)]
        )
    for listening in heard.values():
        check(listening, constraint, CHOICE)
        assert listening.num_forwards == 1
        assert listening.reason is FinishReason.STOP


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"max_tokens": 2}, "max_tokens"),
        ({"mode": Mode.AR, "lookup": 4}, "diffusion.lookup"),
    ],
)
def test_what_a_schema_cannot_be_combined_with_is_refused(loaded: Loaded, params: dict[str, Any], param: str) -> None:
    request = ask("r", constraint=constraint_of(loaded.traits), **params)
    with pytest.raises(RequestError) as caught:
        admit(request, resolve(EngineSettings(), loaded.traits), loaded.traits)
    assert caught.value.param == param
