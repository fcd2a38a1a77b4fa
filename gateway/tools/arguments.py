"""Tool arguments: the JSON Schema of a function's signature, and the validation of a model's arguments."""

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import ErrorDetails

from channels import Json
from gateway.tools.errors import Problem, ToolValidationError

if TYPE_CHECKING:
    from gateway.structured.json_schema import Fault


T = TypeVar("T")


class _Hidden:
    """A marker for a parameter hidden from the model."""


Injected: TypeAlias = Annotated[T, _Hidden]
"""The annotation of a parameter filled in by `injected_kwargs` or `config_injector`, never by the model.

For example ``Injected[Database]``.
"""


class Arguments:
    """The arguments of a tool: the JSON Schema, and the conversion from JSON to Python values and back."""

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
        """Build the schema of the parameters shown to the model.

        Parameters in `hidden`, marked `Injected` or named with a leading underscore stay out of the schema. `metadata`
        maps a parameter to a description and enum. `documented` is the function's docstring, with a section describing
        the parameters without another description. `injects`: the tool has a config_injector.

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
            described = _described(visible, metadata, _documented(documented))
            self._numbers = frozenset(name for name, annotation, *_ in described if _is_number(annotation))
            make = _plain_model if all(map(_is_plain, described)) else _make_model
            self._model, made = make(tool_name, described)
            schema = copy.deepcopy(made)
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
        """The names of the parameters shown to the model."""
        return tuple(self._fields)

    def is_number(self, name: str) -> bool:
        """Return True if the parameter is an int, a float or a Decimal, also with None."""
        return name in self._numbers

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Json]:
        """Return the arguments as plain JSON, coerced to their types and with defaults filled in, in a new dict.

        Raises ToolValidationError with every problem.
        """
        checked: dict[str, Json] = self._check(arguments).model_dump(mode="json", by_alias=True)
        return checked

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as Python values for the function (a date, an enum). Raises as `validate`."""
        model = self._check(arguments)
        return {name: getattr(model, field) for name, field in self._fields.items()}

    def _check(self, arguments: Mapping[str, Any]) -> BaseModel:
        required = self.schema["required"]
        given = {n: v for n, v in arguments.items() if v is not None or n in required or n not in self._fields}
        try:
            return self._model.model_validate(given)
        except ValidationError as error:
            found = self._problems(error, given)
        expected = ", ".join(f"{name} (required)" if name in required else name for name in self._fields)
        raise ToolValidationError(self._tool_name, *found, expected=expected or "no arguments")

    def _problems(self, error: ValidationError, given: Mapping[str, Any]) -> list[Problem]:
        if (count := error.error_count()) > MOST_PROBLEMS:
            return [Problem("", f"{count} values do not fit", "Read the types of the parameters again")]
        return problems(error.errors(), given, self.schema["properties"], injects=self._injects)

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


_Described: TypeAlias = tuple[str, Any, Any, str]
"""A parameter's name, annotation, default (...: none) and description."""


def _described(
    visible: Mapping[str, inspect.Parameter],
    metadata: Mapping[str, Mapping[str, Any]],
    documented: Mapping[str, str],
) -> tuple[_Described, ...]:
    found: list[_Described] = []
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
        description = extra.get("description") or _description(annotation) or documented.get(name)
        found.append((name, annotation, default, description or f"Parameter '{name}'"))
    return tuple(found)


def _is_plain(parameter: _Described) -> bool:
    _, annotation, default, _ = parameter
    return default is ... and any(annotation is each for each in (str, int, float, bool))


def _make_model(tool_name: str, parameters: tuple[_Described, ...]) -> tuple[type[BaseModel], dict[str, Any]]:
    """Return the model of a tool's arguments, and the JSON Schema."""
    fields: dict[str, Any] = {
        f"field_{number}": (_careful(annotation), Field(default, alias=name, description=description))
        for number, (name, annotation, default, description) in enumerate(parameters)
    }
    config = ConfigDict(extra="forbid", allow_inf_nan=False, validate_default=True)
    model = create_model(tool_name, __config__=config, **fields)
    return model, model.model_json_schema(schema_generator=_Untitled)


_plain_model = lru_cache(maxsize=256)(_make_model)
"""The same with a cache, for plain types: the tests of a bot make the tools anew for each chat, and a model takes
milliseconds."""


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


def _is_number(annotation: Any) -> bool:
    if get_origin(annotation) is Annotated:
        return _is_number(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return all(member is types.NoneType or _is_number(member) for member in get_args(annotation))
    return any(annotation is each for each in (int, float, Decimal))


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


_INJECTED = "A parameter that config_injector fills in is annotated Injected[...] (from askfirst)"
MOST_PROBLEMS = 100
"""The most problems of one call that are named. A model that sends more has sent another thing altogether."""
_MOST_SAID = 200
"""The most characters of a fault text from the JSON Schema library: the text quotes the value."""


def problems(
    errors: Sequence[ErrorDetails], given: Mapping[str, Any], properties: Mapping[str, Any], *, injects: bool = False
) -> list[Problem]:
    """Return a problem for each wrong place in the arguments, as found by pydantic.

    `given` are the arguments, and `properties` the properties of the schema. `injects`: the tool has a config_injector.
    """
    found: dict[str, Problem] = {}
    for error in errors:
        path, value = _locate(error, given)
        name = str(error["loc"][0])
        where = properties.get(name, {})
        if error["type"] == "extra_forbidden":
            known = properties if path == name else ()
            found[path] = unexpected(path, known)
        elif error["type"] == "missing":
            found[path] = replace(_missing(path), suggestion=_INJECTED if injects else "")
        else:
            said = error["msg"].removeprefix("Value error, ")
            found.setdefault(path, _wrong(path, value, said, where if path == name else {}))
    return list(found.values())


def schema_problems(faults: Iterable[Fault], given: Mapping[str, Any], properties: Mapping[str, Any]) -> list[Problem]:
    """Return a problem for each place in the arguments not fitting the JSON Schema."""
    found: dict[str, Problem] = {}
    for fault in faults:
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in fault.path).removeprefix(".")
        if fault.keyword == "required":
            for name in fault.schema["required"]:
                if name not in fault.value:
                    found.setdefault(where := f"{path}.{name}".removeprefix("."), _missing(where))
        elif not fault.path:
            found.setdefault("", Problem("", fault.message[:_MOST_SAID]))
        else:
            top = properties.get(str(fault.path[0]))
            where_schema = top if len(fault.path) == 1 and isinstance(top, Mapping) else {}
            found.setdefault(path, _wrong(path, fault.value, fault.message[:_MOST_SAID], where_schema))
    return list(found.values())


def unexpected(path: str, known: Iterable[str]) -> Problem:
    """Return the problem of an unknown parameter."""
    return Problem(path, "Unexpected parameter(s)", _suggest(path, known, "is not a valid parameter"))


def _missing(path: str) -> Problem:
    return Problem(path, "Missing required parameter")


def _locate(error: ErrorDetails, given: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the path of an error in the arguments, and the value there.

    pydantic also names members of unions, which are not part of the path.
    """
    loc = error["loc"]
    path, value = str(loc[0]), given.get(str(loc[0]))
    for step in loc[1:]:
        if isinstance(value, list) and isinstance(step, int) and step < len(value):
            path, value = f"{path}[{step}]", value[step]
        elif isinstance(value, dict) and step in value:
            path, value = f"{path}.{step}", value[step]
        elif error["type"] == "missing" and step == loc[-1]:
            path, value = f"{path}.{step}", None
    return path, value


def _suggest(word: str, known: Iterable[Any], otherwise: str) -> str:
    from difflib import get_close_matches  # imported only after an error

    close = get_close_matches(word, [str(name) for name in known], n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else f"{word!r} {otherwise}"


def _wrong(path: str, value: Any, said: str, schema: Mapping[str, Any]) -> Problem:
    expected = _type_name(schema)
    if choices := _choices(schema):
        return Problem(path, f"{_short(value)} is not allowed", _suggest(str(value), choices, f"must be {expected}"))
    issue = f"Wrong type or value {_short(value)} ({said})"
    if "string" in expected.split(" or ") and isinstance(value, (bool, int, float)):
        return Problem(path, issue, f"Try: {path}=str({value!r})")
    return Problem(path, issue, f"Expected type: {expected}" if expected else "")


def _choices(schema: Any) -> list[Any]:
    if not isinstance(schema, Mapping):
        return []
    found = list(schema.get("enum", [schema["const"]] if "const" in schema else []))
    for option in schema.get("anyOf", ()):
        found += _choices(option)
    return found


def _type_name(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return ""
    if "anyOf" in schema:
        return " or ".join(filter(None, map(_type_name, schema["anyOf"])))
    if choices := _choices(schema):
        return " or ".join(repr(choice) for choice in choices)
    kinds = schema.get("type", "")
    name = " or ".join(map(str, kinds)) if isinstance(kinds, list) else str(kinds)
    inner = _type_name(schema["items"]) if "items" in schema else ""
    return f"{name} of {inner}" if inner else name


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_Node: TypeAlias = Mapping[str, Any]

_NOT_HERE = frozenset({"config", "default", "definitions", "fields", "metadata", "serialization"})
"""Entries of a core schema without a type read at this place."""


def unshown(arguments: type[BaseModel], parameters: Mapping[str, str]) -> list[Problem]:
    """Return the problems of fields passed to the effect and hidden from the question.

    A question shows the arguments as written by pydantic, and the effect reads the shown arguments. A field not
    written, or written under a name never read, would silently get the default, unseen by the person. `parameters` maps
    the fields of `arguments` to parameter names.
    """
    schema: Any = arguments.__pydantic_core_schema__
    definitions = {each["ref"]: each for each in schema.get("definitions", ())}
    return [
        Problem(".".join((parameters[path[0]], *path[1:])), issue, mend)
        for path, issue, mend in _Search(definitions).below(schema, (), {}, False)
    ]


class _Search:
    """A traversal of a core schema, visiting each type once for each parameter."""

    def __init__(self, definitions: Mapping[str, _Node]) -> None:
        self._definitions = definitions
        self._passed: set[tuple[str | bool, ...]] = set()

    def below(
        self, node: Any, path: tuple[str, ...], config: _Node, rewritten: bool
    ) -> Iterator[tuple[tuple[str, ...], str, str]]:
        """Yield path, issue and remedy of each hidden field.

        `config` is the config of the enclosing type. `rewritten` is True if a function of the author serializes this
        place.
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
            if (wrong := _hiding(name, field, config, rewritten)) is not None:
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


def _hiding(name: str, field: _Node, config: _Node, rewritten: bool) -> tuple[str, str] | None:
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
    """Return the names for reading a field."""
    alias = field.get("validation_alias", name)
    paths = [[alias]] if isinstance(alias, str) else alias if isinstance(alias[0], list) else [alias]
    by_alias = config.get("validate_by_alias", True) or alias == name
    read = {path[0] for path in paths if len(path) == 1} if by_alias else set()
    return read | {name} if config.get("validate_by_name") else read
