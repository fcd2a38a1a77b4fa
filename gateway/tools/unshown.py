"""Checks for fields of a parameter's type that the effect gets and the question cannot show.

A question shows the arguments as pydantic writes them, and the effect reads the shown arguments. A field that is not
written, or written under a name that is not read, would silently get its default, which the person did not see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from pydantic import BaseModel

from gateway.tools.errors import Problem

__all__ = ["unshown"]

_Node: TypeAlias = Mapping[str, Any]

_NOT_HERE = frozenset({"config", "default", "definitions", "fields", "metadata", "serialization"})
"""Entries of a core schema that hold no type that is read at this place."""


def unshown(arguments: type[BaseModel], parameters: Mapping[str, str]) -> list[Problem]:
    """Return the problems of the fields of these arguments. `parameters` maps its own fields to parameter names."""
    schema: Any = arguments.__pydantic_core_schema__
    definitions = {each["ref"]: each for each in schema.get("definitions", ())}
    return [
        Problem(".".join((parameters[path[0]], *path[1:])), issue, mend)
        for path, issue, mend in _Search(definitions).below(schema, (), {}, False)
    ]


class _Search:
    """A traversal of one core schema that visits each type once for each parameter."""

    def __init__(self, definitions: Mapping[str, _Node]) -> None:
        self._definitions = definitions
        self._passed: set[tuple[str | bool, ...]] = set()

    def below(
        self, node: Any, path: tuple[str, ...], config: _Node, rewritten: bool
    ) -> Iterator[tuple[tuple[str, ...], str, str]]:
        """Yield path, issue and remedy of each field that is not shown.

        `config` is that of the enclosing type. `rewritten` is True if a function of the author serializes this place.
        """
        if isinstance(node, list | tuple):
            for each in node:
                yield from self.below(each, path, config, rewritten)
        if not isinstance(node, Mapping):
            return
        config = node.get("config", config)
        rewritten = rewritten or "function" in node.get("serialization", {})
        if node.get("type") == "definition-ref":
            here = (*path[:1], node["schema_ref"], rewritten)
            if here not in self._passed:
                self._passed.add(here)
                yield from self.below(self._definitions[node["schema_ref"]], path, config, rewritten)
        for name, field in _fields(node):
            if (wrong := _wrong(name, field, config, rewritten)) is not None:
                yield (*path, name), *wrong
            yield from self.below(field["schema"], (*path, name), config, rewritten)
        for entry, inner in node.items():
            if entry not in _NOT_HERE:
                yield from self.below(inner, path, config, rewritten)


def _fields(node: _Node) -> list[tuple[str, _Node]]:
    match node:
        case {"type": "model-fields" | "typed-dict", "fields": fields}:
            return list(fields.items())
        case {"type": "dataclass-args", "fields": fields}:
            return [(field["name"], field) for field in fields if field.get("init", True)]
    return []


def _wrong(name: str, field: _Node, config: _Node, rewritten: bool) -> tuple[str, str] | None:
    if "serialization_exclude" in field or "serialization_exclude_if" in field:
        return "is left out of what is written, so that no question shows it", "Remove exclude and exclude_if"
    if field.get("init_only"):
        return "is not kept, so that no question shows it", "Make it a field instead of an InitVar"
    read, written = _read_as(name, field, config), field.get("serialization_alias", name)
    if written not in read:
        by = " or ".join(map(repr, sorted(read))) or "a path"
        return f"is written as {written!r} and read as {by}", "Give it one alias for both"
    if rewritten and (field["schema"]["type"] == "default" or not field.get("required", True)):
        return "may be left out by a serializer of its own", "Remove the serializer, or the field's default"
    return None


def _read_as(name: str, field: _Node, config: _Node) -> set[str]:
    """Return the names under which a field is read."""
    alias = field.get("validation_alias", name)
    paths = [[alias]] if isinstance(alias, str) else alias if isinstance(alias[0], list) else [alias]
    by_alias = config.get("validate_by_alias", True) or alias == name
    read = {path[0] for path in paths if len(path) == 1} if by_alias else set()
    return read | {name} if config.get("validate_by_name") else read
