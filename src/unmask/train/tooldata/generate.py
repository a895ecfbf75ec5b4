"""Sampling of conversations: which tools are offered, what is asked, and what the assistant should do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any

from unmask.core.errors import unknown_name
from unmask.train.tooldata import (
    catalog_home,
    catalog_life,
    catalog_office,
    catalog_outdoors,
    catalog_unseen,
    catalog_work,
    general,
)
from unmask.train.tooldata.offers import Offer, canonical, disguised
from unmask.train.tooldata.phrases import Ask, draw_ask, draw_result
from unmask.train.tooldata.records import Conversation, Group, ToolSpec

SPLITS = ("train", "values", "phrasings", "tools")
KINDS: dict[str, float] = {"call": 0.62, "after_result": 0.18, "no_tool": 0.20}
TRAIN_TOOLS: tuple[ToolSpec, ...] = (
    *catalog_outdoors.TOOLS,
    *catalog_home.TOOLS,
    *catalog_life.TOOLS,
    *catalog_office.TOOLS,
    *catalog_work.TOOLS,
)
UNSEEN_TOOLS: tuple[ToolSpec, ...] = catalog_unseen.TOOLS
PAIR_SHARE = 0.06  # of calls: the user asks for two things, the target is the first
CHAIN_SHARE = 0.25  # of results: the user asked for two things, the target is the second call
HISTORY_SHARE = 0.07  # of calls and of requests without a tool: an exchange that is done precedes
COUNT_WEIGHTS = (10, 22, 26, 20, 13, 9)
# A request for one tool of a circle might be served by another tool of it, so that declining would be debatable.
CIRCLES: tuple[frozenset[str], ...] = (
    frozenset({"calendar", "tasks", "health", "messages"}),
    frozenset({"travel", "maps", "weather"}),
    frozenset({"maps", "health", "food"}),
    frozenset({"food", "shopping", "finance"}),
    frozenset({"media", "files", "language", "music"}),
    frozenset({"library", "school", "database"}),
)


def generate_group(split: str, seed: int, index: int, size: int) -> Group:
    """Draw conversations that share one tool list.

    Args:
        split: One of `SPLITS`.
        seed: Seed of the whole data set.
        index: Number of the group; equal arguments give equal groups.
        size: How many conversations.

    Raises:
        ConfigError: If the split is unknown.
    """
    _check(split)
    return _draw_group(Random(f"{split}/{seed}/{index}"), split, f"{split}-{index}", size, KINDS)


def generate(split: str, seed: int, count: int, kinds: Mapping[str, float] | None = None) -> list[Conversation]:
    """Draw conversations with a fresh tool list each.

    Args:
        split: One of `SPLITS`.
        seed: Seed of the whole data set.
        count: How many conversations.
        kinds: Weights of "call", "after_result" and "no_tool"; None for those of training.

    Raises:
        ConfigError: If the split or a kind is unknown.
    """
    _check(split)
    weights = dict(KINDS if kinds is None else kinds)
    for kind in weights:
        if kind not in KINDS:
            raise unknown_name("kind of conversation", kind, KINDS)
    return [
        _draw_group(Random(f"{split}/{seed}/{index}/one"), split, f"{split}-{index}", 1, weights).conversations[0]
        for index in range(count)
    ]


def _check(split: str) -> None:
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)


@cache
def _catalog(split: str) -> tuple[ToolSpec, ...]:
    return UNSEEN_TOOLS if split == "tools" else TRAIN_TOOLS


def _draw_group(rng: Random, split: str, prefix: str, size: int, weights: Mapping[str, float]) -> Group:
    offers = _draw_offers(rng, split)
    tools = tuple(offer.tool for offer in offers)
    turns = rng.sample(offers, len(offers))
    conversations: list[Conversation] = []
    for number in range(size):
        kind = rng.choices(list(weights), weights=list(weights.values()))[0]
        if kind == "no_tool":
            tool, messages = _draw_no_tool(rng, split, offers)
        else:
            offer = turns.pop()
            turns = turns or rng.sample(offers, len(offers))
            draw = _draw_call if kind == "call" else _draw_after_result
            tool, messages = draw(rng, split, offer, offers)
        if kind != "after_result" and rng.random() < HISTORY_SHARE:
            messages = [*_draw_report(rng, split, rng.choice(offers)), *_renumber(messages)]
        conversations.append(
            Conversation(id=f"{prefix}-{number}", kind=kind, tool=tool, tools=tools, messages=tuple(messages))
        )
    return Group(tools=tools, conversations=tuple(conversations))


def _draw_offers(rng: Random, split: str) -> list[Offer]:
    catalog = _catalog(split)
    wanted = rng.choices(range(1, len(COUNT_WEIGHTS) + 1), weights=COUNT_WEIGHTS)[0]
    specs = [rng.choice(catalog)]
    while len(specs) < wanted:
        near = [spec for spec in catalog if spec.domain == specs[0].domain and _may_join(spec, specs)]
        far = [spec for spec in catalog if _may_join(spec, specs)]
        specs.append(rng.choice(near if near and rng.random() < 0.4 else far))
    rng.shuffle(specs)
    offers: list[Offer] = []
    taken = {spec.name for spec in (*UNSEEN_TOOLS, *specs)}
    for spec in specs:
        offer = disguised(rng, spec, frozenset(taken - {spec.name})) if split == "train" else canonical(spec)
        taken.add(offer.tool["function"]["name"])
        offers.append(offer)
    return offers


def _may_join(spec: ToolSpec, specs: list[ToolSpec]) -> bool:
    return all(spec is not other and not (spec.clash and spec.clash == other.clash) for other in specs)


def _draw_call(rng: Random, split: str, offer: Offer, offers: list[Offer]) -> tuple[str, list[dict[str, Any]]]:
    ask = draw_ask(rng, offer, split=split)
    text = ask.text
    if len(offers) > 1 and rng.random() < PAIR_SHARE:
        ask, _, _, text = _draw_pair(rng, split, offer, offers)
    return offer.spec.name, [{"role": "user", "content": text}, _call_message(offer, ask, 0)]


def _draw_after_result(rng: Random, split: str, offer: Offer, offers: list[Offer]) -> tuple[str, list[dict[str, Any]]]:
    pair = len(offers) > 1 and rng.random() < CHAIN_SHARE
    if pair:
        ask, second, second_ask, text = _draw_pair(rng, split, offer, offers)
    else:
        second = second_ask = None
        ask = draw_ask(rng, offer, split=split)
        text = ask.text
    messages = _exchange(rng, split, offer, ask, text)
    if second is not None and second_ask is not None:
        return second.spec.name, [*messages[:-1], _call_message(second, second_ask, 1)]
    return offer.spec.name, messages


def _draw_report(rng: Random, split: str, offer: Offer) -> list[dict[str, Any]]:
    ask = draw_ask(rng, offer, split=split)
    return _exchange(rng, split, offer, ask, ask.text)


def _exchange(rng: Random, split: str, offer: Offer, ask: Ask, text: str) -> list[dict[str, Any]]:
    """Request, call, result and report."""
    result = draw_result(rng, offer, ask.values, held=split == "values")
    return [
        {"role": "user", "content": text},
        _call_message(offer, ask, 0),
        {"role": "tool", "tool_call_id": "call_0", "content": _compact(result)},
        _text_message(rng.choice(offer.spec.reports).format_map({**ask.values, **result})),
    ]


def _renumber(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages of a later turn: their one call is the second of the conversation."""
    return [
        {**message, "tool_calls": [{**message["tool_calls"][0], "id": "call_1"}]}
        if "tool_calls" in message
        else message
        for message in messages
    ]


def _draw_pair(rng: Random, split: str, offer: Offer, offers: list[Offer]) -> tuple[Ask, Offer, Ask, str]:
    """A request for two things: the first is for `offer`, the second for another one."""
    second = rng.choice([other for other in offers if other is not offer])
    first_ask = draw_ask(rng, offer, split=split, plain=True)
    second_ask = draw_ask(rng, second, split=split, plain=True, command=True)
    head, tail = first_ask.text[0].upper() + first_ask.text[1:], second_ask.text
    if head[-1] not in "?!.":
        head += "."
    if tail[0].islower():
        tail = f"{rng.choice(('Then', 'After that,', 'Also'))} {tail}."
    return first_ask, second, second_ask, f"{head} {tail}"


def _draw_no_tool(rng: Random, split: str, offers: list[Offer]) -> tuple[str | None, list[dict[str, Any]]]:
    domains = {offer.spec.domain for offer in offers}
    closed = domains.union(*(circle for circle in CIRCLES if circle & domains))
    outside = [spec for spec in _catalog(split) if spec.domain not in closed]
    if outside and rng.random() < 0.6:
        ask = draw_ask(rng, canonical(rng.choice(outside)), split=split)
        return None, [{"role": "user", "content": ask.text}, _text_message(rng.choice(general.REFUSALS))]
    question, answer = rng.choice(general.TRAIN if split == "train" else general.HELD_OUT)
    return None, [{"role": "user", "content": question}, _text_message(answer)]


def _call_message(offer: Offer, ask: Ask, number: int) -> dict[str, Any]:
    call = {"name": offer.tool["function"]["name"], "arguments": json.dumps(ask.arguments, ensure_ascii=False)}
    calls = [{"id": f"call_{number}", "type": "function", "function": call}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _text_message(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def _compact(result: dict[str, Any]) -> str:
    return json.dumps(result, ensure_ascii=False, separators=(",", ":"))
