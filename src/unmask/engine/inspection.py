"""What a checkpoint is and what it can be asked for, from its headers alone: no weights are read."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unmask.core.errors import CheckpointError, RequestError
from unmask.core.request import Mode, SamplingParams
from unmask.engine.opening import locate, read_facts
from unmask.engine.rule_table import RULES, check_rule, default_rule
from unmask.engine.settings import EngineSettings, cache_shape, modes_of, resolve
from unmask.models.config import AttentionPattern, Traits
from unmask.models.source import SafetensorsSource
from unmask.text.chat import ChatTemplate, find_template
from unmask.text.tokenizer import Tokenizer

_EXACT_CACHE = "the key/value cache and prefix reuse are exact"
_NO_CACHE = (
    "nothing is cached, so every answer is exact; prefix and dual caches would be approximate and are not used by "
    "the server"
)


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """Facts of a model.

    Attributes:
        model: name it is served under.
        family, architecture: which loader reads it.
        attention, logit_shift, mask_token_id, eos_ids, block_size, editable: see `Traits`.
        num_parameters: values in the weight files; a tied head counts once, an adapter is counted on top.
        weights_bytes: of those values as stored.
        context_length: longest sequence [tokens].
        kv_bytes_per_token: float32 keys and values of one position on this engine; 0 where nothing is cached.
        modes: that it runs; the first is the default.
        rule: of mode diffusion where a request names none; None without that mode.
        rules: that a request may name.
        threshold: default confidence; None for models of uniform noise, which have none.
        exactness: what is exact and what approximate.
        chat_template: whether there is one.
        tools: whether it shows tools to the model.
        tokenizer_ids, special_tokens: size of the tokenizer, number of its special tokens.
        embedding_rows: ids the model can write; those past the tokenizer's have no text.
    """

    model: str
    family: str
    architecture: str
    attention: str
    logit_shift: int
    mask_token_id: int | None
    eos_ids: tuple[int, ...]
    block_size: int
    editable: bool
    num_parameters: int
    weights_bytes: int
    context_length: int
    kv_bytes_per_token: int
    modes: tuple[str, ...]
    rule: str | None
    rules: tuple[str, ...]
    threshold: float | None
    exactness: str
    chat_template: bool
    tools: bool
    tokenizer_ids: int
    special_tokens: int
    embedding_rows: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def inspect_model(name: str, *, cache_dir: Path, progress: Callable[[str], None] = lambda _: None) -> Inspection:
    """Reads what a model says about itself.

    Args:
        name: as for `open_model`: "smol-agent", a folder or a hub name.
        cache_dir: where the embedded model is kept.
        progress: told what takes time.

    Raises:
        ConfigError: no such model.
        CheckpointError: incomplete, damaged or of an unknown kind.
    """
    files = locate(name, cache_dir, progress)
    try:
        facts = read_facts(files)
        tokenizer = Tokenizer.load(files.folder, facts.traits.eos_ids)
        template = ChatTemplate.load(files.template) if files.template else find_template(files.folder)
        sizes = [_size(folder) for folder in (files.folder, files.adapter) if folder is not None]
    except OSError as error:
        raise CheckpointError(f"cannot read {files.folder}: {error}") from error
    config, traits = facts.config, facts.traits
    settings = resolve(EngineSettings(), traits)
    modes = modes_of(traits)
    fixed = traits.attention is AttentionPattern.BIDIRECTIONAL
    layers = () if fixed else cache_shape(config, traits).every_layer()
    exact = _NO_CACHE if fixed else _EXACT_CACHE
    return Inspection(
        model=files.model_id,
        family=facts.family,
        architecture=facts.architecture,
        attention=traits.attention.value,
        logit_shift=traits.logit_shift,
        mask_token_id=traits.mask_token_id,
        eos_ids=tuple(sorted(traits.eos_ids)),
        block_size=traits.block_size,
        editable=traits.editable,
        num_parameters=sum(count for count, _ in sizes),
        weights_bytes=sum(size for _, size in sizes),
        context_length=traits.max_positions,
        kv_bytes_per_token=sum(2 * 4 * layer.num_kv_heads * layer.head_dim for layer in layers),
        modes=tuple(mode.value for mode in modes),
        rule=default_rule(SamplingParams(), traits) if Mode.DIFFUSION in modes else None,
        rules=tuple(rule for rule in RULES if Mode.DIFFUSION in modes and _allows(rule, traits)),
        threshold=settings.threshold,
        exactness=f"{exact}; verified gives the ids of ar" if Mode.VERIFIED in modes else exact,
        chat_template=template is not None,
        tools=template is not None and template.shows_tools,
        tokenizer_ids=tokenizer.vocab_size,
        special_tokens=len(tokenizer.special_ids),
        embedding_rows=config.vocab_size,
    )


def _size(folder: Path) -> tuple[int, int]:
    """(values, bytes) of all tensors in a folder's files."""
    source = SafetensorsSource(folder)
    counts = {name: math.prod(source.shape(name)) for name in source.names()}
    return sum(counts.values()), sum(count * source.value_bytes(name) for name, count in counts.items())


def _allows(rule: str, traits: Traits) -> bool:
    try:
        check_rule(SamplingParams(rule=rule), traits)
    except RequestError:
        return False
    return True
