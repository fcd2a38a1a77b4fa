"""ToolParameter: a parameter of a tool that is described by hand, and the JSON Schema of several of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["ToolParameter", "schema_of"]

_NAMES: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
}
_KNOWN = frozenset(_NAMES.values())
_Type: TypeAlias = type[Any] | str


@dataclass(frozen=True, slots=True)
class ToolParameter:
    """A parameter of a tool, for `Tool.from_schema`.

    `type` and `element_type` are ``str``, ``int``, ``float``, ``bool``, ``list`` or ``dict``, or their names in JSON
    Schema, like ``"string"``. `enum`: the allowed values. `element_type`: the type of a list's elements. Raises
    ValueError for another type, an empty name or enum, and an `element_type` without a list.
    """

    name: str
    type: _Type
    description: str
    required: bool = True
    enum: Sequence[Any] | None = None
    element_type: _Type | None = None

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a ToolParameter needs a name")
        kind = _json_type(self.name, self.type)
        if self.enum is not None and (isinstance(self.enum, str) or not self.enum):
            raise ValueError(f"ToolParameter {self.name!r}: enum is a list of the allowed values, not {self.enum!r}")
        if self.element_type is not None:
            if kind != "array":
                raise ValueError(f"ToolParameter {self.name!r}: only a list has an element_type, not {kind}")
            _json_type(self.name, self.element_type)


def schema_of(parameters: Sequence[ToolParameter]) -> dict[str, Any]:
    """Return the JSON Schema of these parameters. Raises ValueError when two have the same name."""
    names = [each.name for each in parameters]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two parameters have the name {twice[0]!r}")
    return {
        "type": "object",
        "properties": {each.name: _property(each) for each in parameters},
        "required": [each.name for each in parameters if each.required],
        "additionalProperties": False,
    }


def _property(parameter: ToolParameter) -> dict[str, Any]:
    made: dict[str, Any] = {"type": _json_type(parameter.name, parameter.type)}
    if parameter.element_type is not None:
        made["items"] = {"type": _json_type(parameter.name, parameter.element_type)}
    if parameter.enum is not None:
        made["enum"] = list(parameter.enum)
    return {**made, "description": parameter.description or f"Parameter '{parameter.name}'"}


def _json_type(name: str, written: _Type) -> str:
    if isinstance(written, str) and written in _KNOWN:
        return written
    try:
        return _NAMES[written]
    except (KeyError, TypeError):
        known = "str, int, float, bool, list, dict"
        raise ValueError(f"ToolParameter {name!r}: the type is one of {known}, not {written!r}") from None
