"""Schemas taken apart: references followed, compositions multiplied out into conjunctions of plain schemas."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from unmask.grammar.keywords import Schema, SchemaError, below, is_annotation, resolve
from unmask.grammar.merging import merged

_MAX_ALTERNATIVES = 256

Active = Mapping[str, int]
"""Place of a schema -> how many references to it are being followed here."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One schema of a conjunction, with its place and the references that led to it."""

    schema: Schema
    path: str
    active: Active

    def child(self, schema: Schema, *steps: str | int) -> "Part":
        """A schema inside this one."""
        return Part(schema=schema, path=below(self.path, *steps), active=self.active)

    def of(self, schema: Schema) -> "Part":
        """Another schema in the same place."""
        return Part(schema=schema, path=self.path, active=self.active)


Conjunction = list[Part]


@dataclass(frozen=True, kw_only=True)
class Document:
    """A whole schema, in which references lead from one place to another.

    Args:
        root: the schema.
        ref_depth: how many times one reference is followed inside itself, the first time included.
        param: the request field that errors name.
        apart: whether two conjunctions are proven to have no instance in common; asked for the branches of `oneOf`.
    """

    root: Schema
    ref_depth: int
    param: str | None
    apart: Callable[[Conjunction, Conjunction], bool]

    def plain(self, parts: Conjunction) -> Part | None:
        """The parts as one without composition; None if they cannot be written so."""
        schemas = [part.schema for part in parts if part.schema is not True]
        active = {name: max(part.active.get(name, 0) for part in parts) for part in parts for name in part.active}
        result: Schema = schemas[0] if schemas else True
        for schema in schemas[1:]:
            if isinstance(result, bool) or isinstance(schema, bool):
                return Part(schema=False, path=parts[0].path, active=active)
            both = merged(result, schema)
            if both is None:
                return None
            result = both
        path = next((part.path for part in parts if part.schema is not True), parts[0].path)
        return Part(schema=result, path=path, active=active)

    def alternatives(self, parts: Conjunction) -> list[Conjunction]:
        """Takes references and compositions apart: a list of conjunctions of plain schemas, any of which may hold."""
        flat = [plain for part in parts for plain in self._flattened(part)]
        for index, part in enumerate(flat):
            if isinstance(part.schema, bool):
                continue
            for keyword in ("anyOf", "oneOf"):
                if keyword in part.schema:
                    rest = {name: value for name, value in part.schema.items() if name != keyword}
                    others = [*flat[:index], part.of(rest or True), *flat[index + 1 :]]
                    return self._branches(part, keyword, others)
        return [flat]

    def _branches(self, part: Part, keyword: str, others: Conjunction) -> list[Conjunction]:
        assert not isinstance(part.schema, bool)
        branches = [
            self.alternatives([*others, part.child(branch, keyword, index)])
            for index, branch in enumerate(part.schema[keyword])
        ]
        flat = [alternative for branch in branches for alternative in branch]
        if len(flat) > _MAX_ALTERNATIVES:
            raise SchemaError(
                f"multiplies out to more than {_MAX_ALTERNATIVES} alternatives",
                keyword=keyword,
                path=part.path,
                param=self.param,
            )
        if keyword == "oneOf":
            for index, branch in enumerate(branches):
                for other, later in list(enumerate(branches))[index + 1 :]:
                    if not all(self.apart(a, b) for a in branch for b in later):
                        message = f"branches {index} and {other} may both hold; make them disjoint or use anyOf"
                        raise SchemaError(message, keyword=keyword, path=part.path, param=self.param)
        return flat

    def _flattened(self, part: Part) -> Iterator[Part]:
        """The schemas that must all hold, without `$ref`, `allOf`, `const` and `nullable`."""
        if isinstance(part.schema, bool):
            yield part
            return
        schema = {name: value for name, value in part.schema.items() if not is_annotation(name)}
        if "const" in schema:
            constant = [schema.pop("const")]
            if "enum" in schema:
                yield part.of({"enum": constant})
            else:
                schema["enum"] = constant
        if schema.pop("nullable", False) and not ("enum" in schema and None not in schema["enum"]):
            schema = {"anyOf": [schema, {"type": "null"}]}
        reference, branches = schema.pop("$ref", None), schema.pop("allOf", [])
        if schema or (reference is None and not branches):
            yield part.of(schema or True)
        for index, branch in enumerate(branches):
            yield from self._flattened(part.child(branch, "allOf", index))
        if reference is not None:
            target, path = resolve(self.root, reference, part.path, self.param)
            turns = part.active.get(path, 0) + 1
            deep = turns > self.ref_depth
            active = {**part.active, path: turns}
            yield from self._flattened(Part(schema=False if deep else target, path=path, active=active))
