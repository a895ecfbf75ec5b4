"""From an offered tool to the words of a request and the arguments of the call that answers it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import Any

from unmask.train.tooldata.offers import PART, SLOT, Offer
from unmask.train.tooldata.values import POOLS

ARTICLE = re.compile(r"\b([Aa]) \{(\w+)\}")
VOWEL = re.compile(r"[aeioAEIO]|8|11\b|18\b")
CHOICE = re.compile(r"\(([^()|]+(?:\|[^()|]+)+)\)")
FRAMES = (
    "{0}",
    "{0}",
    "{0}",
    "{0}",
    "please {0}",
    "please {0}",
    "can you {0}?",
    "could you {0}?",
    "can you please {0}?",
    "I need you to {0}",
    "I'd like you to {0}",
    "could you please {0}?",
)
HELD_FRAMES = ("{0}", "{0}", "{0}", "go ahead and {0}", "would you {0}?", "kindly {0}")
PREFIXES = ("Hey, ", "Hi, ", "Hello, ", "OK, ", "Hey there, ", "So, ", "Alright, ", "Quick one: ")
SUFFIXES = (" Thanks!", " Thank you.", " Thanks a lot!")


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A request and what it asks for.

    Attributes:
        text: The words of the user.
        arguments: Offered argument name to value, in schema order.
        values: Catalogue argument name to the same value.
    """

    text: str
    arguments: dict[str, Any]
    values: dict[str, Any]


def draw_ask(rng: Random, offer: Offer, *, split: str, plain: bool = False, command: bool = False) -> Ask:
    """Word a request for a tool.

    Args:
        rng: Source of randomness.
        offer: The tool as offered.
        split: One of `SPLITS`; decides phrasings, values and augmentation.
        plain: No frame, prefix, suffix or final full stop; for requests that are joined.
        command: Prefer bare commands.
    """
    held_values = split == "values" or (split == "tools" and rng.random() < 0.5)
    lines = offer.phrasings(held_out=split == "phrasings")
    if command:
        lines = [line for line in lines if _expand(Random(0), line, offer)[:1].islower()] or lines
    line = _expand(rng, rng.choice(lines), offer)
    words, values = _draw_values(rng, offer, SLOT.findall(line), held_values)
    text = ARTICLE.sub(lambda match: f"{match[1]}{'n' if VOWEL.match(words[match[2]]) else ''} {{{match[2]}}}", line)
    text = SLOT.sub(lambda match: words[match[1]], text)
    if not plain:
        text = _dress(rng, text, is_command=line[0] == "{" or line[0].islower(), ends_open=line[-1] == "}", split=split)
    lower = split == "train" and not plain and rng.random() < 0.1
    if lower:
        text = text.lower()
        verbatim = {argument.name for argument in offer.spec.arguments if POOLS[argument.pool].verbatim}
        arrays = {name for name, value in values.items() if isinstance(value, list)}
        values = {key: _lower(value) if key in verbatim | arrays else value for key, value in values.items()}
    values |= {key: spelling[values[key]] for key, spelling in offer.enums.items() if key in values}
    arguments = {offered: values[key] for key, offered in offer.names.items() if key in values}
    return Ask(text=text, arguments=arguments, values=values)


def _expand(rng: Random, line: str, offer: Offer) -> str:
    def part(match: re.Match[str]) -> str:
        slots = set(SLOT.findall(match[1]))
        if not slots <= set(offer.names):
            return ""
        return match[1] if slots & offer.forced or rng.random() < 0.5 else ""

    line = PART.sub(part, line)
    return CHOICE.sub(lambda match: rng.choice(match[1].split("|")), line)


def _draw_values(rng: Random, offer: Offer, slots: list[str], held: bool) -> tuple[dict[str, str], dict[str, Any]]:
    pools = {argument.name: argument.pool for argument in offer.spec.arguments}
    words: dict[str, str] = {}
    values: dict[str, Any] = {}
    for slot in slots:
        while True:
            text, value = POOLS[pools[slot]].draw(rng, held)
            if all(value != other or isinstance(value, bool) for other in values.values()):
                break
        words[slot], values[slot] = text, value
    return words, values


def _dress(rng: Random, text: str, *, is_command: bool, ends_open: bool, split: str) -> str:
    if is_command:
        text = rng.choice(HELD_FRAMES if split == "phrasings" else FRAMES).format(text)
    if split == "train" and rng.random() < 0.12 and text[0] != "I":
        text = rng.choice(PREFIXES) + text[0].lower() + text[1:]
    text = text[0].upper() + text[1:]
    if is_command and not ends_open and text[-1].isalpha() and split != "phrasings" and rng.random() < 0.1:
        text += " please" if not text.lower().startswith("please") else ""
    if text[-1] not in "?.!" and rng.random() < 0.4:
        text += "."
    if split == "train" and text[-1] in "?.!" and rng.random() < 0.08:
        text += rng.choice(SUFFIXES)
    return text


def _lower(value: Any) -> Any:
    return [item.lower() for item in value] if isinstance(value, list) else value.lower()


def draw_result(rng: Random, offer: Offer, values: dict[str, Any], *, held: bool) -> dict[str, Any]:
    """Draw a tool result.

    A field's source is `int:low:high`, `num:low:high` (one decimal), `=word` (that word), `@argument` (its value) or
    the name of a pool.
    """
    out: dict[str, Any] = {}
    for name, source in offer.spec.fields:
        kind, *bounds = source.split(":")
        if kind == "int":
            out[name] = rng.randint(int(bounds[0]), int(bounds[1]))
        elif kind == "num":
            out[name] = rng.randint(int(bounds[0]) * 10 + 1, int(bounds[1]) * 10) / 10
        elif source.startswith("="):
            out[name] = source[1:]
        elif source.startswith("@"):
            out[name] = values[source[1:]]
        else:
            out[name] = POOLS[source].draw(rng, held)[1]
    return out
