"""The format that the answer of a run must have: how the model is told of it, and how its answer is read."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from channels import Json
from gateway.providers.answer_schema import asking_for
from gateway.providers.base import Provider, Request, Response
from gateway.structured import (
    ResponseFormat,
    parse_and_validate,
    schema_from_response_format,
)

__all__ = ["AnswerFormat", "answer_format"]

_CUT_OFF = "the answer was cut off at its length limit: give a shorter one"
_REFUSED = "the model refused to answer"


async def answer_format(response_format: ResponseFormat) -> AnswerFormat:
    """Return the format of an answer, made in a thread: its schema is checked, and a library loaded for that.

    Raises as `schema_from_response_format` does.
    """
    key = _key(response_format)
    if (known := _KNOWN.get(key)) is None:
        known = AnswerFormat(response_format, await asyncio.to_thread(schema_from_response_format, response_format))
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = known
    return known


def _key(response_format: ResponseFormat) -> object:
    if isinstance(response_format, type):
        return response_format
    try:
        return orjson.dumps(response_format, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # no JSON, which is refused
        return object()


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """A response format with its JSON Schema."""

    response_format: ResponseFormat
    schema: Mapping[str, Json]

    def asked_of(self, provider: Provider, request: Request) -> Request:
        """Return the request with the format; see `asking_for`."""
        return asking_for(provider, request, self.schema)

    def read(self, response: Response) -> Any:
        """Return the value of an answer. Raises ValueError with its faults."""
        if response.finish == "refused":
            raise ValueError(_REFUSED)
        try:
            return parse_and_validate(response.content, self.response_format)
        except ValueError:
            if response.finish == "length":
                raise ValueError(_CUT_OFF) from None
            raise


_KNOWN: Final[dict[object, AnswerFormat]] = {}
"""The formats of this process by their model, or by the JSON of their schema."""
_MOST_KNOWN: Final = 256
