"""The transcript: what was said in a conversation, as the model is told it again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from channels import Json
from gateway.providers.base import ModelMessage
from gateway.store.form import check_form

__all__ = ["HISTORY", "RESET", "from_entries", "to_entries"]

HISTORY = 60
"""How many lines of the transcript a turn reads back."""

RESET: Json = {"role": "reset"}
"""From here on the transcript is empty."""


def to_entries(messages: Iterable[ModelMessage]) -> list[Json]:
    """The stored lines of these messages."""
    lines: list[Json] = _adapter().dump_python(list(messages), mode="json", exclude_defaults=True)
    return lines


def from_entries(lines: Sequence[Json]) -> list[ModelMessage]:
    """The messages since the last reset, beginning with one that stands by itself: no result without its call.

    Raises NewerForm.
    """
    for line in lines:
        check_form(line)
    begin = max((number for number, line in enumerate(lines, start=1) if line == RESET), default=0)
    messages: list[ModelMessage] = _adapter().validate_python(lines[begin:])
    first = next(
        (number for number, message in enumerate(messages) if message.role in ("user", "event")), len(messages)
    )
    return messages[first:]


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(list[ModelMessage])
