"""Every family with every rule it can run, through the engine: ids and forwards of the slow, obvious loop."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.running import ask, engine, run, wanted
from tests.models.golden_checkpoints import GOLDENS, checkpoint
from unmask.core.errors import RequestError
from unmask.core.request import Mode, Request
from unmask.decoding.editing import Llada21
from unmask.decoding.low_confidence import LowConfidence
from unmask.decoding.parallel import Parallel
from unmask.decoding.rules import Unmask
from unmask.engine.rule_table import RULES, make_rule
from unmask.engine.settings import EngineSettings, admit, resolve
from unmask.models.config import AttentionPattern, NoiseKind, Traits
from unmask.models.linear import TiledLinear
from unmask.models.loading import load

FOLDERS = sorted({path.parents[1].name: path.parent for path in sorted(GOLDENS.glob("*/*/config.json"))}.values())
FAMILIES = [str(folder.relative_to(GOLDENS)) for folder in FOLDERS]


def traits(attention: str, *, editable: bool = False) -> Traits:
    return Traits(
        mask_token_id=4,
        attention=AttentionPattern(attention),
        block_size=4,
        logit_shift=0,
        eos_ids=frozenset([2]),
        max_positions=64,
        vocab_size=32,
        editable=editable,
    )


def requests_for(facts: Traits) -> list[Request]:
    """Two requests for each rule, of unlike lengths, greedy and sampled; and two that name none."""
    rng = np.random.default_rng(7)
    names = [name for name, spec in RULES.items() if facts.attention in spec.attentions and facts.noise is spec.noise]
    is_mask = facts.noise is NoiseKind.MASK
    if not facts.editable:
        names = [name for name in names if not name.startswith("edit")]
    found: list[Request] = []
    for index, name in enumerate([None, *names]):
        for choice in (0, 1):
            extra: dict[str, Any] = {"rule": name, "temperature": 0.7 * choice * is_mask, "seed": index}
            options = frozenset({"threshold"} if is_mask else ()) if name is None else RULES[name].options
            if "num_steps" in options and (choice or "threshold" not in options):
                extra["num_steps"] = 2
            elif "threshold" in options:
                extra["threshold"] = 0.4
            prompt = rng.integers(5, facts.vocab_size, int(rng.integers(1, 14))).tolist()
            found.append(ask(f"{name}-{choice}", prompt, mode=Mode.DIFFUSION, max_tokens=5 + 6 * choice, **extra))
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_the_engine_equals_the_reference(family: str, tmp_path: Path) -> None:
    loaded = load(checkpoint(family, tmp_path), linear=TiledLinear)
    loaded = replace(loaded, traits=replace(loaded.traits, block_size=min(loaded.traits.block_size, 8)))
    requests = requests_for(loaded.traits)
    with engine(loaded, max_running=8) as loop:
        heard = run(loop, requests)
    for request in requests:
        ids, num_forwards = wanted(loaded, request)
        assert (heard[request.id].ids, heard[request.id].num_forwards) == (ids, num_forwards), request


def test_every_rule_has_a_family_here() -> None:
    kinds = {AttentionPattern.BIDIRECTIONAL, AttentionPattern.BLOCK_CAUSAL}
    assert all(spec.attentions & kinds or spec.noise is NoiseKind.UNIFORM for spec in RULES.values())


def test_the_model_chooses_when_the_request_does_not() -> None:
    def rule(facts: Traits, **params: Any) -> object:
        request = ask("r", mode=Mode.DIFFUSION, max_tokens=8, **params)
        return make_rule(admit(request, resolve(EngineSettings(), facts), facts), facts)

    assert isinstance(rule(traits("bidirectional")), Parallel)
    assert isinstance(rule(traits("bidirectional"), num_steps=2), LowConfidence)
    assert isinstance(rule(traits("block_causal")), Unmask)
    edits = rule(traits("block_causal", editable=True))
    assert isinstance(edits, Llada21)
    assert edits.thresholds.unmask == 0.7


@pytest.mark.parametrize(
    ("facts", "params", "param", "message"),
    [
        (traits("block_causal"), {"rule": "parallel"}, "diffusion.rule", "rule for this model 'parallel'"),
        (traits("block_causal"), {"rule": "edit"}, "diffusion.rule", "edit"),
        (traits("bidirectional"), {"rule": "lowconfidence"}, "diffusion.rule", "did you mean 'low_confidence'"),
        (traits("bidirectional"), {"rule": "parallel", "num_steps": 2}, "diffusion.num_steps", "has no num_steps"),
        (traits("bidirectional"), {"rule": "random", "threshold": 0.5}, "diffusion.threshold", "has no threshold"),
        (traits("causal_context"), {"rule": "unmask", "mode": Mode.AR}, "diffusion.rule", "only acts in mode"),
    ],
)
def test_what_cannot_be_honoured_is_refused(facts: Traits, params: dict[str, Any], param: str, message: str) -> None:
    request = ask("r", max_tokens=8, **({"mode": Mode.DIFFUSION} | params))
    with pytest.raises(RequestError, match=message) as caught:
        admit(request, resolve(EngineSettings(), facts), facts)
    assert caught.value.param == param
