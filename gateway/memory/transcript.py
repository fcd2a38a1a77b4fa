"""The transcript: the messages of a conversation, as read again by the model."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from channels import Json
from gateway.memory.tokens import TokenCount
from gateway.memory.window import ConversationMemory, Trim
from gateway.providers.base import ModelMessage
from gateway.store.codec import decode_all

log = logging.getLogger("askfirst.memory")

HISTORY = 60
"""The number of messages read again in a turn of a bot without a memory. Notes do not count, and so push no message
out."""
_LINES_READ = 80
"""The number of stored lines to read for HISTORY messages.

A turn writes at most one line of notes, beside two or more other lines.
"""
_LINES_MORE = 20
"""The lines to read beyond two for each message of a memory: one for the message, and one for earlier notes."""

RESET: Json = {"role": "reset"}
"""The line of a reset: the transcript is empty from here on."""

_MOST_CONVERSATIONS, _MOST_CHARACTERS = 256, 32_768
"""The conversations kept in memory, and the most characters of each: 16 MB in total at most."""


def to_entries(messages: Iterable[ModelMessage]) -> list[Json]:
    """Return the stored lines of these messages."""
    lines: list[Json] = _adapter().dump_python(list(messages), mode="json", exclude_defaults=True)
    return lines


def from_entries(lines: Sequence[Json]) -> list[ModelMessage]:
    """Return the messages of the lines of `to_entries`."""
    messages: list[ModelMessage] = _adapter().validate_python(lines)
    return messages


def readable_end(lines: Sequence[Json]) -> list[ModelMessage]:
    """Return the messages of the last lines: all, or only the lines behind the last unreadable line.

    An unreadable line ends the history as a reset does, so no result of a tool is separated from the call.
    """
    with suppress(ValueError):
        return from_entries(lines)
    found: list[ModelMessage] = []
    with suppress(ValueError):
        for line in reversed(lines):
            found += from_entries([line])
    log.warning("a line of a transcript cannot be read: the history begins behind it")
    return found[::-1]


def lines_read(memory: ConversationMemory | None) -> int:
    """Return the number of stored lines read in a turn, independent of the length of the conversation."""
    return _LINES_READ if memory is None else 2 * memory.max_messages + _LINES_MORE


@dataclass(frozen=True, slots=True)
class _CachedLines:
    """The lines read in a turn, and the message of each. None in place of a message: decode the line again."""

    lines: tuple[str, ...]
    said: Sequence[ModelMessage | None]

    def beginning(self, lines: tuple[str, ...]) -> Sequence[ModelMessage | None]:
        """Return the messages of the first of `lines`, as far as identical with the last cached lines."""
        for first, line in enumerate(self.lines):
            if line == lines[0] and self.lines[first:] == lines[: len(self.lines) - first]:
                return self.said[first:]
        return ()


class Transcripts:
    """Reader of transcripts, with a cache of the messages read in the last turn of a conversation."""

    def __init__(self, memory: ConversationMemory | None = None, tokens: TokenCount | None = None) -> None:
        """`memory` has the limits of each conversation, and `tokens` counts the tokens."""
        self._memory, self._tokens = memory, tokens or TokenCount()
        self._known: OrderedDict[str, _CachedLines] = OrderedDict()
        """The conversations with the most recent turns, in the order of the turns."""

    def read(self, conversation: str, lines: Sequence[str]) -> list[ModelMessage]:
        """Return the messages since the last reset, within the limits of the memory.

        Without a memory the limit is HISTORY messages, notes not counted. The first message is a person's or a note, so
        no result of a tool is separated from the call. `lines` are from `to_entries`, as JSON text.
        """
        lines = tuple(lines)
        known = self._known.pop(conversation, None)
        said = [*known.beginning(lines)] if known and lines else []
        said += [None] * (len(lines) - len(said))
        anew = [number for number, message in enumerate(said) if message is None]
        values = dict(zip(anew, decode_all([lines[number] for number in anew]), strict=True))
        begin = 0
        for number, value in values.items():
            begin = number + 1 if value == RESET else begin
        counts = [number for number in anew if number >= begin]
        end = readable_end([values[number] for number in counts])
        if odd := len(counts) - len(end):
            begin, counts = counts[odd - 1] + 1, counts[odd:]
        messages = said[:]
        for number, message in zip(counts, end, strict=True):
            messages[number] = message
            said[number] = message if _lasts(message) else None
        said[:begin] = [None] * begin
        self._keep(conversation, _CachedLines(lines, said))
        recent = [message for message in messages[begin:] if message is not None]
        if self._memory is not None:
            return self._memory.trim(recent, self._tokens).kept
        begin = _window(recent)
        first = next((n for n in range(begin, len(recent)) if recent[n].role in ("user", "event")), len(recent))
        return recent[first:]

    def trim(self, history: Sequence[ModelMessage], added: Sequence[Json]) -> Trim | None:
        """Return the trim of this history and the added lines of a turn. None without a memory.

        The next turn reads the kept messages.
        """
        if self._memory is None or RESET in added:
            return None
        return self._memory.trim([*history, *from_entries(added)], self._tokens)

    def _keep(self, conversation: str, known: _CachedLines) -> None:
        if sum(map(len, known.lines)) <= _MOST_CHARACTERS:
            self._known[conversation] = known
        if len(self._known) > _MOST_CONVERSATIONS:
            self._known.popitem(last=False)


def _window(recent: Sequence[ModelMessage]) -> int:
    """Return the index at which the last `HISTORY` messages begin. Notes do not count."""
    counted = 0
    for number in range(len(recent) - 1, -1, -1):
        counted += recent[number].role != "event"
        if counted > HISTORY:
            return number + 1
    return 0


def _lasts(message: ModelMessage) -> bool:
    """Return True for an immutable message, safe to cache.

    The arguments of a call are a dictionary, open to changes by a caller.
    """
    return not (message.tool_calls or message.echo)


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(list[ModelMessage])
