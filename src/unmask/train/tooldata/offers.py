"""A tool as one conversation offers it: under which names, in which argument order, with what required."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import Any

from unmask.train.tooldata.records import Argument, ToolSpec
from unmask.train.tooldata.values import POOLS

VERBS: dict[str, tuple[str, ...]] = {
    "get": ("fetch", "retrieve", "lookup", "read", "query", "show"),
    "search": ("find", "lookup", "query", "discover"),
    "find": ("search", "locate", "discover", "pick"),
    "create": ("make", "add", "new", "build"),
    "add": ("insert", "append", "put", "create"),
    "set": ("change", "update", "configure", "adjust"),
    "book": ("reserve", "request", "arrange"),
    "log": ("record", "save", "track", "store"),
    "list": ("show", "fetch", "read"),
    "send": ("submit", "dispatch", "deliver"),
    "play": ("start", "stream", "run"),
    "delete": ("remove", "erase", "drop"),
    "cancel": ("drop", "revoke", "stop"),
    "start": ("run", "launch", "begin"),
    "track": ("follow", "trace", "monitor"),
    "restart": ("reboot", "relaunch", "cycle"),
}
DECORATIONS = ("{0}_tool", "{0}_api", "do_{0}", "{0}_v2", "user_{0}", "run_{0}", "api_{0}", "{0}_action")
OPAQUE = ("tool_{0}", "function_{0}", "action_{0}", "cmd_{0}")
SLOT = re.compile(r"\{(\w+)\}")
PART = re.compile(r"\[([^\[\]]*)\]")


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One offered tool.

    Attributes:
        spec: The catalogue entry.
        tool: The OpenAI tool object.
        names: Catalogue argument name to offered name, in the order of the schema; dropped arguments are absent.
        forced: Optional arguments (catalogue names) that this offer requires.
        enums: Per argument, catalogue enum member to offered spelling.
    """

    spec: ToolSpec
    tool: dict[str, Any]
    names: dict[str, str]
    forced: frozenset[str]
    enums: dict[str, dict[str, str]]

    def phrasings(self, *, held_out: bool) -> list[str]:
        """The phrasings that mention all this offer requires and nothing that it lacks."""
        lines = self.spec.held_out if held_out else self.spec.phrasings
        return [line for line in lines if fits(line, self.forced, set(self.names))]


def fits(line: str, forced: frozenset[str], known: set[str]) -> bool:
    """Whether a phrasing can mention every forced argument and need not mention an unknown one."""
    return forced <= set(SLOT.findall(line)) and set(SLOT.findall(PART.sub("", line))) <= known


def canonical(spec: ToolSpec) -> Offer:
    """The tool as the catalogue has it."""
    return _offer(spec, spec.name, spec.descriptions[0], {a.name: a.name for a in spec.arguments}, frozenset(), {})


def disguised(rng: Random, spec: ToolSpec, taken: frozenset[str]) -> Offer:
    """The tool under drawn names and order; `taken` names are avoided."""
    name, opaque = _draw_name(rng, spec)
    if name in taken:
        name, opaque = spec.name, False
    description = rng.choice(spec.descriptions)
    if not opaque and rng.random() < 0.15:
        description = ""
    arguments = list(spec.arguments)
    if rng.random() < 0.5:
        rng.shuffle(arguments)
    forced, dropped = _draw_options(rng, spec)
    camel = rng.random() < 0.15
    names: dict[str, str] = {}
    for argument in arguments:
        if argument.name in dropped:
            continue
        choices = (argument.name, *argument.aliases) if rng.random() < 0.7 else (argument.name,)
        offered = rng.choice(choices)
        offered = _camel(offered) if camel else offered
        names[argument.name] = offered if offered not in names.values() else argument.name
    if len(set(names.values())) < len(names):
        names = {name: name for name in names}
    enums: dict[str, dict[str, str]] = {}
    for argument in arguments:
        members = POOLS[argument.pool].schema.get("enum")
        if members:
            enums[argument.name] = _draw_enum(rng, members)
    return _offer(spec, name, description, names, forced, enums)


def _offer(
    spec: ToolSpec,
    name: str,
    description: str,
    names: dict[str, str],
    forced: frozenset[str],
    enums: dict[str, dict[str, str]],
) -> Offer:
    by_name = {argument.name: argument for argument in spec.arguments}
    properties = {offered: _schema(by_name[key], enums.get(key)) for key, offered in names.items()}
    required = [offered for key, offered in names.items() if by_name[key].required or key in forced]
    function: dict[str, Any] = {"name": name}
    if description:
        function["description"] = description
    function["parameters"] = {"type": "object", "properties": properties, "required": required}
    return Offer(spec=spec, tool={"type": "function", "function": function}, names=names, forced=forced, enums=enums)


def _schema(argument: Argument, spelling: dict[str, str] | None) -> dict[str, Any]:
    schema = dict(POOLS[argument.pool].schema)
    if spelling:
        schema["enum"] = list(spelling.values())
    if argument.note:
        schema["description"] = argument.note
    return schema


def _draw_name(rng: Random, spec: ToolSpec) -> tuple[str, bool]:
    roll = rng.random()
    if roll < 0.2:
        return spec.name, False
    if roll < 0.55:
        return rng.choice(spec.aliases), False
    if roll < 0.59:
        return rng.choice(OPAQUE).format(rng.randint(1, 99)), True
    words = rng.choice((spec.name, spec.name, *spec.aliases)).split("_")
    if words[0] in VERBS and rng.random() < 0.8:
        words[0] = rng.choice(VERBS[words[0]])
    if rng.random() < 0.2:
        words = [*words[1:], words[0]]
    name = "_".join(words)
    if rng.random() < 0.3:
        name = rng.choice(DECORATIONS).format(name)
    roll = rng.random()
    if roll < 0.3:
        name = _camel(name)
    elif roll < 0.36:
        name = _camel(name)[:1].upper() + _camel(name)[1:]
    elif roll < 0.42:
        name = name.replace("_", "-")
    return name, False


def _draw_options(rng: Random, spec: ToolSpec) -> tuple[frozenset[str], frozenset[str]]:
    """Which optional arguments this offer requires, and which it lacks."""
    optional = [argument.name for argument in spec.arguments if not argument.required]
    if not optional or rng.random() < 0.6:
        return frozenset(), frozenset()
    chosen, known = frozenset({rng.choice(optional)}), {argument.name for argument in spec.arguments}
    if rng.random() < 0.5 and any(fits(line, chosen, known) for line in spec.phrasings):
        return chosen, frozenset()
    if any(fits(line, frozenset(), known - chosen) for line in spec.phrasings):
        return frozenset(), chosen
    return frozenset(), frozenset()


def _draw_enum(rng: Random, members: list[str]) -> dict[str, str]:
    order = list(members)
    if rng.random() < 0.5:
        rng.shuffle(order)
    roll = rng.random()
    if roll < 0.7:
        return {member: member for member in order}
    if roll < 0.85:
        return {member: member.upper() for member in order}
    return {member: member if member.isupper() else member.capitalize() for member in order}


def _camel(name: str) -> str:
    head, *tail = name.split("_")
    return head + "".join(word[:1].upper() + word[1:] for word in tail)
