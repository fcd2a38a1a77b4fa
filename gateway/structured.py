"""Answers with a schema: the schema of a response format, its instruction, and the validated value of a text.

A response format is a pydantic model or a JSON Schema (draft 2020-12, unless ``$schema`` names another). A ``$ref``
reads the schema's own ``$defs``: nothing is ever fetched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft202012Validator, validator_for
from pydantic import BaseModel, ValidationError
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012

from channels import Json

__all__ = [
    "ResponseFormat",
    "build_schema_instruction",
    "extract_json",
    "parse_and_validate",
    "schema_from_response_format",
    "validation_retry_message",
]

ResponseFormat: TypeAlias = type[BaseModel] | Mapping[str, Json]

_MOST_CANDIDATES: Final = 50
"""The most values of one text that are looked at. A reply is not trusted to be short."""
_MOST_FAULTS: Final = 5
_FAULT_LENGTH: Final = 300

_FENCE: Final = re.compile(r"```[ \t]*[\w.+-]*[ \t]*\r?\n")
_OPENING: Final = re.compile(r"[{\[]")
_LIKE_JSON: Final = re.compile(r'\{\s*["}]|\[\s*(?:["{\[\]\d-]|true\b|false\b|null\b)')
"""The beginnings after which a text that is no JSON is a broken value, and not prose with a bracket."""


def extract_json(text: str) -> str | None:
    """Return the first JSON object or array of a text, as it stands there; None if there is none.

    A fenced block comes before the prose around it. A value that is broken, or cut off, has no part that counts. NaN
    and infinities are not JSON.
    """
    return next(_values(text), None)


def schema_from_response_format(response_format: ResponseFormat) -> dict[str, Json]:
    """Return the JSON Schema of a response format.

    Raises TypeError for anything else than a pydantic model or a mapping, and ValueError for a mapping that is no valid
    JSON Schema, or one whose ``$ref`` leads nowhere or back to itself.
    """
    if isinstance(response_format, type) and issubclass(response_format, BaseModel):
        return response_format.model_json_schema()
    if not isinstance(response_format, Mapping):
        raise TypeError(
            f"response_format is a pydantic model or a JSON Schema, not {_named(response_format)}: "
            "give a class of pydantic.BaseModel, or a dict"
        )
    schema = dict(response_format)
    try:
        json.dumps(schema, allow_nan=False)
        validator_for(schema, Draft202012Validator).check_schema(schema)
        _check_references(schema)
    except SchemaError as error:
        raise ValueError(f"response_format is no JSON Schema: {_place(error.path)}{error.message}") from None
    except Unresolvable as error:
        raise ValueError(f"response_format has a $ref that leads nowhere: {error.ref}") from None
    except RecursionError:
        raise ValueError("response_format has a $ref that leads back to itself") from None
    except TypeError as error:
        raise ValueError(f"response_format is no JSON: {error}") from None
    return schema


def _check_references(schema: dict[str, Json]) -> None:
    """Follow each ``$ref``. Raises Unresolvable and RecursionError."""
    resource = Resource.from_contents(schema, default_specification=DRAFT202012)
    resolver = Registry().with_resource("", resource).resolver()
    waiting: list[Json] = [schema]
    while waiting:
        match waiting.pop():
            case dict() as each:
                if isinstance(reference := each.get("$ref"), str):
                    resolver.lookup(reference)
                waiting += each.values()
            case list() as several:
                waiting += several
    _validator(schema).is_valid({})


def parse_and_validate(text: str, response_format: ResponseFormat) -> Any:
    """Return the value that a text holds: an instance of the pydantic model, or the JSON that fits the schema.

    A text with several values gives the first that is valid. A pydantic model converts types as it does for JSON.
    Raises ValueError with the faults of the first value, or one that says that there is no JSON. Also raises what
    `schema_from_response_format` does.
    """
    is_model = isinstance(response_format, type) and issubclass(response_format, BaseModel)
    check = _validator(schema_from_response_format(response_format)) if not is_model else None
    fault: str | None = None
    for found in _values(text):
        try:
            if check is None:
                return response_format.model_validate_json(found)  # type: ignore[union-attr]
            value = json.loads(found)
            faults = list(check.iter_errors(value))
        except ValidationError as error:
            fault = fault or _model_faults(error)
        except RecursionError:
            fault = fault or "the value is nested too deeply"
        except Unresolvable as error:  # a $ref relative to an inner $id
            raise ValueError(f"response_format has a $ref that leads nowhere: {error.ref}") from None
        else:
            if not faults:
                return value
            fault = fault or _lines(f"{_place(each.absolute_path)}{each.message}" for each in faults)
    raise ValueError(fault or "the reply holds no JSON object or array")


def build_schema_instruction(schema: Mapping[str, Json]) -> str:
    """Return the part of a system prompt that asks for JSON of this schema."""
    return (
        "Give your final answer as JSON alone, without a word before or after it, valid against this JSON Schema:\n"
        + json.dumps(dict(schema), ensure_ascii=False)
    )


def validation_retry_message(error: str) -> str:
    """Return the message that tells the model why its answer was refused."""
    return f"Your answer does not fit the JSON Schema:\n{error}\nAnswer again with valid JSON alone."


def _values(text: str) -> Iterator[str]:
    """Yield the JSON objects and arrays of a text: those of fenced blocks, then the others."""
    if not text:
        return
    starts = [match.end() for match in _FENCE.finditer(text)]
    seen: set[int] = set()
    left = _MOST_CANDIDATES
    for begin, in_fence in [*((start, True) for start in starts), (0, False)]:
        position = begin
        while left and (opening := _OPENING.search(text, position)) is not None:
            start = opening.start()
            if in_fence and text[begin:start].strip():
                break  # the block begins with something else
            left -= 1
            end = _end_of_value(text, start)
            if end is not None:
                if start not in seen:
                    seen.add(start)
                    yield text[start:end]
                position = end
            elif _LIKE_JSON.match(text, start):
                break
            else:
                position = start + 1
            if in_fence:
                break


def _end_of_value(text: str, start: int) -> int | None:
    """Return the end of the JSON value that begins here; None if there is no JSON value."""
    try:
        return _DECODER.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def _validator(schema: Mapping[str, Json]) -> Any:
    return validator_for(schema, Draft202012Validator)(dict(schema), registry=Registry())


def _model_faults(error: ValidationError) -> str:
    return _lines(
        f"{_place(each['loc'])}{each['msg']}"
        for each in error.errors(include_url=False, include_context=False, include_input=False)
    )


def _place(path: Any) -> str:
    """Return the path of a value, such as ``items[0].price: ``."""
    said = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
    return f"{said}: " if said else ""


def _lines(faults: Iterator[str]) -> str:
    every = list(faults)
    lines = [each if len(each) <= _FAULT_LENGTH else f"{each[:_FAULT_LENGTH]}…" for each in every[:_MOST_FAULTS]]
    more = len(every) - len(lines)
    return "\n".join([*lines, *([f"and {more} more"] if more else [])])


def _named(value: object) -> str:
    return repr(value) if isinstance(value, type) else type(value).__name__
