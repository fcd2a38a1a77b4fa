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

_MOST_CONVERSATIONS, _MOST_CHARACTERS = 256, 32_768
"""So many are remembered, none of more text than that: some 16 MB at most."""


def to_entries(messages: Iterable[ModelMessage]) -> list[Json]:
    """The stored lines of these messages."""
    lines: list[Json] = _adapter().dump_python(list(messages), mode="json", exclude_defaults=True)
    return lines


class Transcripts:
    """Reads the transcripts of conversations. What the last turn of one has read, the next one need not."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Mapping[str, ModelMessage | None]] = OrderedDict()
        """Line -> what it says (None: a reset), of those that spoke last."""

    def read(self, conversation: str, lines: Sequence[str]) -> list[ModelMessage]:
        """The messages since the last reset, beginning with one that stands by itself: no result without its call.

        `lines` are of `to_entries`, as JSON text. Raises NewerForm, and ValueError for what is no line of a transcript.
        """
        known = self._known.pop(conversation, {})
        new = [line for line in dict.fromkeys(lines) if line not in known]
        read = {**known, **dict(zip(new, _read(new), strict=True))}
        said = [read[line] for line in lines]
        self._keep(conversation, {line: read[line] for line in lines if line in known or _lasts(read[line])})
        begin = 0
        for number, message in enumerate(said, start=1):
            if message is None:
                begin = number
        messages = [message for message in said[begin:] if message is not None]
        first = next((n for n, message in enumerate(messages) if message.role in ("user", "event")), len(messages))
        return messages[first:]

    def _keep(self, conversation: str, known: Mapping[str, ModelMessage | None]) -> None:
        if sum(map(len, known)) <= _MOST_CHARACTERS:
            self._known[conversation] = known
        if len(self._known) > _MOST_CONVERSATIONS:
            self._known.popitem(last=False)


def _lasts(message: ModelMessage | None) -> bool:
    """Whether nobody can change it: arguments of a call are a dictionary."""
    return message is None or not (message.tool_calls or message.echo)


def _read(lines: Sequence[str]) -> list[ModelMessage | None]:
    values = decode_all(lines)
    for value in values:
        check_form(value)
    messages = iter(_adapter().validate_python([value for value in values if value != RESET]))
    return [None if value == RESET else next(messages) for value in values]


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(list[ModelMessage])
