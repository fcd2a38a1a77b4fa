"""The transcript: what was said in a conversation, as the model is told it again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from pydantic import TypeAdapter

from channels import Json
from gateway.providers.base import ModelMessage
from gateway.store.codec import decode_all
from gateway.store.form import check_form

__all__ = ["HISTORY", "LINES_READ", "RESET", "Transcripts", "to_entries"]

HISTORY = 60
"""How many lines of the transcript a turn is told again, notes left out: these push no words out."""
LINES_READ = 80
"""How many lines are read for that. A turn writes at most one line of notes, and two or more beside it."""

RESET: Json = {"role": "reset"}
"""From here on the transcript is empty."""

_MOST_CONVERSATIONS, _MOST_CHARACTERS = 256, 32_768
"""So many are remembered, none of more text than that: some 16 MB at most."""


def to_entries(messages: Iterable[ModelMessage]) -> list[Json]:
    """The stored lines of these messages."""
    lines: list[Json] = _adapter().dump_python(list(messages), mode="json", exclude_defaults=True)
    return lines


@dataclass(frozen=True, slots=True)
class _Known:
    """The lines that a turn has read, and what each says; None: it has to be read anew."""

    lines: tuple[str, ...]
    said: Sequence[ModelMessage | None]

    def beginning(self, lines: tuple[str, ...]) -> Sequence[ModelMessage | None]:
        """What the first of these lines say, as far as they are the last of those."""
        for first, line in enumerate(self.lines):
            if line == lines[0] and self.lines[first:] == lines[: len(self.lines) - first]:
                return self.said[first:]
        return ()


class Transcripts:
    """Reads the transcripts of conversations. What the last turn of one has read, the next one need not."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Known] = OrderedDict()
        """Of those that spoke last."""

    def read(self, conversation: str, lines: Sequence[str]) -> list[ModelMessage]:
        """The messages since the last reset, beginning with one that stands by itself: no result without its call.

        `lines` are of `to_entries`, as JSON text. Raises NewerForm, and ValueError for what is no line of a transcript.
        """
        lines = tuple(lines)
        known = self._known.pop(conversation, None)
        said = [*known.beginning(lines)] if known and lines else []
        said += [None] * (len(lines) - len(said))
        anew = [number for number, message in enumerate(said) if message is None]
        values = dict(zip(anew, decode_all(lines[number] for number in anew), strict=True))
        begin = 0
        for number, value in values.items():
            check_form(value)
            begin = number + 1 if value == RESET else begin
        counts = [number for number in anew if number >= begin]
        messages = said[:]
        for number, message in zip(
            counts, _adapter().validate_python([values[number] for number in counts]), strict=True
        ):
            messages[number] = message
            said[number] = message if _lasts(message) else None
        said[:begin] = [None] * begin
        self._keep(conversation, _Known(lines, said))
        told = cast("list[ModelMessage]", messages[begin:])
        begin = _window(told)
        first = next((n for n in range(begin, len(told)) if told[n].role in ("user", "event")), len(told))
        return told[first:]

    def _keep(self, conversation: str, known: _Known) -> None:
        if sum(map(len, known.lines)) <= _MOST_CHARACTERS:
            self._known[conversation] = known
        if len(self._known) > _MOST_CONVERSATIONS:
            self._known.popitem(last=False)


def _window(told: Sequence[ModelMessage]) -> int:
    """Where the last `HISTORY` messages begin that are no notes."""
    counted = 0
    for number in range(len(told) - 1, -1, -1):
        counted += told[number].role != "event"
        if counted > HISTORY:
            return number + 1
    return 0


def _lasts(message: ModelMessage) -> bool:
    """Whether nobody can change it: arguments of a call are a dictionary."""
    return not (message.tool_calls or message.echo)


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(list[ModelMessage])
