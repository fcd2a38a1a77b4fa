"""The transcript: what was said in a conversation, as the model is told it again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from channels import Json
from gateway.providers.base import ModelMessage
from gateway.store.codec import decode_all
from gateway.store.form import check_form

__all__ = ["HISTORY", "RESET", "Transcripts", "to_entries"]

HISTORY = 60
"""How many lines of the transcript a turn reads back."""

RESET: Json = {"role": "reset"}
"""From here on the transcript is empty."""

_KNOWN: Any = object()
_MOST_CONVERSATIONS, _MOST_CHARACTERS = 256, 32_768
"""So many are remembered, none of more text than that: some 16 MB at most."""


def to_entries(messages: Iterable[ModelMessage]) -> list[Json]:
    """The stored lines of these messages."""
    lines: list[Json] = _adapter().dump_python(list(messages), mode="json", exclude_defaults=True)
    return lines


class Transcripts:
    """Reads the transcripts of conversations. What the last turn of one has read, the next one need not."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Mapping[str, ModelMessage]] = OrderedDict()
        """Line -> what it says, of those that spoke last."""

    def read(self, conversation: str, lines: Sequence[str]) -> list[ModelMessage]:
        """The messages since the last reset, beginning with one that stands by itself: no result without its call.

        `lines` are of `to_entries`, as JSON text. Raises NewerForm, and ValueError for what is no line of a transcript.
        """
        known = self._known.pop(conversation, {})
        decoded = iter(decode_all(line for line in lines if line not in known))
        values = [_KNOWN if line in known else next(decoded) for line in lines]
        for value in values:
            if value is not _KNOWN:
                check_form(value)
        begin = max((number for number, value in enumerate(values, start=1) if value == RESET), default=0)
        said = list(zip(lines[begin:], values[begin:], strict=True))
        fresh = iter(_adapter().validate_python([value for _, value in said if value is not _KNOWN]))
        read = [(line, known[line] if value is _KNOWN else next(fresh)) for line, value in said]
        self._keep(conversation, {line: message for line, message in read if line in known or _lasts(message)})
        messages: list[ModelMessage] = [message for _, message in read]
        first = next((n for n, message in enumerate(messages) if message.role in ("user", "event")), len(messages))
        return messages[first:]

    def _keep(self, conversation: str, known: Mapping[str, ModelMessage]) -> None:
        if sum(map(len, known)) <= _MOST_CHARACTERS:
            self._known[conversation] = known
        if len(self._known) > _MOST_CONVERSATIONS:
            self._known.popitem(last=False)


def _lasts(message: ModelMessage) -> bool:
    """Whether nobody can change it: arguments of a call are a dictionary."""
    return not (message.tool_calls or message.echo)


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(list[ModelMessage])
