"""JSON Schemas: the check of a schema, and the faults of a value against a schema. No URL is ever fetched."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from itertools import islice
from typing import Annotated, Any, Final, NamedTuple

from jsonschema.exceptions import SchemaError
from jsonschema.exceptions import ValidationError as NotValid
from jsonschema.validators import Draft202012Validator, extend, validator_for
from pydantic import StringConstraints, TypeAdapter, ValidationError
from pydantic_core import SchemaError as PydanticCoreError
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from channels import Json

_MOST_STEPS = 20_000
"""The most keywords applied in one validation. A few nested ``allOf`` can need more than a day.

A keyword with a long value, or applied to a long list, counts as more.
"""
_ITEMS_A_STEP = 20
_UNIQUE_A_STEP = 2
_NODES_A_STEP = 100
"""The parts of a value counted as a step for each keyword applied to the value."""
_SLOW = ("unevaluatedProperties", "unevaluatedItems")
_BRANCHES = ("anyOf", "oneOf", "allOf")
_MOST_FAULTS = 20
"""The most faults of a value. More help nobody, and each has a text with the value."""
_MOST_CHOICES = 50
"""The most choices in the text of a fault."""
_LONGEST_PATTERN = 1_000
_VALUES = ("const", "default", "enum", "examples")
"""The keywords with values instead of schemas."""
_work: ContextVar[_Effort] = ContextVar("askfirst_schema_work")


class _Effort:
    """The work of a validation, or of several validations together."""

    def __init__(self) -> None:
        self.left = _MOST_STEPS
        self.choices: dict[int, tuple[frozenset[str], str]] = {}
        """The id of an enum -> its values as JSON, and its text for a fault."""
        self.nodes: dict[int, int] = {}
        """The id of a list or object in the value -> the number of its parts."""

    def count(self, steps: int) -> None:
        """Count steps. Raises _TooLong."""
        self.left -= steps
        if self.left < 0:
            raise _TooLong

    def size(self, value: Json) -> int:
        """Return the number of parts of a value, and of characters of a text."""
        if isinstance(value, str):
            return len(value)
        if not isinstance(value, (list, dict)):
            return 1
        if (known := self.nodes.get(id(value))) is None:
            inner = value.values() if isinstance(value, dict) else value
            known = self.nodes[id(value)] = len(value) + sum([self.size(each) for each in inner if type(each) in _HELD])
        return known


_HELD: Final = frozenset({list, dict, str})


@contextmanager
def one_effort() -> Iterator[None]:
    """Let all validations in the block share the steps of one."""
    token = _work.set(_Effort())
    try:
        yield
    finally:
        _work.reset(token)


class _TooLong(Exception):
    """A validation takes too many steps."""


class Fault(NamedTuple):
    """A fault in a value."""

    path: tuple[str | int, ...]
    keyword: str
    """The violated keyword of the schema. Empty if the value or the schema cannot be checked."""
    message: str
    value: Any = None
    """The part of the value at the path."""
    schema: Any = None
    """The part of the schema with the keyword."""


def checked(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Return the schema as a dict.

    Raises ValueError for an invalid JSON Schema, and for a ``$ref`` without a target or in a cycle.
    """
    schema = dict(schema)
    try:
        json.dumps(schema, allow_nan=False)
        _check_patterns(schema)
        validator_for(schema, Draft202012Validator).check_schema(schema)
        _follow_references(schema)
    except SchemaError as error:
        raise ValueError(f"it is no JSON Schema: {_place(error.path)}{error.message}") from None
    except Unresolvable as error:
        raise ValueError(f"it has a $ref that leads nowhere: {error.ref}") from None
    except RecursionError:
        raise ValueError("it has a $ref that leads back to itself") from None
    except _TooLong:
        raise ValueError("it takes too long to check a value by it") from None
    except TypeError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    return schema


def faults(schema: Mapping[str, Json], value: Json) -> list[str]:
    """Return the faults of a value against a checked schema. Empty for a valid value."""
    return [f"{_place(each.path)}{each.message}" for each in found_faults(schema, value)]


def found_faults(schema: Mapping[str, Json], value: Json) -> list[Fault]:
    """Return the faults of a value against a checked schema, with the places."""
    try:
        return [
            Fault(tuple(each.absolute_path), str(each.validator), each.message, each.instance, each.schema)
            for each in _validate(schema, value)
        ]
    except RecursionError:
        return [Fault((), "", "the value is nested too deeply")]
    except _TooLong:
        return [Fault((), "", "it takes too long to check the value by the schema")]
    except (OverflowError, ValueError):
        return [Fault((), "", "it has a number too large to be checked by the schema")]
    except Unresolvable as error:  # relative to an inner $id
        return [Fault((), "", f"the schema has a $ref that leads nowhere: {error.ref}")]


def _validate(schema: Mapping[str, Json], value: Json) -> list[Any]:
    validator = _bounded(validator_for(schema, Draft202012Validator))(dict(schema), registry=Registry())
    with nullcontext() if _work.get(None) is not None else one_effort():
        _work.get().nodes.clear()  # a value of an earlier check may be gone, and its id belong to another
        return list(islice(validator.iter_errors(value), _MOST_FAULTS))


@functools.cache
def _bounded(validator: Any) -> Any:
    """Return a kind of validator with bounded steps. The validator raises _TooLong."""

    def counted(name: str, keyword: Callable[..., Iterator[Any] | None]) -> Callable[..., Iterator[Any] | None]:
        def apply(*args: Any) -> Iterator[Any] | None:
            _, held, value, _ = args
            work = _work.get()
            length = len(held) if isinstance(held, (list, dict)) and keyword is not _enum else 0
            read = 1 + work.size(value) // (_NODES_A_STEP if name not in _SLOW else _NODES_A_STEP // 50)
            work.count(length * read if name in _BRANCHES else length // _ITEMS_A_STEP + read)
            return keyword(*args)

        return apply

    known = {**validator.VALIDATORS, **_LINEAR}
    keywords = {name: counted(name, keyword) for name, keyword in known.items()}
    return extend(validator, keywords)  # type: ignore[no-untyped-call]


@functools.lru_cache(512)
def finder(pattern: str) -> Callable[[str], bool]:
    """Return a search for this pattern in linear time, by the engine of pydantic. Raises ValueError if not possible.

    Python's own engine takes hours for some patterns, and a person can dictate the text.
    """
    try:
        text = TypeAdapter(Annotated[str, StringConstraints(pattern=pattern)])
    except PydanticCoreError:
        raise ValueError(
            f"it has a pattern that cannot be searched in linear time: {repr(pattern)[:100]}. Write it without looking "
            "ahead or behind, and without references to its own groups"
        ) from None

    def finds(value: str) -> bool:
        try:
            text.validate_python(value, strict=True)
        except ValidationError:
            return False
        return True

    return finds


def _pattern(validator: Any, pattern: str, value: Json, schema: Any) -> Iterator[Any]:
    if isinstance(value, str) and not finder(pattern)(value):
        yield NotValid(f"{value!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], value: Json, schema: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        _work.get().count(len(patterns) * len(value) // _ITEMS_A_STEP)
        for pattern, inner in patterns.items():
            for name in filter(finder(pattern), value):
                yield from validator.descend(value[name], inner, path=name, schema_path=pattern)


def _additional_properties(validator: Any, more: Any, value: Json, schema: Any) -> Iterator[Any]:
    if not isinstance(value, dict):
        return
    patterns = [finder(pattern) for pattern in schema.get("patternProperties", {})]
    names = [name for name in value if name not in schema.get("properties", {})]
    _work.get().count(len(patterns) * len(names) // _ITEMS_A_STEP)
    extra = [name for name in names if not any(finds(name) for finds in patterns)]
    if isinstance(more, dict):
        for name in extra:
            yield from validator.descend(value[name], more, path=name)
    elif not more and extra:
        verb = "was" if len(extra) == 1 else "were"
        said = ", ".join(map(repr, sorted(extra)))
        yield NotValid(f"Additional properties are not allowed ({said} {verb} unexpected)")


def _unique_items(validator: Any, unique: bool, value: Json, schema: Any) -> Iterator[Any]:
    if unique and isinstance(value, list):
        _work.get().count(len(value) // _UNIQUE_A_STEP)
        written = [_written(item) for item in value]
        if len(set(written)) < len(written):
            yield NotValid(f"{repr(value)[:_LONGEST_PATTERN]} has non-unique elements")


def _enum(validator: Any, choices: Any, value: Json, schema: Any) -> Iterator[Any]:
    work = _work.get()
    if (known := work.choices.get(id(choices))) is None:
        work.count(work.size(choices) // _ITEMS_A_STEP)
        text = repr(choices) if len(choices) <= _MOST_CHOICES else f"the {len(choices)} choices"
        known = work.choices[id(choices)] = frozenset(map(_written, choices)), text[:_LONGEST_PATTERN]
    if _written(value) not in known[0]:
        yield NotValid(f"{value!r} is not one of {known[1]}")


def _written(value: Json) -> str:
    return json.dumps(_canonical(value), sort_keys=True)


def _canonical(value: Json) -> Json:
    """Return the value with whole floats as integers, so 1.0 and 1 have the same JSON."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case list():
            return [_canonical(item) for item in value]
        case dict():
            return {name: _canonical(item) for name, item in value.items()}
    return value


_LINEAR: Final = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "enum": _enum,
    "uniqueItems": _unique_items,
}
"""The keywords with more than linear time in the library."""


def _place(path: Iterable[Any]) -> str:
    """Return the path of a value as the beginning of a fault, for example ``items[0].price: ``."""
    said = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
    return f"{said}: " if said else ""


def _check_patterns(schema: Mapping[str, Json]) -> None:
    """Raise ValueError for a pattern too long to compile quickly."""
    waiting: list[Json] = [dict(schema)]
    while waiting:
        match waiting.pop():
            case dict() as each:
                patterns = each.get("patternProperties")
                for pattern in (each.get("pattern"), *(patterns if isinstance(patterns, dict) else ())):
                    if isinstance(pattern, str) and len(pattern) > _LONGEST_PATTERN:
                        raise ValueError(f"it has a pattern of more than {_LONGEST_PATTERN} characters")
                waiting += each.values()
            case list() as several:
                waiting += several


def _follow_references(schema: dict[str, Json]) -> None:
    """Follow each ``$ref``, and read each pattern. Raises Unresolvable, RecursionError, _TooLong and ValueError."""
    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = Registry().with_resource("", resource).resolver()
    waiting: list[Json] = [schema]
    while waiting:
        match waiting.pop():
            case dict() as each:
                if isinstance(reference := each.get("$ref"), str):
                    resolver.lookup(reference)
                if isinstance(pattern := each.get("pattern"), str):
                    finder(pattern)
                if isinstance(patterns := each.get("patternProperties"), dict):
                    for pattern in patterns:
                        finder(pattern)
                    if "unevaluatedProperties" in each:
                        raise ValueError("it has patternProperties beside unevaluatedProperties: leave one of them out")
                waiting += [value for name, value in each.items() if name not in _VALUES]
            case list() as several:
                waiting += several
    _validate(schema, {})
