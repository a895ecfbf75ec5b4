"""JSON Schema to automata: the texts that are valid, in the one spelling that is generated.

The spelling: properties in the order of the schema, one space behind `,` and `:` (see `Separators`), strings as in
`unmask.grammar.characters`, numbers as in `unmask.grammar.numbers`. Every accepted text is valid under the schema.
The reverse holds but for what we never generate:

- an object that names properties is closed unless `additionalProperties` opens it; one that names none is free;
- additional members come behind the named ones; items beyond `prefixItems` come only if `items` allows them;
- keywords of one type without `type` mean that type ("minLength" alone means strings);
- free values nest at most `free_depth` deep, and a `$ref` at most `ref_depth` times inside itself.

What is not supported is refused with keyword and path, never dropped.
"""

from collections.abc import Mapping
from decimal import Decimal

from unmask.core.errors import RequestError
from unmask.grammar.automaton import Automaton
from unmask.grammar.build import Budget, Graph, Limits, TooLargeError, difference, intersect, literal, nothing, union
from unmask.grammar.characters import escaped
from unmask.grammar.composition import Conjunction, Document, Part
from unmask.grammar.formats import NUMBER_FORMATS
from unmask.grammar.json_values import Separators, array, boolean, free_array, free_object, free_value, null, string
from unmask.grammar.keywords import Schema, SchemaError, check_schema, is_annotation
from unmask.grammar.merging import Plain, additional, allowed_types, is_open, types_of
from unmask.grammar.numbers import decimal, integers, numbers
from unmask.grammar.spelling import spelled

_SCALARS = frozenset({"null", "boolean", "integer", "number", "string"})
_SIZES = ("maxLength", "minLength", "pattern", "maxItems", "minItems", "maximum", "minimum", "enum", "required", "$ref")


def compile_schema(
    schema: Schema,
    *,
    limits: Limits | None = None,
    separators: Separators | None = None,
    param: str | None = "schema",
) -> Automaton:
    """The JSON texts of a schema that we generate.

    Args:
        schema: a JSON Schema (draft 2020-12, or what earlier drafts share with it).
        limits: how much it may cost.
        separators: white space of the texts.
        param: the request field that errors name.

    Raises:
        RequestError: a keyword is not supported (then a `SchemaError` with keyword and path), no text is valid, or the
            automaton is larger than the limits.
    """
    return Compiler(schema, limits=limits, separators=separators, param=param).compile()


def compile_choices(choices: list[str], *, limits: Limits | None = None, param: str | None = "choice") -> Automaton:
    """The language of a few texts.

    Raises:
        RequestError: there is no choice, or the automaton is larger than the limits.
    """
    if not choices:
        raise RequestError("no choices are given; give at least one text", param=param)
    budget = Budget(limits=limits or Limits(), param=param)
    return union(*(literal(choice.encode()) for choice in dict.fromkeys(choices)), budget=budget)


class Compiler:
    """Compiles one document; keeps its references and budget.

    Args:
        schema: the document.
        limits: how much it may cost.
        separators: white space of the texts.
        param: the request field that errors name.

    Raises:
        SchemaError: the document is not honoured.
    """

    def __init__(
        self, schema: Schema, *, limits: Limits | None, separators: Separators | None, param: str | None
    ) -> None:
        check_schema(schema, param)
        self.root = Part(schema=schema, path="", active={})
        depth = (limits or Limits()).ref_depth
        self.document = Document(root=schema, ref_depth=depth, param=param, apart=self._apart)
        self.separators = separators or Separators()
        self._limits = limits or Limits()
        self._budget = Budget(limits=self._limits, param=param)
        self._param = param
        self._known: dict[tuple[object, frozenset[tuple[str, int]]], tuple[Schema, Automaton]] = {}

    def compile(self) -> Automaton:
        """The whole document's automaton."""
        try:
            automaton = self.compile_part(self.root)
        except RecursionError as error:
            raise self._error(self.root, self._culprit(self.root.schema), "nests too deep; flatten it") from error
        if automaton.is_empty:
            raise SchemaError(
                "allows no text at all", keyword=self._culprit(self.root.schema), path="", param=self._param
            )
        return automaton

    def compile_part(self, part: Part) -> Automaton:
        """The automaton of one schema, empty if nothing is valid there."""
        key = (_identity(part.schema), frozenset(part.active.items()))
        if key in self._known:
            return self._known[key][1]
        try:
            choices = [self.conjunction(parts) for parts in self.document.alternatives([part])]
            automaton = choices[0] if len(choices) == 1 else union(*choices, budget=self._budget)
        except TooLargeError as error:
            raise self._error(part, self._culprit(part.schema), str(error)) from error
        self._known[key] = (part.schema, automaton)  # the schema too, so that its identity stays its own
        return automaton

    # --- one conjunction of plain schemas ------------------------------------------------------------------------

    def conjunction(self, parts: Conjunction) -> Automaton:
        """The automaton of what satisfies all of some plain schemas."""
        whole = self.document.plain(parts)
        if whole is not None:
            return self._typed(whole)
        result = self._typed(parts[0])
        for part in parts[1:]:
            result = intersect(result, self._typed(part), budget=self._budget)
        return result

    def _typed(self, part: Part) -> Automaton:
        if isinstance(part.schema, bool):
            return free_value(self._limits.free_depth, self.separators) if part.schema else nothing()
        schema = part.schema
        if "enum" in schema:
            texts = union(*(literal(spelled(value, self.separators)) for value in schema["enum"]), budget=self._budget)
            rest = {name: value for name, value in schema.items() if name != "enum"}
            if not rest:
                return texts
            return intersect(texts, self._typed(part.of(rest)), budget=self._budget)
        types = types_of(schema)
        if "number" in types:
            types = tuple(name for name in types if name != "integer")
        kinds = [self._of_type(name, schema, part) for name in types]
        return kinds[0] if len(kinds) == 1 else union(*kinds, budget=self._budget)

    def _of_type(self, name: str, schema: Plain, part: Part) -> Automaton:
        match name:
            case "null":
                return null()
            case "boolean":
                return boolean()
            case "string":
                return self._string(schema)
            case "integer" | "number":
                return self._number(schema, whole=name == "integer")
            case "array":
                return self._array(schema, part)
            case _:
                return self._object(schema, part)

    def _string(self, schema: Plain) -> Automaton:
        most = schema.get("maxLength")
        return string(
            min_length=int(schema.get("minLength", 0)),
            max_length=None if most is None else int(most),
            pattern=schema.get("pattern"),
            format_name=None if schema.get("format") in NUMBER_FORMATS else schema.get("format"),
            budget=self._budget,
        )

    def _number(self, schema: Plain, *, whole: bool) -> Automaton:
        bounds = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        least, most, above, below_ = (decimal(schema[name]) if name in schema else None for name in bounds)
        limits = NUMBER_FORMATS.get(schema.get("format", ""))
        if limits is not None:
            least = Decimal(limits[0]) if least is None else max(least, Decimal(limits[0]))
            most = Decimal(limits[1]) if most is None else min(most, Decimal(limits[1]))
        if whole:
            low = [bound for bound in (least, None if above is None else _next_whole(above)) if bound is not None]
            high = [bound for bound in (most, None if below_ is None else _previous_whole(below_)) if bound is not None]
            return integers(max(low, default=None), min(high, default=None), budget=self._budget)
        return numbers(least, most, above=above, below=below_, budget=self._budget)

    def _array(self, schema: Plain, part: Part) -> Automaton:
        least, most = int(schema.get("minItems", 0)), schema.get("maxItems")
        prefix = schema.get("prefixItems", [])
        rest: Schema = schema.get("items", not prefix)
        if not prefix and rest is True and not least and most is None:
            return free_array(self._limits.free_depth, self.separators)
        item = self._inner(rest, part.child(rest, "items"))
        return array(
            item,
            least,
            None if most is None else int(most),
            self.separators,
            prefix=tuple(self._inner(s, part.child(s, "prefixItems", i)) for i, s in enumerate(prefix)),
            budget=self._budget,
        )

    def _inner(self, schema: Schema, part: Part) -> Automaton:
        """A schema inside a container; a free one nests one level less."""
        if schema is True or (schema is not False and all(is_annotation(name) for name in schema)):
            return free_value(max(self._limits.free_depth - 1, 0), self.separators)
        return self.compile_part(part)

    def _object(self, schema: Plain, part: Part) -> Automaton:
        properties: Mapping[str, Schema] = schema.get("properties", {})
        required = schema.get("required", [])
        if not properties and not required and is_open(schema) and additional(schema) is True:
            return free_object(self._limits.free_depth, self.separators)
        graph = Graph(self._budget)
        start, end = graph.state(), graph.state()
        separator = self.separators.item.encode()
        none_yet, some = graph.text(start, b"{"), graph.state()
        members = {name: part.child(member, "properties", name) for name, member in properties.items()}
        for name in required:
            members.setdefault(name, part.child(additional(schema), "additionalProperties"))
        for name, member in members.items():
            entry, after, after_none = graph.state(), graph.state(), graph.state()
            graph.link(none_yet, entry)
            graph.link(graph.text(some, separator), entry)
            key = graph.text(entry, b'"' + escaped(name) + b'"' + self.separators.key.encode())
            graph.link(graph.insert(key, self._inner(member.schema, member)), after)
            if name not in required:
                graph.link(none_yet, after_none)
                graph.link(some, after)
            none_yet, some = after_none, after
        if is_open(schema):
            self._additional(
                graph, none_yet, some, list(members), part.child(additional(schema), "additionalProperties")
            )
        for state in (none_yet, some):
            graph.link(graph.text(state, b"}"), end)
        return graph.automaton(start, end)

    def _additional(self, graph: Graph, none_yet: int, some: int, names: list[str], part: Part) -> None:
        """Adds any number of members with keys that are not among the names."""
        entry = graph.state()
        graph.link(none_yet, entry)
        graph.link(graph.text(some, self.separators.item.encode()), entry)
        taken = union(*(literal(b'"' + escaped(name) + b'"') for name in names))
        key = graph.insert(entry, difference(string(), taken, budget=self._budget) if names else string())
        value = graph.insert(graph.text(key, self.separators.key.encode()), self._inner(part.schema, part))
        graph.link(value, some)

    # --- oneOf ---------------------------------------------------------------------------------------------------

    def _apart(self, left: Conjunction, right: Conjunction) -> bool:
        """Whether it is proven that no text we generate for one conjunction is valid under the other."""
        one, two = self.document.plain(left), self.document.plain(right)
        if one is None or two is None:
            return False
        if isinstance(one.schema, bool) or isinstance(two.schema, bool):
            return one.schema is False or two.schema is False
        common = allowed_types(one.schema) & allowed_types(two.schema)
        scalars = sorted(common & _SCALARS)
        if scalars and any(self._share_scalars(a, b, scalars) for a, b in ((one, two), (two, one))):
            return False
        if "array" in common:
            return False
        return "object" not in common or (self._lacks(one, two) and self._lacks(two, one))

    def _share_scalars(self, generated: Part, judge: Part, types: list[str]) -> bool:
        """Whether a scalar generated for one schema may be valid under the other.

        A judge may take `format` for an annotation, and ours are narrower than the standards: it judges nothing here.
        """
        assert not isinstance(generated.schema, bool)
        assert not isinstance(judge.schema, bool)
        without = {name: value for name, value in judge.schema.items() if name != "format"}
        texts = self._typed(generated.of({**generated.schema, "type": types}))
        valid = self._typed(judge.of({**without, "type": types}))
        return not intersect(texts, valid, budget=self._budget).is_empty

    def _lacks(self, generated: Part, judge: Part) -> bool:
        """Whether each object generated for one schema is invalid under the other, whose objects may be open."""
        ours, theirs = generated.schema, judge.schema
        assert not isinstance(ours, bool)
        assert not isinstance(theirs, bool)
        if "enum" in ours or "enum" in theirs:
            return False
        mine, yours = ours.get("properties", {}), theirs.get("properties", {})
        ours_required, theirs_required = set(ours.get("required", [])), set(theirs.get("required", []))
        if not is_open(ours) and theirs_required - mine.keys() - ours_required:
            return True
        if theirs.get("additionalProperties") is False and ours_required - yours.keys():
            return True
        decisive = (ours_required | theirs_required) & mine.keys() & yours.keys()
        return any(
            all(self._apart(a, b) for a in self._member(generated, name) for b in self._member(judge, name))
            for name in sorted(decisive)
        )

    def _member(self, part: Part, name: str) -> list[Conjunction]:
        assert not isinstance(part.schema, bool)
        return self.document.alternatives([part.child(part.schema["properties"][name], "properties", name)])

    def _culprit(self, schema: Schema) -> str:
        """The keyword that most likely makes a schema large."""
        given = [] if isinstance(schema, bool) else [name for name in schema if not is_annotation(name)]
        return next((name for name in _SIZES if name in given), next(iter(given), "schema"))

    def _error(self, part: Part, keyword: str, message: str) -> SchemaError:
        return SchemaError(message, keyword=keyword, path=part.path, param=self._param)


def _identity(schema: Schema) -> object:
    """What tells schemas apart: a reference is where it leads, anything else is itself."""
    if isinstance(schema, bool):
        return schema
    constraining = [name for name in schema if not is_annotation(name)]
    return ("$ref", schema["$ref"]) if constraining == ["$ref"] else id(schema)


def _next_whole(value: Decimal) -> Decimal:
    """The smallest whole number above a value."""
    return Decimal(int(value.to_integral_value(rounding="ROUND_FLOOR")) + 1)


def _previous_whole(value: Decimal) -> Decimal:
    """The largest whole number below a value."""
    return Decimal(int(value.to_integral_value(rounding="ROUND_CEILING")) - 1)
