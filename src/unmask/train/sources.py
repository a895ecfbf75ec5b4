"""Where training conversations come from: one step's worth at a time, a pure function of (seed, step)."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unmask.core.errors import ConfigError, RequestError, UnmaskError
from unmask.text.chat import ChatTemplate
from unmask.text.tokenizer import Tokenizer
from unmask.train.packing import Sample
from unmask.train.tooldata import generate_group


@dataclass(frozen=True, kw_only=True)
class StepData:
    """Conversations that share a prefix (may be empty)."""

    prefix_ids: tuple[int, ...]
    samples: tuple[Sample, ...]


class Source(Protocol):
    """Yields the conversations of a step; equal (seed, step) give equal conversations, so training can resume."""

    def step(self, seed: int, step: int) -> StepData:
        """Returns one packed row's conversations."""
        ...

    def fingerprint(self) -> str:
        """Identifies the data in logs and resume checks."""
        ...


class Encoder:
    """Conversation -> ids, through the chat template.

    Args:
        tokenizer, template: of the base model.
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._ends = [tokenizer.spelling(i) for i in sorted(tokenizer.eos_ids)]

    def encode(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
    ) -> tuple[tuple[int, ...], Sample]:
        """Splits a conversation into (prefix up to the end of the system turn, rest of the prompt + answer).

        The last message is the answer; it ends with an end-of-sequence token of the model.

        Raises:
            ConfigError: the last message is not the assistant's, or the template does not render it as a suffix.
        """
        if not messages or messages[-1].get("role") != "assistant":
            raise ConfigError("a training conversation must end with an assistant message")
        try:
            prompt = self._template.render(messages[:-1], tools)
            whole = self._template.render(messages, tools, add_generation_prompt=False)
        except RequestError as error:
            raise ConfigError(str(error)) from error
        if not whole.startswith(prompt):
            raise ConfigError("the chat template does not render the answer as a continuation of the prompt")
        end = max((whole.rfind(mark) + len(mark) for mark in self._ends if mark in whole), default=0)
        if end <= len(prompt):
            raise ConfigError(f"the chat template does not end the answer with any of {self._ends}")
        has_system = tools or messages[0].get("role") == "system"
        firsts = [prompt.index(mark) + len(mark) for mark in self._ends if mark in prompt]
        cut = min(firsts) if has_system and firsts else 0
        encode = self._tokenizer.encode
        sample = Sample(prompt_ids=tuple(encode(prompt[cut:])), answer_ids=tuple(encode(whole[len(prompt) : end])))
        return tuple(encode(prompt[:cut])), sample


class ToolCallSource:
    """The generator of `train.tooldata`, mixed with the base model's own answers to general prompts.

    Args:
        encoder: see `Encoder`.
        conversations: how many share one step.
        general: (prompt, answer) pairs that keep the model able to chat.
        general_share: share of steps made of such pairs.
    """

    def __init__(
        self, encoder: Encoder, *, conversations: int, general: Sequence[tuple[str, str]], general_share: float
    ) -> None:
        if general and general_share > 0 and len(general) < conversations:
            raise ConfigError(f"a step takes {conversations} general answers, but there are only {len(general)}")
        self._encoder = encoder
        self._conversations = conversations
        self._general = general
        self._general_share = general_share if general else 0.0

    def step(self, seed: int, step: int) -> StepData:
        """See `Source.step`."""
        rng = np.random.default_rng([seed, step, 1])
        if rng.random() < self._general_share:
            picks = rng.choice(len(self._general), self._conversations, replace=False)
            pairs = [self._general[i] for i in picks]
            turns = [[{"role": "user", "content": q}, {"role": "assistant", "content": a}] for q, a in pairs]
            encoded = [self._encoder.encode(turn, None) for turn in turns]
        else:
            group = generate_group("train", seed, step, self._conversations)
            encoded = [self._encoder.encode(c.messages, c.tools) for c in group.conversations]
        return StepData(prefix_ids=encoded[0][0], samples=tuple(sample for _, sample in encoded))

    def fingerprint(self) -> str:
        """See `Source.fingerprint`."""
        return f"toolcalls-{self._conversations}-{self._general_share}-{_digest(self._general)}"


class JsonlSource:
    """A JSON-lines file, one conversation a line: {"messages": [...], "tools": [...] optional}.

    Each step takes the next `conversations` lines of a shuffled epoch; lines of a step need not share a prefix.

    Raises:
        ConfigError: the file is absent, or a line is not such an object (named by its number).
    """

    def __init__(self, encoder: Encoder, file: Path, *, conversations: int) -> None:
        self._conversations = conversations
        self._file = file
        self._samples: list[Sample] = []
        try:
            lines = file.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {file}: {error}") from error
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                prefix, sample = encoder.encode(row["messages"], row.get("tools"))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError, UnmaskError) as error:
                raise ConfigError(f"{file} line {number} is not a conversation: {error}") from error
            self._samples.append(Sample(prompt_ids=prefix + sample.prompt_ids, answer_ids=sample.answer_ids))
        if not self._samples:
            raise ConfigError(f"{file} holds no conversation")

    def step(self, seed: int, step: int) -> StepData:
        """See `Source.step`."""
        picks: list[Sample] = []
        for index in range(step * self._conversations, (step + 1) * self._conversations):
            epoch, within = divmod(index, len(self._samples))
            order = np.random.default_rng([seed, epoch, 2]).permutation(len(self._samples))
            picks.append(self._samples[order[within]])
        return StepData(prefix_ids=(), samples=tuple(picks))

    def fingerprint(self) -> str:
        """See `Source.fingerprint`."""
        return f"{self._file.name}-{self._conversations}-{_digest(self._samples)}"


def _digest(data: object) -> str:
    """Identifies data by its content."""
    return hashlib.sha256(repr(data).encode()).hexdigest()[:16]
