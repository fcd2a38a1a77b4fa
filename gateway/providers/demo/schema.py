"""A tool's parameters in the demo's form, with the kind of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from channels import Json
from gateway.providers.base import ToolSpec
from gateway.providers.demo.words import names, stem, stems

Kind: TypeAlias = Literal["email", "id", "choice", "moment", "day", "time", "flag", "number", "list", "text", "other"]

ID = re.compile(r"(?<![\w@.-])(?:[A-Za-z]{1,10}[-_/]?(?=\d)[\w-]*\w|[A-Za-z]{1,10}-[\w-]*\d[\w-]*|#\d+)(?![\w@])")
"""The form of an id: INV-42, A7, #1001."""

_ID_WORDS = stems("id code ref reference key sku uuid number")
_DAY_WORDS = stems("date day deadline due until")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a tool, from its schema."""

    name: str
    kind: Kind
    required: bool
    description: str
    choices: tuple[Json, ...] = ()
    matches: Callable[[str], bool] | None = None
    """A check of a text against the schema's pattern, in linear time; None: the schema has no pattern."""
    example: str | None = None
    whole: bool = False
    """True for a number without a fraction."""
    item: Parameter | None = None
    """The element of a list."""

    @property
    def words(self) -> set[str]:
        return {stem(word) for word in names(self.name)}


def parameters(tool: ToolSpec) -> list[Parameter]:
    """Return a tool's parameters, in the schema's order."""
    schema: Mapping[str, Any] = tool.parameters
    required = schema.get("required") or ()
    properties: Mapping[str, Any] = schema.get("properties") or {}
    return [
        _parameter(name, _resolved(of, schema), schema, required=name in required) for name, of in properties.items()
    ]


def _resolved(of: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema with resolved references, and with the first alternative other than null."""
    for _ in range(8):
        several = of.get("anyOf") or of.get("oneOf") or of.get("allOf")
        if isinstance(ref := of.get("$ref"), str):
            inner: Any = root
            for step in ref.removeprefix("#/").split("/"):
                inner = inner.get(step, {})
        elif several:
            inner = next((one for one in several if one.get("type") != "null"), {})
        else:
            break
        of = {**inner, **{key: value for key, value in of.items() if key not in ("$ref", "anyOf", "oneOf", "allOf")}}
    return of


def _parameter(name: str, of: Mapping[str, Any], root: Mapping[str, Any], *, required: bool) -> Parameter:
    description = str(of.get("description") or "")
    examples = [str(one) for one in of.get("examples") or ()] + ID.findall(description)
    choices = tuple(of.get("enum") or ([of["const"]] if "const" in of else ()))
    item = _parameter(name, _resolved(of["items"], root), root, required=True) if of.get("items") else None
    return Parameter(
        name=name,
        kind=_kind(name, of, examples, bool(choices)),
        required=required,
        description=description,
        choices=choices,
        matches=_matcher(of.get("pattern")),
        example=examples[0] if examples else None,
        whole=of.get("type") == "integer",
        item=item,
    )


def _matcher(pattern: Any) -> Callable[[str], bool] | None:
    if not isinstance(pattern, str):
        return None
    from gateway.structured.json_schema import finder  # its library takes a tenth of a second to load

    try:
        return finder(pattern)
    except ValueError:
        return None


def _kind(name: str, of: Mapping[str, Any], examples: Sequence[str], has_choices: bool) -> Kind:
    words, shape, type_ = {stem(word) for word in names(name)}, of.get("format"), of.get("type", "string")
    if isinstance(type_, list):
        type_ = next((one for one in type_ if one != "null"), "string")
    if has_choices:
        return "choice"
    match type_:
        case "boolean":
            return "flag"
        case "integer" | "number":
            return "number"
        case "array":
            return "list" if of.get("items") else "other"
        case "string":
            pass
        case _:
            return "other"
    if shape == "date-time":
        return "moment"
    if shape == "time" or (words & stems("time hour") and not words & _DAY_WORDS):
        return "time"
    if shape == "date" or words & _DAY_WORDS:
        return "day"
    if shape == "email" or words & stems("email mail"):
        return "email"
    if shape == "uuid" or "pattern" in of or words & _ID_WORDS or any(ID.fullmatch(example) for example in examples):
        return "id"
    return "text"
