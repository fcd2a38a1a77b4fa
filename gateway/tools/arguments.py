"""From a function's signature to the JSON Schema the model sees, and from the model's arguments to checked values."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails

from channels import Json
from gateway.tools.errors import Problem, ToolValidationError

__all__ = ["Arguments", "Injected"]

T = TypeVar("T")


class _Hidden:
    """Marks a parameter that the model never sees."""


Injected: TypeAlias = Annotated[T, _Hidden]
"""`Injected[Database]`: a parameter filled in by `injected_kwargs` or `config_injector`, never by the model."""


class Arguments:
    """The arguments of one tool: their JSON Schema, and the way from JSON to Python values and back."""

    def __init__(
        self,
        tool_name: str,
        parameters: Mapping[str, inspect.Parameter],
        *,
        hidden: frozenset[str],
        metadata: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Of the parameters, those `hidden`, marked `Injected` or with a leading underscore stay out of the schema.

        Raises ToolValidationError for what cannot be described to a model.
        """
        self._tool_name = tool_name
        self.hidden = hidden | {n for n, p in parameters.items() if n.startswith("_") or _is_hidden(p.annotation)}
        visible = {name: parameter for name, parameter in parameters.items() if name not in self.hidden}
        problems = [
            Problem(name, "has no annotation", "Say its type")
            for name, parameter in visible.items()
            if parameter.annotation is inspect.Parameter.empty
        ]
        problems += [
            Problem(name, "in param_metadata, but not a parameter") for name in metadata if name not in visible
        ]
        if problems:
            raise ToolValidationError(tool_name, *problems)
        # Fields are numbered and go by alias: a parameter may have any name, such as `schema` or `copy`.
        self._fields = {name: f"field_{number}" for number, name in enumerate(visible)}
        self._model = self._make_model(visible, metadata)
        self.schema = self._make_schema()

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters the model sees."""
        return tuple(self._fields)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Json]:
        """The arguments as plain JSON, coerced to their types, defaults filled in; the mapping given stays as it is.

        Raises ToolValidationError that names every problem.
        """
        checked: dict[str, Json] = self._check(arguments).model_dump(mode="json", by_alias=True)
        return checked

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the Python values the function takes (a date, an enum, ...). Raises as `validate`."""
        model = self._check(arguments)
        return {name: getattr(model, field) for name, field in self._fields.items()}

    def _check(self, arguments: Mapping[str, Any]) -> BaseModel:
        required = self.schema["required"]
        given = {n: v for n, v in arguments.items() if v is not None or n in required or n not in self._fields}
        try:
            return self._model.model_validate(given)
        except ValidationError as error:
            problems = _problems(error.errors(), given, self.schema["properties"])
        expected = ", ".join(f"{name} (required)" if name in required else name for name in self._fields)
        raise ToolValidationError(self._tool_name, *problems, expected=expected or "no arguments")

    def _make_model(
        self, visible: Mapping[str, inspect.Parameter], metadata: Mapping[str, Mapping[str, Any]]
    ) -> type[BaseModel]:
        fields: dict[str, Any] = {}
        for name, parameter in visible.items():
            extra = metadata.get(name, {})
            annotation = parameter.annotation
            default = ... if parameter.default is inspect.Parameter.empty else parameter.default
            if default is None and not _is_optional(annotation):
                annotation = annotation | None
            if default is ... and _is_optional(annotation):
                default = None
            if _holds_set(annotation):
                raise ToolValidationError(
                    self._tool_name, Problem(name, "a set has no order that could be shown and kept", "Use a list")
                )
            if "enum" in extra:
                choices: Any = Literal[tuple(extra["enum"])]
                annotation = choices | None if _is_optional(annotation) else choices
            description = extra.get("description") or _description(annotation) or f"Parameter '{name}'"
            field = Field(default, alias=name, description=description)
            fields[self._fields[name]] = (_careful(annotation), field)
        config = ConfigDict(extra="forbid", allow_inf_nan=False)
        try:
            return create_model(self._tool_name, __config__=config, **fields)
        except (PydanticSchemaGenerationError, RecursionError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise ToolValidationError(
                self._tool_name, Problem("", f"a parameter's type cannot be described to a model: {reason}")
            ) from None

    def _make_schema(self) -> dict[str, Any]:
        try:
            schema = self._model.model_json_schema(schema_generator=_Untitled)
        except PydanticInvalidForJsonSchema as error:
            reason = str(error).splitlines()[0]
            raise ToolValidationError(
                self._tool_name, Problem("", f"a parameter's type cannot be described to a model: {reason}")
            ) from None
        schema.pop("title", None)
        return {"type": "object", "properties": {}, "required": [], **schema}


class _Untitled(GenerateJsonSchema):
    """Titles made from names cost tokens and say nothing."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def emit_warning(self, kind: Any, detail: str) -> None:
        raise PydanticInvalidForJsonSchema(detail)


def _is_hidden(annotation: Any) -> bool:
    return get_origin(annotation) is Annotated and _Hidden in get_args(annotation)


def _is_optional(annotation: Any) -> bool:
    return get_origin(annotation) in (Union, types.UnionType) and types.NoneType in get_args(annotation)


def _holds_set(annotation: Any) -> bool:
    bare = get_origin(annotation) or annotation
    return bare in (set, frozenset) or any(map(_holds_set, get_args(annotation)))


def _description(annotation: Any) -> str | None:
    if get_origin(annotation) is not Annotated:
        return None
    return next((m.description for m in get_args(annotation)[1:] if isinstance(m, FieldInfo) and m.description), None)


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("true and false are not numbers")
    return value


def _stripped(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


_CAREFUL: dict[Any, Any] = {
    int: Annotated[int, BeforeValidator(_no_bool)],
    float: Annotated[float, BeforeValidator(_no_bool)],
    bool: Annotated[bool, BeforeValidator(_stripped)],
}


def _careful(annotation: Any) -> Any:
    """The same type, in which no bool passes for a number, and a bool's word may have space around it."""
    if isinstance(annotation, type) and annotation in _CAREFUL:
        return _CAREFUL[annotation]
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return Annotated[_careful(inner[0]), *inner[1:]]
    if origin in (Union, types.UnionType):
        return Union[tuple(map(_careful, inner))]  # noqa: UP007
    if isinstance(origin, type) and inner:
        return origin[tuple(map(_careful, inner))]  # type: ignore[index]
    return annotation


def _problems(errors: Sequence[ErrorDetails], given: Mapping[str, Any], properties: Mapping[str, Any]) -> list[Problem]:
    found: dict[str, Problem] = {}
    for error in errors:
        path, value = _locate(error["loc"], given)
        name = str(error["loc"][0])
        where = properties.get(name, {})
        if error["type"] == "extra_forbidden":
            known = properties if path == name else ()
            found[path] = Problem(path, "Unexpected parameter(s)", _suggest(path, known, "is not a valid parameter"))
        elif error["type"] == "missing":
            found[path] = Problem(path, "Missing required parameter")
        else:
            found.setdefault(path, _wrong(path, value, error, where if path == name else {}))
    return list(found.values())


def _locate(loc: Sequence[int | str], given: Any) -> tuple[str, Any]:
    """Where in the arguments an error is: pydantic also names union members, which are no part of the path."""
    path, value = str(loc[0]), given.get(loc[0])
    for step in loc[1:]:
        if isinstance(value, list) and isinstance(step, int) and step < len(value):
            path, value = f"{path}[{step}]", value[step]
        elif isinstance(value, dict) and step in value:
            path, value = f"{path}.{step}", value[step]
        elif isinstance(value, dict) and step == loc[-1]:
            path, value = f"{path}.{step}", None
    return path, value


def _suggest(word: str, known: Any, otherwise: str) -> str:
    close = get_close_matches(word, [str(name) for name in known], n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else f"{word!r} {otherwise}"


def _wrong(path: str, value: Any, error: ErrorDetails, schema: Mapping[str, Any]) -> Problem:
    expected = _type_name(schema)
    if choices := _choices(schema):
        return Problem(path, f"{_short(value)} is not allowed", _suggest(str(value), choices, f"must be {expected}"))
    issue = f"Wrong type or value {_short(value)} ({error['msg'].removeprefix('Value error, ')})"
    if "string" in expected.split(" or ") and isinstance(value, (bool, int, float)):
        return Problem(path, issue, f"Try: {path}=str({value!r})")
    return Problem(path, issue, f"Expected type: {expected}" if expected else "")


def _choices(schema: Mapping[str, Any]) -> list[Any]:
    found = list(schema.get("enum", [schema["const"]] if "const" in schema else []))
    for option in schema.get("anyOf", ()):
        found += _choices(option)
    return found


def _type_name(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(filter(None, map(_type_name, schema["anyOf"])))
    if choices := _choices(schema):
        return " or ".join(repr(choice) for choice in choices)
    name = str(schema.get("type", ""))
    inner = _type_name(schema["items"]) if "items" in schema else ""
    return f"{name} of {inner}" if inner else name


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
