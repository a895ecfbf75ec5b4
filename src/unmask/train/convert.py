"""AR checkpoint -> block diffusion (A2D): dual-loss training with LoRA or all projections, resumable."""

import json
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from unmask.core.errors import CheckpointError, ConfigError
from unmask.models.config import AttentionPattern
from unmask.models.families import family_of
from unmask.models.linear import PlainLinear
from unmask.models.loading import Loaded, SafetensorsSource, load, read_json
from unmask.models.saving import official_tensors, save_checkpoint
from unmask.models.smol_agent import TEMPLATE
from unmask.text.chat import ChatTemplate, find_template
from unmask.text.tokenizer import Tokenizer
from unmask.train.lora import LoraSettings, adapter_tensors, attach, restore_adapter, save_adapter
from unmask.train.objectives import DualLoss, denoiser
from unmask.train.packing import NoiseRecipe, pack
from unmask.train.sources import Encoder, JsonlSource, Source, ToolCallSource
from unmask.train.state import append_log, cut_log, load_state, read_progress, save_state
from unmask.train.workers import Workers, run_workers


@dataclass(frozen=True, kw_only=True)
class ConvertSettings:
    """One conversion run. Equal settings give equal weights on one machine.

    Attributes:
        base: checkpoint folder of a Llama-shaped AR model.
        template: chat template file; None takes the base's own, or for
            "toolcalls" the default model's if the base's shows no tools.
        out: run folder: `log.jsonl`, `state.safetensors`, and at the end `model/` and, with LoRA, `adapter/`.
        data: "toolcalls" (our generator) or a JSON-lines file of conversations.
        general: optional JSON-lines file of {"prompt", "answer"} mixed into "toolcalls".
        general_share: share of steps made of those.
        steps: optimiser steps.
        conversations: per step and worker.
        workers: processes that share each step's work; the step's gradient is their mean.
        lr, warmup, decay_from: peak rate; warm-up steps; share of the steps after which it falls linearly to 5 %.
        full: train all projections of the blocks instead of adapters (embeddings, norms and head stay).
        lora: adapter settings.
        adapter: PEFT folder to start from instead of an untrained adapter (same rank and mask token).
        mask_token_id: None picks an unused special token of the tokenizer.
        attention, block_sizes, logit_shift, full_share, random_start: see `NoiseRecipe`.
        ar_weight, diffusion_weight, confidence_weight: see `DualLoss`.
        seed: of adapters, data and noise.
        save_every: steps between saved states.
        threads: CPU threads; None lets torch decide.
    """

    base: Path
    out: Path
    template: Path | None = None
    data: str = "toolcalls"
    general: Path | None = None
    general_share: float = 0.1
    steps: int = 1000
    conversations: int = 4
    workers: int = 1
    lr: float = 1e-3
    warmup: int = 20
    decay_from: float = 0.5
    full: bool = False
    lora: LoraSettings = field(default_factory=lambda: LoraSettings(int8=True))
    adapter: Path | None = None
    mask_token_id: int | None = None
    attention: AttentionPattern = AttentionPattern.CAUSAL_CONTEXT
    block_sizes: tuple[int, ...] = (8, 12, 16)
    logit_shift: Literal[0, 1] = 0
    full_share: float = 0.6
    random_start: float = 0.5
    ar_weight: float = 1.0
    diffusion_weight: float = 1.0
    confidence_weight: float = 0.0
    seed: int = 0
    save_every: int = 50
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("steps", "conversations", "workers", "save_every"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not 0 < self.lr < math.inf:
            raise ConfigError(f"lr must be positive and finite, got {self.lr}")
        if self.lora.rank < 1 or not math.isfinite(self.lora.alpha):
            raise ConfigError(f"LoRA needs rank >= 1 and a finite alpha, got {self.lora.rank} and {self.lora.alpha}")
        if not self.block_sizes or not all(1 <= size <= 256 for size in self.block_sizes):
            raise ConfigError(f"block sizes must be between 1 and 256, got {self.block_sizes}")
        if self.seed < 0:
            raise ConfigError(f"seed must be at least 0, got {self.seed}")
        if self.threads is not None and self.threads < 1:
            raise ConfigError(f"threads must be at least 1, got {self.threads}")
        for name in ("general_share", "full_share", "random_start", "decay_from"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} must be between 0 and 1, got {getattr(self, name)}")
        if min(self.ar_weight, self.diffusion_weight, self.confidence_weight) < 0:
            raise ConfigError("loss weights must not be negative")
        if self.general is not None and self.data != "toolcalls":
            raise ConfigError("general answers are only mixed into 'toolcalls', not into a file; leave one of them out")
        if self.full and self.adapter is not None:
            raise ConfigError("an adapter cannot be continued by training all projections; leave one of them out")
        if self.attention is AttentionPattern.BLOCK_CAUSAL and len(self.block_sizes) != 1:
            raise ConfigError(f"block-causal training takes one block size, got {self.block_sizes}; set --block-sizes")
        if self.attention is AttentionPattern.BLOCK_CAUSAL and self.ar_weight > 0:
            raise ConfigError("block-causal clean rows see their own targets: set --ar-weight 0 with block_causal")
        if self.ar_weight + self.diffusion_weight <= 0:
            raise ConfigError("ar_weight and diffusion_weight are both 0: there is nothing to train")

    def rate(self, step: int) -> float:
        """Learning rate of a 0-based step."""
        rise = min(1.0, (step + 1) / max(self.warmup, 1))
        start = self.decay_from * self.steps
        fall = 1.0 if step < start else max(0.05, 1 - (step - start) / max(self.steps - start, 1))
        return self.lr * rise * fall


@dataclass(frozen=True, kw_only=True)
class StepReport:
    """News after a step: for progress bars and logs."""

    step: int
    steps: int
    seconds: float
    rows: int
    metrics: dict[str, float]


def pick_mask_token(tokenizer: Tokenizer, template_text: str, taken: frozenset[int]) -> int:
    """Chooses an unused special token as the mask.

    A row of the embedding table that no text can produce: special, not EOS, BOS or padding, absent from the template.

    Raises:
        ConfigError: there is none; name one with `--mask-token-id`.
    """
    for token_id in sorted(tokenizer.special_ids):
        text = tokenizer.spelling(token_id)
        unused = token_id not in taken and text not in template_text
        if unused and not any(word in text.lower() for word in ("endoftext", "pad", "unk", "bos", "eos", "im_")):
            return token_id
    raise ConfigError("the tokenizer has no unused special token for the mask; name one with --mask-token-id")


def convert(settings: ConvertSettings, report: Callable[[StepReport], None]) -> Path:
    """Runs (or resumes) a conversion.

    Returns:
        The folder of the result, `out/model`, ready for `unmask serve`.

    Raises:
        ConfigError, CheckpointError: impossible settings, damaged base; the message says the way out.
    """
    run, template = _prepare(settings)
    run_workers(settings.workers, lambda workers: run.train(workers, report), partial(_follow, settings))
    return run.export(template)


def _follow(settings: ConvertSettings, workers: Workers) -> None:
    """One more worker of a run."""
    _prepare(settings)[0].train(workers, lambda _: None)


def _prepare(settings: ConvertSettings) -> "tuple[_Run, ChatTemplate]":
    """Loads what a run needs."""
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    raw = read_json(settings.base / "config.json")
    if family_of(raw) != "llama" or "Moe" in raw["architectures"][0]:
        raise ConfigError(
            f"{settings.base} is a {raw['architectures'][0]}; conversion starts from a Llama, Qwen2 or Qwen3 checkpoint"
        )
    loaded = load(settings.base, linear=PlainLinear)
    tokenizer = Tokenizer.load(settings.base, loaded.traits.eos_ids)
    template = ChatTemplate.load(settings.template) if settings.template else find_template(settings.base)
    if settings.template is None and settings.data == "toolcalls" and (template is None or not template.shows_tools):
        template = ChatTemplate.load(TEMPLATE)  # the generator's conversations need a template that shows tools
    if template is None:
        raise ConfigError(f"{settings.base} has no chat template; give one with --template")
    settings = replace(settings, mask_token_id=_mask_token(settings, loaded, tokenizer, template))
    return _Run(settings, loaded, _source(settings, Encoder(tokenizer, template))), template


def _mask_token(settings: ConvertSettings, loaded: Loaded, tokenizer: Tokenizer, template: ChatTemplate) -> int:
    eos_ids = loaded.traits.eos_ids
    if not eos_ids:
        raise CheckpointError(f"{settings.base / 'config.json'} names no eos_token_id; conversion needs one")
    if settings.mask_token_id is None:
        return pick_mask_token(tokenizer, template.source, eos_ids)
    if not 0 <= settings.mask_token_id < loaded.config.vocab_size or settings.mask_token_id in eos_ids:
        raise ConfigError(f"mask_token_id {settings.mask_token_id} is an EOS or outside the vocabulary")
    return settings.mask_token_id


def _source(settings: ConvertSettings, encoder: Encoder) -> Source:
    if settings.data != "toolcalls":
        return JsonlSource(encoder, Path(settings.data), conversations=settings.conversations)
    general: list[tuple[str, str]] = []
    if settings.general is not None:
        try:
            rows = [json.loads(line) for line in settings.general.read_text(encoding="utf-8").split("\n") if line]
            general = [(row["prompt"], row["answer"]) for row in rows]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"cannot read general prompts from {settings.general}: {error}") from error
    return ToolCallSource(
        encoder, conversations=settings.conversations, general=general, general_share=settings.general_share
    )


class _Run:
    """One conversion in progress."""

    def __init__(self, settings: ConvertSettings, loaded: Loaded, source: Source) -> None:
        self.settings, self.loaded, self.source = settings, loaded, source
        model, mask = loaded.model, settings.mask_token_id
        assert mask is not None, "the mask token is chosen before the run"
        self.mask: int = mask
        if settings.full:
            model.requires_grad_(False)
            projections = [m for block in model.layers for m in block.modules() if isinstance(m, PlainLinear)]
            self.named = {f"weight.{i}": m.weight.requires_grad_(True) for i, m in enumerate(projections)}
        else:
            self.named = {f"lora.{i}": p for i, p in enumerate(attach(model, settings.lora, settings.seed))}
        noise = torch.Generator().manual_seed(settings.seed + 1)
        row = model.embedding[mask]
        self.mask_embedding = nn.Parameter(row + 0.02 * torch.randn(row.shape, generator=noise))
        self.named["mask_embedding"] = self.mask_embedding
        if settings.adapter is not None:
            self._start_from(settings.adapter)
        self.optimizer = torch.optim.AdamW(self.named.values(), lr=settings.lr, betas=(0.9, 0.99), weight_decay=0.0)
        eos = min(loaded.traits.eos_ids)
        self.recipe = NoiseRecipe(
            mask_token_id=mask,
            fill_token_id=eos,
            attention=settings.attention,
            block_sizes=settings.block_sizes,
            logit_shift=settings.logit_shift,
            full_share=settings.full_share,
            random_start=settings.random_start,
        )
        self.objective = DualLoss(
            mask_token_id=mask,
            ar_weight=settings.ar_weight,
            diffusion_weight=settings.diffusion_weight,
            confidence_weight=settings.confidence_weight,
        )
        self.denoise = denoiser(model, self.mask_embedding, mask)

    def _start_from(self, folder: Path) -> None:
        """Takes over a trained adapter."""
        facts = read_json(folder / "adapter_config.json").get("unmask", {})
        if self.settings.full or facts.get("mask_token_id") != self.mask:
            raise ConfigError(
                f"{folder} cannot be continued: it needs LoRA and mask token {facts.get('mask_token_id')}"
            )
        source = SafetensorsSource(folder / "adapter_model.safetensors")
        tensors = {name: source.read(name) for name in source.names()}
        restore_adapter(self.loaded.model, tensors)
        with torch.no_grad():
            self.mask_embedding.copy_(tensors["unmask.mask_embedding"])

    def facts(self) -> dict[str, Any]:
        """What the converted checkpoint's config says under "unmask"."""
        return {
            "mask_token_id": self.mask,
            "attention": self.settings.attention.value,
            "block_size": self.settings.block_sizes[0],
            "logit_shift": self.settings.logit_shift,
        }

    def identity(self) -> dict[str, Any]:
        """Settings that must not change between a run and its resumption."""
        kept = {k: v for k, v in asdict(self.settings).items() if k not in ("out", "threads", "save_every", "steps")}
        return json.loads(json.dumps({**kept, "source": self.source.fingerprint()}, default=str))

    def train(self, workers: Workers, report: Callable[[StepReport], None]) -> None:
        """Takes the remaining steps; the first worker logs, reports and saves."""
        settings = self.settings
        progress = read_progress(settings.out)
        if progress is not None:
            changed = [k for k, v in self.identity().items() if progress["identity"].get(k) != v]
            if changed:
                raise ConfigError(f"{settings.out} holds a run with other {', '.join(changed)}; choose another --out")
            load_state(settings.out, self.named, self.optimizer)
        start = progress["step"] if progress is not None else 0
        leads = workers.rank == 0
        log = settings.out / "log.jsonl"
        if leads:
            settings.out.mkdir(parents=True, exist_ok=True)
            cut_log(log, start)
        for step in range(start, settings.steps):
            news = self._step(workers, step)
            if leads:
                append_log(log, {"step": news.step, "seconds": news.seconds, "rows": news.rows, **news.metrics})
                report(news)
            if leads and (news.step % settings.save_every == 0 or news.step == settings.steps):
                facts = {"step": news.step, "identity": self.identity()}
                save_state(settings.out, self.named, self.optimizer, facts)

    def _step(self, workers: Workers, step: int) -> StepReport:
        """One optimiser step."""
        settings, draw = self.settings, step * workers.count + workers.rank
        began = time.perf_counter()
        data = self.source.step(settings.seed, draw)
        rng = np.random.default_rng([settings.seed, draw])
        batch = pack(data.prefix_ids, data.samples, self.recipe, rng, noisy=settings.diffusion_weight > 0)
        longest, most = int(batch.positions_N.max()) + 1, self.loaded.config.max_positions
        if longest > most:
            raise ConfigError(f"a conversation of step {step} has {longest} tokens; the context holds {most}")
        for group in self.optimizer.param_groups:
            group["lr"] = settings.rate(step)
        loss = self.objective(self.denoise, batch)
        loss.value.backward()
        gradients = [p.grad for p in self.named.values() if p.grad is not None]
        workers.average(gradients)
        norm = float(nn.utils.clip_grad_norm_(list(self.named.values()), 1.0))
        metrics = workers.mean({**loss.metrics, "grad_norm": norm, "rows": float(len(batch.ids_N))})
        for name in ("loss", "grad_norm"):
            if not math.isfinite(metrics[name]):
                raise ConfigError(f"{name} is {metrics[name]} at step {step}; start a new --out with a lower --lr")
        self.optimizer.step()
        self.optimizer.zero_grad()
        rows = round(metrics.pop("rows") * workers.count)
        return StepReport(
            step=step + 1,
            steps=settings.steps,
            seconds=round(time.perf_counter() - began, 3),
            rows=rows,
            metrics={**metrics, "lr": settings.rate(step)},
        )

    def export(self, template: ChatTemplate) -> Path:
        """Writes the result as a checkpoint in the official layout, and beside it the adapter it came from."""
        settings, loaded = self.settings, self.loaded
        if settings.full:
            with torch.no_grad():
                loaded.model.embedding[self.mask] = self.mask_embedding
        else:
            tensors: dict[str, Tensor] = adapter_tensors(loaded.model)
            tensors["unmask.mask_embedding"] = self.mask_embedding.detach()
            save_adapter(settings.out / "adapter", tensors, settings.lora, self.facts())
            loaded = load(settings.base, linear=PlainLinear, adapter=settings.out / "adapter")
        folder = settings.out / "model"
        raw = {**read_json(settings.base / "config.json"), "unmask": self.facts()}
        save_checkpoint(folder, official_tensors(loaded, raw), raw)
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            if (settings.base / name).exists():
                shutil.copyfile(settings.base / name, folder / name)
        (folder / "chat_template.jinja").write_text(template.source, encoding="utf-8")
        return folder
