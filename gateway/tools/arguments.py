"""Tool arguments: the JSON Schema of a function's signature, and the validation of a model's arguments."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from channels import Json
from gateway.tools.errors import Problem, ToolValidationError
from gateway.tools.problems import problems
from gateway.tools.unshown import unshown

__all__ = ["Arguments", "Injected"]

T = TypeVar("T")


class _Hidden:
    """A marker for a parameter that the model never sees."""


Injected: TypeAlias = Annotated[T, _Hidden]
"""The annotation of a parameter that `injected_kwargs` or `config_injector` fill in, never the model.

For example ``Injected[Database]``.
"""


class Arguments:
    """The arguments of one tool: their JSON Schema, and their conversion from JSON to Python values and back."""

    def __init__(
        self,
        tool_name: str,
        parameters: Mapping[str, inspect.Parameter],
        *,
        hidden: frozenset[str],
        metadata: Mapping[str, Mapping[str, Any]],
        documented: str = "",
        injects: bool = False,
    ) -> None:
        """Build the schema of the parameters that the model sees.

        Parameters that are `hidden`, marked `Injected` or named with a leading underscore stay out of the schema.
        `metadata` maps a parameter to its description and enum. `documented` is the function's docstring. Its section
        about arguments describes the parameters that have no other description. `injects`: the tool has a
        config_injector.

        Raises ToolValidationError for a parameter that cannot be described to a model.
        """
        self._tool_name, self._injects = tool_name, injects
        self.hidden = hidden | {n for n, p in parameters.items() if n.startswith("_") or _is_hidden(p.annotation)}
        visible = {name: parameter for name, parameter in parameters.items() if name not in self.hidden}
        wrong = [
            Problem(name, "has no annotation", "Say its type")
            for name, parameter in visible.items()
            if parameter.annotation is inspect.Parameter.empty
        ]
        wrong += [
            Problem(name, "a set has no order that could be shown and kept", "Use a list")
            for name, parameter in visible.items()
            if _holds_set(parameter.annotation)
        ]
        wrong += [Problem(name, "in param_metadata, but not a parameter") for name in metadata if name not in visible]
        if wrong:
            raise ToolValidationError(tool_name, *wrong)
        # Fields have numbers for names, and aliases: a parameter may have any name, for example `schema` or `copy`.
        self._fields = {name: f"field_{number}" for number, name in enumerate(visible)}
        self._names = {field: name for name, field in self._fields.items()}
        try:
            self._model = self._make_model(visible, metadata, _documented(documented))
            schema = self._model.model_json_schema(schema_generator=_Untitled)
        except (PydanticUserError, RecursionError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise ToolValidationError(
                tool_name, Problem("", f"a parameter's type cannot be described to a model: {reason}")
            ) from None
        if wrong := self._wrong_defaults() + unshown(self._model, self._names):
            raise ToolValidationError(tool_name, *wrong)
        schema.pop("title", None)
        self.schema: dict[str, Any] = {"type": "object", "properties": {}, "required": [], **schema}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters that the model sees."""
        return tuple(self._fields)

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Json]:
        """Return the arguments as plain JSON, coerced to their types and with defaults filled in, in a new dict.

        Raises ToolValidationError, which names every problem.
        """
        checked: dict[str, Json] = self._check(arguments).model_dump(mode="json", by_alias=True)
        return checked

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as the Python values that the function takes (a date, an enum). Raises as `validate`."""
        model = self._check(arguments)
        return {name: getattr(model, field) for name, field in self._fields.items()}

    def _check(self, arguments: Mapping[str, Any]) -> BaseModel:
        required = self.schema["required"]
        given = {n: v for n, v in arguments.items() if v is not None or n in required or n not in self._fields}
        try:
            return self._model.model_validate(given)
        except ValidationError as error:
            found = problems(error.errors(), given, self.schema["properties"], injects=self._injects)
        expected = ", ".join(f"{name} (required)" if name in required else name for name in self._fields)
        raise ToolValidationError(self._tool_name, *found, expected=expected or "no arguments")

    def _make_model(
        self,
        visible: Mapping[str, inspect.Parameter],
        metadata: Mapping[str, Mapping[str, Any]],
        documented: Mapping[str, str],
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
            if "enum" in extra:
                choices: Any = Literal[tuple(extra["enum"])]
                annotation = choices | None if _is_optional(annotation) else choices
            described = extra.get("description") or _description(annotation) or documented.get(name)
            description = described or f"Parameter '{name}'"
            field = Field(default, alias=name, description=description)
            fields[self._fields[name]] = (_careful(annotation), field)
        config = ConfigDict(extra="forbid", allow_inf_nan=False, validate_default=True)
        return create_model(self._tool_name, __config__=config, **fields)

    def _wrong_defaults(self) -> list[Problem]:
        try:
            self._model.model_validate({})
        except ValidationError as error:
            return [
                Problem(self._names[str(each["loc"][0])], f"its default is no value of its type ({each['msg']})")
                for each in error.errors()
                if each["type"] != "missing"
            ]
        return []


class _Untitled(GenerateJsonSchema):
    """A schema generator without titles: a title made from a name costs tokens and adds no information."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def emit_warning(self, kind: Any, detail: str) -> None:
        raise PydanticInvalidForJsonSchema(detail)


def _is_hidden(annotation: Any) -> bool:
    return get_origin(annotation) is Annotated and _Hidden in get_args(annotation)


def _is_optional(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_optional(get_args(annotation)[0])
    return get_origin(annotation) in (Union, types.UnionType) and types.NoneType in get_args(annotation)


def _holds_set(annotation: Any) -> bool:
    bare = get_origin(annotation) or annotation
    return bare in (set, frozenset) or any(map(_holds_set, get_args(annotation)))


def _description(annotation: Any) -> str | None:
    if get_origin(annotation) is not Annotated:
        return None
    return next((m.description for m in get_args(annotation)[1:] if isinstance(m, FieldInfo) and m.description), None)


def _documented(docstring: str) -> Mapping[str, str]:
    """Return the description of each argument in a docstring, in Google, NumPy, Sphinx or Epydoc style."""
    if "\n" not in docstring:
        return {}
    from docstring_parser import ParseError, parse  # takes 20 ms, so only docstrings with sections pay for it

    try:
        found = parse(docstring).params
    except ParseError:
        return {}
    return {each.arg_name: " ".join(each.description.split()) for each in found if each.description}


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("true and false are not numbers")
    return value


def _stripped(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


_CARE = {int: BeforeValidator(_no_bool), float: BeforeValidator(_no_bool), bool: BeforeValidator(_stripped)}


def _without_none(annotation: Any) -> Any:
    members = [member for member in get_args(annotation) if member is not types.NoneType]
    return members[0] if _is_optional(annotation) and len(members) == 1 else annotation


def _careful(annotation: Any) -> Any:
    """Return the same type, but refuse a bool where a number is expected, and strip the text of a bool."""
    if isinstance(annotation, type) and annotation in _CARE:
        return Annotated[annotation, _CARE[annotation]]
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        # The last validator runs first, and limits like Field(ge=1) must stand next to their type.
        care = _CARE.get(_without_none(inner[0]))
        return Annotated[*inner, care] if care else Annotated[_careful(inner[0]), *inner[1:]]
    if origin in (Union, types.UnionType):
        return Union[tuple(map(_careful, inner))]  # noqa: UP007
    if isinstance(origin, type) and inner:
        return origin[tuple(map(_careful, inner))]  # type: ignore[index]
    return annotation
