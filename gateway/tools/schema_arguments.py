"""Tool arguments described by a JSON Schema or by ToolParameters, instead of the function's signature."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from channels import Json
from gateway.tools.arguments import MOST_PROBLEMS, schema_problems, unexpected
from gateway.tools.errors import Problem, ToolValidationError

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

    `type` and `element_type` are ``str``, ``int``, ``float``, ``bool``, ``list`` or ``dict``, or the name in JSON
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


class ArgumentReader(Protocol):
    """The arguments of a tool: the JSON Schema, and the conversion from JSON to Python values and back."""

    schema: dict[str, Any]
    hidden: frozenset[str]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters shown to the model."""

    def is_number(self, name: str) -> bool:
        """Return True if the type of a parameter is a number."""

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Json]:
        """Return the arguments as plain JSON, in a new dict. Raises ToolValidationError with every problem."""

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as values for the function. Raises as `validate`."""


class SchemaArguments:
    """Arguments by a JSON Schema. Unnamed arguments are refused unless allowed by the schema."""

    def __init__(self, tool_name: str, schema: Mapping[str, Json], *, hidden: frozenset[str]) -> None:
        """Raises ToolValidationError for anything but a JSON Schema of an object, and for an unfit default."""
        from gateway.structured import json_schema  # its library takes a tenth of a second to load

        self._tool_name, self.hidden = tool_name, hidden
        try:
            described: dict[str, Any] = json_schema.checked(copy.deepcopy(dict(schema)))
        except (ValueError, RecursionError) as error:
            raise ToolValidationError(tool_name, Problem("", f"parameters: {error}")) from None
        if described.get("type", "object") != "object":
            raise ToolValidationError(tool_name, Problem("", "parameters: the schema must be that of an object"))
        self.schema: dict[str, Any] = {**described, "type": "object"}
        self.schema.setdefault("properties", {})
        self.schema.setdefault("required", [])
        self._faults, self._one_effort = json_schema.found_faults, json_schema.one_effort
        self._properties: dict[str, Any] = self.schema["properties"]
        self.open = bool(self.schema.get("additionalProperties") or self.schema.get("patternProperties"))
        """True if the schema allows unnamed arguments."""
        self.defaults = {
            name: each["default"]
            for name, each in self._properties.items()
            if isinstance(each, dict) and "default" in each
        }
        if wrong := self.unfit(self.defaults):
            raise ToolValidationError(
                tool_name, *(Problem(name, "its default is no value of its type") for name in wrong)
            )
        if both := sorted(hidden & set(self._properties)):
            raise ToolValidationError(tool_name, Problem(both[0], "is both injected and in the schema"))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters shown to the model."""
        return tuple(self._properties)

    def is_number(self, name: str) -> bool:
        """Return True if the schema's type of this parameter is a number, or a number or null."""
        described = self._properties.get(name)
        kinds = described.get("type") if isinstance(described, dict) else None
        kinds = {kinds} if isinstance(kinds, str) else set(kinds or ())
        return bool(kinds & {"integer", "number"}) and kinds <= {"integer", "number", "null"}

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Json]:
        """Return the arguments as plain JSON, coerced to their types and with defaults filled in, in a new dict.

        Raises ToolValidationError with every problem.
        """
        with self._one_effort():
            return self._validated(arguments)

    def _validated(self, arguments: Mapping[str, Any]) -> dict[str, Json]:
        required = self.schema["required"]
        given = {
            name: _coerced(copy.deepcopy(value), self._properties.get(name))
            for name, value in arguments.items()
            if value is not None or name in required or name not in self._properties or self._takes_none(name)
        }
        found = [] if self.open else self._unknown(given)
        try:
            json.dumps(given, allow_nan=False)
        except ValueError:
            found.append(Problem("", "NaN and infinities are no JSON"))
        checked = {name: value for name, value in given.items() if self.open or name in self._properties}
        filled = {**copy.deepcopy(self.defaults), **checked}
        found += schema_problems(self._faults(self.schema, filled), filled, self._properties)
        if found:
            expected = ", ".join(f"{name} (required)" if name in required else name for name in self._properties)
            raise ToolValidationError(self._tool_name, *found, expected=expected or "no arguments")
        return filled

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments for the function, as plain JSON. Raises as `validate`."""
        return self.validate(arguments)

    def unfit(self, defaults: Mapping[str, Any]) -> list[str]:
        """Return the names of the defaults not fitting the schema."""
        places = {fault.path[0] for fault in self._faults(self.schema, dict(defaults)) if fault.path}
        return [name for name in defaults if name in places]

    def _takes_none(self, name: str) -> bool:
        return not any(fault.path == (name,) for fault in self._faults(self.schema, {name: None}))

    def _unknown(self, given: Mapping[str, Any]) -> list[Problem]:
        unknown = [name for name in given if name not in self._properties]
        if len(unknown) > MOST_PROBLEMS:
            return [Problem("", f"{len(unknown)} unknown parameters", "Use the names of the parameters")]
        return [unexpected(name, self._properties) for name in unknown]


def without_wrong_defaults(schema: Mapping[str, Json], wrong: list[str]) -> dict[str, Any]:
    """Return a copy of the schema without the defaults of these parameters."""
    made: dict[str, Any] = copy.deepcopy(dict(schema))
    for name in wrong:
        del made["properties"][name]["default"]
    return made


_READ: Mapping[str, type | tuple[type, ...]] = {"integer": int, "number": (int, float), "boolean": bool}


def _coerced(value: Any, schema: Any) -> Any:
    """Convert a number or truth value, written by a model as text or as a whole float, to the type of the schema."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if not isinstance(kind, str) or kind not in _READ:
        return value
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, str):
        return value
    text = value.strip()
    try:
        read = json.loads(text.lower() if kind == "boolean" else text)
    except (ValueError, RecursionError):
        return value
    if kind == "integer" and isinstance(read, float) and read.is_integer():
        read = int(read)
    fits = isinstance(read, _READ[kind]) and (kind == "boolean" or not isinstance(read, bool))
    return read if fits else value
