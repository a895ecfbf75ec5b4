"""From a model's name or folder to everything an engine and a server need of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from unmask.core.errors import CheckpointError, UnmaskError, unknown_name
from unmask.grammar.tokens import Vocabulary
from unmask.models import smol_agent
from unmask.models.config import ModelConfig, NoiseKind, Traits
from unmask.models.families import FAMILIES, family_of
from unmask.models.hub import fetch_checkpoint, is_hub_name
from unmask.models.linear import Int8Linear, LinearFactory, TiledLinear
from unmask.models.loading import Loaded, check_traits, load, read_json
from unmask.text.chat import ChatTemplate, find_template
from unmask.text.tokenizer import Tokenizer

Precision = Literal["auto", "int8", "fp32"]

EMBEDDED = "smol-agent"
LINEARS: Mapping[Precision, LinearFactory] = {"auto": Int8Linear, "int8": Int8Linear, "fp32": TiledLinear}
"""How projections are kept; "auto" is what is fastest on a CPU."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What config.json says, checked; no weights are read for it.

    Attributes:
        family: key of `unmask.models.families.FAMILIES`.
        architecture: as config.json names it.
        config: shape.
        traits: with every id that ends an answer.
    """

    family: str
    architecture: str
    config: ModelConfig
    traits: Traits


@dataclass(frozen=True, kw_only=True)
class OpenModel:
    """A model ready to serve.

    Attributes:
        loaded: transformer and traits.
        tokenizer: of the checkpoint.
        template: its chat template; None for a checkpoint without one.
        model_id: name under which it is served.
        precision: what "auto" became.
        draft: a smaller model that drafts for requests in AR mode, or None.
    """

    loaded: Loaded
    tokenizer: Tokenizer
    template: ChatTemplate | None
    model_id: str
    precision: Precision
    draft: Loaded | None = None

    def vocabulary(self) -> Vocabulary | None:
        """Bytes of each row of the head, for constraints; None for a model that takes none."""
        traits = self.loaded.traits
        if traits.noise is not NoiseKind.MASK:
            return None
        rows = range(self.loaded.config.vocab_size)
        spelled = (None if i == traits.mask_token_id else self.tokenizer.token_bytes(i) or None for i in rows)
        return Vocabulary(tuple(spelled))

    def chat_template(self) -> ChatTemplate:
        """Returns the template.

        Raises:
            CheckpointError: the checkpoint has none.
        """
        if self.template is None:
            raise CheckpointError(
                f"{self.model_id} has no chat template; add chat_template.jinja to its folder, or give raw prompts"
            )
        return self.template


@dataclass(frozen=True, kw_only=True)
class ModelFiles:
    """Where the parts of a model lie.

    Attributes:
        folder: of the checkpoint.
        adapter: LoRA folder merged at load, or None.
        template: a chat template in place of the checkpoint's, or None.
        model_id: name under which it is served.
    """

    folder: Path
    adapter: Path | None
    template: Path | None
    model_id: str


def open_model(
    name: str,
    *,
    cache_dir: Path,
    precision: Precision = "auto",
    draft_model: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> OpenModel:
    """Opens a model by name, or a checkpoint folder in the official Hugging Face layout.

    What is cheap to check (config, traits, tokenizer, template) is checked before any weights are read.

    Args:
        name: "smol-agent", a path, or a hub name (`org/name`, `org/name@revision`); a path wins where both exist.
        cache_dir: where the embedded model is kept.
        precision: how projections are kept; "auto" is int8 on CPU.
        draft_model: name of a smaller model with the same vocabulary that drafts for requests in AR mode.
        progress: told what takes time, one line each.

    Raises:
        ConfigError: no such model or precision.
        CheckpointError: the checkpoint is incomplete, damaged or of an unknown kind; one line, with the way out.
    """
    if precision not in LINEARS:
        raise unknown_name("precision", precision, LINEARS)
    model = _open_named(name, cache_dir, precision, progress)
    if draft_model is None:
        return model
    progress(f"loading the draft model {draft_model}")
    return replace(model, draft=_open_named(draft_model, cache_dir, precision, progress).loaded)


def _open_named(name: str, cache_dir: Path, precision: Precision, progress: Callable[[str], None]) -> OpenModel:
    files = locate(name, cache_dir, progress)
    try:
        return _open(files, precision)
    except OSError as error:
        raise CheckpointError(f"cannot read {files.folder}: {error}") from error


def locate(name: str, cache_dir: Path, progress: Callable[[str], None]) -> ModelFiles:
    """Finds a model's files; see `open_model`."""
    try:
        folder = Path(name).expanduser()
        if folder.is_dir():
            return ModelFiles(folder=folder, adapter=None, template=None, model_id=folder.resolve().name)
        if folder.exists():
            raise CheckpointError(f"{name} is a file; give the checkpoint's folder")
    except (OSError, RuntimeError) as error:  # RuntimeError: ~user of nobody
        raise CheckpointError(f"cannot read {name}: {error}") from error
    if name == EMBEDDED:
        if not (smol_agent.ADAPTER / "adapter_config.json").is_file():
            raise CheckpointError(f"this installation lacks {EMBEDDED}'s adapter ({smol_agent.ADAPTER}); install again")
        base = smol_agent.prepare(cache_dir, progress)
        return ModelFiles(folder=base, adapter=smol_agent.ADAPTER, template=smol_agent.TEMPLATE, model_id=EMBEDDED)
    if is_hub_name(name):
        progress(f"looking for {name} in the Hugging Face cache and on the hub")
        return ModelFiles(folder=fetch_checkpoint(name), adapter=None, template=None, model_id=name)
    if "/" in name or name.startswith("."):
        raise CheckpointError(f"no checkpoint folder at {name}; give the path of one, or {EMBEDDED!r}")
    unknown = unknown_name("model", name, [EMBEDDED])
    raise type(unknown)(f"{unknown}; the path of a checkpoint folder and a hub name (org/name) work too")


def _open(files: ModelFiles, precision: Precision) -> OpenModel:
    eos_ids = read_facts(files).traits.eos_ids
    tokenizer = Tokenizer.load(files.folder, eos_ids)
    template = ChatTemplate.load(files.template) if files.template else find_template(files.folder)
    loaded = load(files.folder, linear=LINEARS[precision], adapter=files.adapter)
    loaded = replace(loaded, traits=check_traits(replace(loaded.traits, eos_ids=eos_ids), loaded.config))
    if tokenizer.vocab_size > loaded.config.vocab_size:
        raise CheckpointError(
            f"the tokenizer in {files.folder} has {tokenizer.vocab_size} ids, but the model only "
            f"{loaded.config.vocab_size}; they do not belong together"
        )
    return OpenModel(
        loaded=loaded,
        tokenizer=tokenizer,
        template=template,
        model_id=files.model_id,
        precision="int8" if precision == "auto" else precision,
    )


def read_facts(files: ModelFiles) -> Facts:
    """Reads and checks config.json and generation_config.json, without weights.

    Raises:
        CheckpointError: unknown architecture, or a field that is absent or makes no sense; one line.
    """
    folder = files.folder
    raw = read_json(folder / "config.json")
    if files.adapter is not None:
        raw |= {"unmask": read_json(files.adapter / "adapter_config.json").get("unmask", {})}
    try:
        name = family_of(raw)
        family = FAMILIES[name]
        config = family.build_config(raw)
        traits = check_traits(family.build_traits(raw, config), config)
        eos_ids = traits.eos_ids | _eos_of(_read_if_there(folder / "generation_config.json"))
    except UnmaskError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise CheckpointError(f"{folder / 'config.json'} holds a value that makes no sense: {error}") from error
    if not eos_ids:
        raise CheckpointError(f"{folder} names no eos_token_id in config.json or generation_config.json; add it")
    bad = [i for i in eos_ids if not isinstance(i, int) or not 0 <= i < config.vocab_size]
    if bad:
        raise CheckpointError(f"eos_token_id {bad[0]!r} in {folder} is outside the vocabulary of {config.vocab_size}")
    return Facts(
        family=name, architecture=raw["architectures"][0], config=config, traits=replace(traits, eos_ids=eos_ids)
    )


def _eos_of(raw: Mapping[str, Any]) -> frozenset[int]:
    eos = raw.get("eos_token_id")
    return frozenset(eos if isinstance(eos, list) else [] if eos is None else [eos])


def _read_if_there(file: Path) -> dict[str, Any]:
    return read_json(file) if file.exists() else {}
