"""The sealed lines of a transcript. Lines changed or added without the key are left out.

A seal covers the conversation and the text of the line, including the line's place. The store assigns the number of a
line only at the append, so the number cannot be sealed. The place is the time in microseconds, or the previous place
plus 1. Places grow from line to line, because only the holder of the conversation's lease writes there. Therefore a
copied line is left out, and so is a line moved behind a later line, even after a deletion of the lines between. Deleted
lines are not detected: the seals form no chain, because the oldest lines expire and the lines of a person can be
forgotten.

A reset is written without the lease. Its place is not compared: a reset ends the history at any position.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

from channels import Json
from gateway.memory import RESET
from gateway.pending.seal import Keyring
from gateway.store.codec import decode, encode, micros, moment
from gateway.store.types import LogEntry

_PLACE: Final = ',"place":'
_MAC: Final = ',"mac":"'
_MAC_AT: Final = -(len(_MAC) + 32 + len('"}'))
"""The index in the text of a line at which the seal begins, counted from the end."""
_RESET: Final = encode(RESET)
_MOST_CONVERSATIONS, _MOST_CHARACTERS = 256, 32_768
"""The number of remembered conversations, and the most characters of each, as for transcripts."""


@dataclass(frozen=True, slots=True)
class ReadLines:
    """The genuine lines of a transcript, without place and seal."""

    lines: list[str]
    left_out: int = 0
    """The number of lines changed, added or moved without the key."""
    is_old: bool = False
    """True if a key other than the first sealed a line."""


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """The genuine entries of a transcript, with values without place and seal."""

    entries: list[LogEntry]
    places: dict[int, int]
    """Number of an entry -> its place."""
    left_out: int = 0
    old: tuple[LogEntry, ...] = ()
    """The entries sealed with a key other than the first."""


def seal_line(keyring: Keyring, conversation: str, line: Json, place: int) -> Json:
    """Return the stored form of a line at this place. Raises TypeError for a line that is not an object."""
    if not isinstance(line, dict):
        raise TypeError("a line of a transcript is an object")
    placed: dict[str, Json] = {**line, "place": place}
    return {**placed, "mac": keyring.mac("line", conversation, encode(placed)[:-1])}


def seal_lines(
    keyring: Keyring, conversation: str, lines: Iterable[Json], *, after: int = 0, now: datetime
) -> list[Json]:
    """Return the stored forms of new lines, behind the place `after`."""
    first = max(after + 1, micros(now))
    return [seal_line(keyring, conversation, line, first + number) for number, line in enumerate(lines)]


def last_place(keyring: Keyring, conversation: str, lines: Sequence[str]) -> int:
    """Return the place of the last genuine line among these stored lines; 0 without any."""
    opened = (_opened(keyring, conversation, line) for line in reversed(lines))
    return next((found.place for found in opened if found is not None and found.text != _RESET), 0)


def read_entries(keyring: Keyring, conversation: str, entries: Sequence[LogEntry]) -> ReadEntries:
    """Return the genuine entries among these entries."""
    found = list(_in_order(_opened(keyring, conversation, encode(entry.value)) for entry in entries))
    pairs = [(entry, line) for entry, line in zip(entries, found, strict=True) if line is not None]
    bare = [replace(entry, value=decode(line.text)) for entry, line in pairs]
    places = {entry.seq: line.place for entry, line in pairs}
    old = tuple(entry for entry, (_, line) in zip(bare, pairs, strict=True) if line.key)
    return ReadEntries(bare, places, len(entries) - len(pairs), old)


def read_backwards(keyring: Keyring, conversation: str, lines: Sequence[str]) -> Iterable[tuple[Json, datetime]]:
    """Yield the genuine lines of these stored lines with their times, from the newest back to the last reset."""
    for stored in reversed(lines):
        found = _opened(keyring, conversation, stored)
        if found is not None and found.text == _RESET:
            return
        if found is not None:
            yield decode(found.text), moment(found.place)


def sealed_anew(keyring: Keyring, conversation: str, log: str, read: ReadEntries) -> list[tuple[str, int, Json]]:
    """Return log, number and new form of each line in this log with an old seal, sealed with the first key."""
    return [(log, each.seq, seal_line(keyring, conversation, each.value, read.places[each.seq])) for each in read.old]


class _GenuineLine(NamedTuple):
    """A genuine line: its text without place and seal, its place, and the number of the sealing key."""

    text: str
    place: int
    key: int


class _LinesBefore(NamedTuple):
    """The stored lines of the previous read, each with its genuine line; None for a line left out."""

    stored: tuple[str, ...]
    found: Sequence[_GenuineLine | None]

    def beginning(self, lines: tuple[str, ...]) -> Sequence[_GenuineLine | None]:
        """Return the known genuine lines for the beginning of `lines`, from the end of the previous read."""
        for first, line in enumerate(self.stored):
            if line == lines[0] and self.stored[first:] == lines[: len(self.stored) - first]:
                return self.found[first:]
        return ()


class LineReader:
    """A reader of sealed lines. The last lines of a conversation are remembered, and their seals not computed again."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        self._known: OrderedDict[str, _LinesBefore] = OrderedDict()
        """The remembered conversations, the least recently read first."""

    def read(self, conversation: str, lines: Sequence[str]) -> ReadLines:
        """Return the genuine lines among these stored lines, each a JSON text."""
        stored = tuple(lines)
        known = self._known.pop(conversation, None)
        found = [*known.beginning(stored)] if known and stored else []
        last = next((line.place for line in reversed(found) if line is not None and line.text != _RESET), 0)
        opened = (_opened(self._keyring, conversation, text) for text in stored[len(found) :])
        found += _in_order(opened, last)
        if sum(map(len, stored)) <= _MOST_CHARACTERS:
            self._known[conversation] = _LinesBefore(stored, found)
            if len(self._known) > _MOST_CONVERSATIONS:
                self._known.popitem(last=False)
        kept = [line.text for line in found if line is not None]
        is_old = self._keyring.rotates and any(line is not None and line.key for line in found)
        return ReadLines(kept, len(found) - len(kept), is_old)


def _in_order(lines: Iterable[_GenuineLine | None], last: int = 0) -> Iterable[_GenuineLine | None]:
    """Yield each line; None for a line without a valid seal, or with a place not above all places before and `last`."""
    for line in lines:
        if line is None or line.text == _RESET:
            yield line
        elif line.place > last:
            last = line.place
            yield line
        else:
            yield None


def _opened(keyring: Keyring, conversation: str, stored: str) -> _GenuineLine | None:
    sealed, mark, mac = stored[:_MAC_AT], stored[_MAC_AT : _MAC_AT + len(_MAC)], stored[_MAC_AT + len(_MAC) : -2]
    if mark != _MAC or (key := keyring.key_of("line", conversation, sealed, mac)) is None:
        return None
    text, _, place = sealed.rpartition(_PLACE)
    return _GenuineLine(text + "}", int(place), key)
