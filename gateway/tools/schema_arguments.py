"""Tool arguments that a JSON Schema describes, for tools whose function does not."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any, Protocol

from channels import Json
from gateway.tools.errors import Problem, ToolValidationError
from gateway.tools.problems import schema_problems, unexpected

__all__ = ["ArgumentReader", "SchemaArguments", "without_wrong_defaults"]


class ArgumentReader(Protocol):
    """The arguments of one tool: their JSON Schema, and their conversion from JSON to Python values and back."""

    schema: dict[str, Any]
    hidden: frozenset[str]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters that the model sees."""

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Json]:
        """Return the arguments as plain JSON, in a new dict. Raises ToolValidationError, which names every problem."""

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as the values that the function takes. Raises as `validate`."""


class SchemaArguments:
    """Arguments by a JSON Schema. An argument that the schema does not name is refused unless the schema allows it."""

    def __init__(self, tool_name: str, schema: Mapping[str, Json], *, hidden: frozenset[str]) -> None:
        """Raises ToolValidationError for what is no JSON Schema of an object, and for a default that does not fit."""
        from gateway import json_schema  # its library takes a tenth of a second to load

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
        self._faults = json_schema.found_faults
        self._properties: dict[str, Any] = self.schema["properties"]
        self.open = bool(self.schema.get("additionalProperties") or self.schema.get("patternProperties"))
        """True if the schema says that it takes arguments which it does not name."""
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
        """The names of the parameters that the model sees."""
        return tuple(self._properties)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Json]:
        """Return the arguments as plain JSON, coerced to their types and with defaults filled in, in a new dict.

        Raises ToolValidationError, which names every problem.
        """
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
        """Return the arguments as the function takes them: as they are in JSON. Raises as `validate`."""
        return self.validate(arguments)

    def unfit(self, defaults: Mapping[str, Any]) -> list[str]:
        """Return the names of those defaults that do not fit the schema."""
        places = {fault.path[0] for fault in self._faults(self.schema, dict(defaults)) if fault.path}
        return [name for name in defaults if name in places]

    def _takes_none(self, name: str) -> bool:
        return not any(fault.path == (name,) for fault in self._faults(self.schema, {name: None}))

    def _unknown(self, given: Mapping[str, Any]) -> list[Problem]:
        return [unexpected(name, self._properties) for name in given if name not in self._properties]


def without_wrong_defaults(schema: Mapping[str, Json], wrong: list[str]) -> dict[str, Any]:
    """Return a copy of the schema in which these parameters have no default."""
    made: dict[str, Any] = copy.deepcopy(dict(schema))
    for name in wrong:
        del made["properties"][name]["default"]
    return made


_READ: Mapping[str, type | tuple[type, ...]] = {"integer": int, "number": (int, float), "boolean": bool}


def _coerced(value: Any, schema: Any) -> Any:
    """Return a number or a truth value that a model wrote as a text, or as a whole float, as its schema wants it."""
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
