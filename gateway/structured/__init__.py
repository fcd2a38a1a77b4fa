"""Answers with a schema: the schema of a response format, the instruction for the model, and the validated value.

A response format is a pydantic model or a JSON Schema (draft 2020-12, unless ``$schema`` names another draft). A
``$ref`` reads the schema's own ``$defs``: no URL is ever fetched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, ValidationError

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
"""The most candidate values read from a text. A reply is not trusted to be short."""
_MOST_FAULTS: Final = 5
_FAULT_LENGTH: Final = 300

_FENCE: Final = re.compile(r"```[ \t]*[\w.+-]*[ \t]*\r?\n")
_OPENING: Final = re.compile(r"[{\[]")
_FIRST: Final = re.compile(r"\s*[{\[]")
_LIKE_JSON: Final = re.compile(r'\{\s*["}]|\[\s*(?:["{\[\]\d-]|true\b|false\b|null\b)')
"""Beginnings of a broken JSON value, in contrast to prose with a bracket."""


def extract_json(text: str) -> str | None:
    """Return the first JSON object or array of a text, unchanged; None if there is no JSON.

    A fenced block comes before the prose around the block. No part of a broken or truncated value counts. NaN and
    infinities are not JSON.
    """
    return next(_values(text), None)


def schema_from_response_format(response_format: ResponseFormat) -> dict[str, Json]:
    """Return the JSON Schema of a response format.

    Raises TypeError for anything else than a pydantic model or a mapping. Raises ValueError for an invalid JSON Schema,
    and for a ``$ref`` without a target or in a cycle.
    """
    if isinstance(response_format, type) and issubclass(response_format, BaseModel):
        return response_format.model_json_schema()
    if not isinstance(response_format, Mapping):
        raise TypeError(
            f"response_format is a pydantic model or a JSON Schema, not {_named(response_format)}: "
            "give a class of pydantic.BaseModel, or a dict"
        )
    from gateway.structured import json_schema  # its library takes a tenth of a second to load

    try:
        return json_schema.checked(response_format)
    except ValueError as error:
        raise ValueError(f"response_format: {error}") from None


def parse_and_validate(text: str, response_format: ResponseFormat) -> Any:
    """Return the value in a text: an instance of the pydantic model, or JSON valid against the schema.

    From a text with several values, return the first valid value. A pydantic model converts types as for JSON. Raises
    ValueError with the faults of the first value, ValueError for a text without JSON, and the errors of
    `schema_from_response_format`.
    """
    if isinstance(response_format, type) and issubclass(response_format, BaseModel):
        read: Callable[[str], Any] = response_format.model_validate_json
    else:
        schema = schema_from_response_format(response_format)
        read = partial(_read, schema)
    fault: str | None = None
    for found in _values(text):
        try:
            return read(found)
        except ValidationError as error:
            fault = fault or _model_faults(error)
        except ValueError as error:
            fault = fault or str(error)
    raise ValueError(fault or "the reply holds no JSON object or array")


def _read(schema: Mapping[str, Json], text: str) -> Any:
    """Return the JSON of a text. Raises ValueError with the faults against the schema."""
    from gateway.structured import json_schema

    value = json.loads(text)
    if faults := json_schema.faults(schema, value):
        raise ValueError(_lines(faults))
    return value


def build_schema_instruction(schema: Mapping[str, Json]) -> str:
    """Return the part of a system prompt with the request for JSON of this schema."""
    return (
        "Give your final answer as JSON alone, without a word before or after it, valid against this JSON Schema:\n"
        + json.dumps(dict(schema), ensure_ascii=False)
    )


def validation_retry_message(error: str) -> str:
    """Return the message to the model with the reason for a refused answer."""
    return f"Your answer does not fit the JSON Schema:\n{error}\nAnswer again with valid JSON alone."


def _values(text: str) -> Iterator[str]:
    """Yield the JSON objects and arrays of a text: first from the fenced blocks, then the others."""
    if not text:
        return
    starts = [match.end() for match in _FENCE.finditer(text)]
    seen: set[int] = set()
    left = _MOST_CANDIDATES
    for begin, in_fence in [*((start, True) for start in starts), (0, False)]:
        position = begin
        # The block may begin with something else. A search to the end of the text for each fence would be quadratic.
        opens = _FIRST.match if in_fence else _OPENING.search
        while left and (opening := opens(text, position)) is not None:
            start = opening.end() - 1
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
    """Return the end of the JSON value beginning here; None if there is no JSON value."""
    try:
        return _DECODER.raw_decode(text, start)[1]
    except (ValueError, RecursionError):
        return None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)


def _model_faults(error: ValidationError) -> str:
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    return _lines([f"{'.'.join(map(str, each['loc']))}: {each['msg']}".removeprefix(": ") for each in errors])


def _lines(faults: Sequence[str]) -> str:
    lines = [each if len(each) <= _FAULT_LENGTH else f"{each[:_FAULT_LENGTH]}…" for each in faults[:_MOST_FAULTS]]
    more = len(faults) - len(lines)
    return "\n".join([*lines, *([f"and {more} more"] if more else [])])


def _named(value: object) -> str:
    return repr(value) if isinstance(value, type) else type(value).__name__
