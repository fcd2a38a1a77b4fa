"""Sealed lines of a transcript: a line changed, inserted, copied or moved without the key is left out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from channels import Json
from gateway.memory import RESET
from gateway.pending.lines import LineReader, last_place, read_entries, seal_lines, sealed_anew
from gateway.pending.seal import Keyring
from gateway.store.codec import encode
from gateway.store.types import LogEntry

OLD, NEW = b"an old key of more than 16 bytes", b"a new key of more than 16 bytes"
KEYRING = Keyring([OLD])
NOW = datetime(2026, 11, 28, tzinfo=UTC)
SAID: list[Json] = [
    {"role": "user", "content": 'one "place":7, "mac":"'},
    {"role": "assistant", "content": "zwei \ud800 €", "tool_calls": [{"args": {"x": 1e22, "y": 0.1, "z": 2**70}}]},
    {"role": "event", "content": ""},
]


def stored(lines: Sequence[Json], keyring: Keyring = KEYRING, name: str = "Bot/sms:1:2", **more: Any) -> list[str]:
    return [encode(line) for line in seal_lines(keyring, name, lines, **{"now": NOW, **more})]


def read(lines: Sequence[str], keyring: Keyring = KEYRING, name: str = "Bot/sms:1:2") -> list[Any]:
    """Read the lines, with the same result from the text and from the value."""
    entries = [LogEntry(seq=seq, stamp=NOW, value=json.loads(line)) for seq, line in enumerate(lines)]
    reader, values = LineReader(keyring), read_entries(keyring, name, entries)
    found = reader.read(name, lines)
    assert reader.read(name, lines) == found, "also when it remembers them"
    assert [json.loads(line) for line in found.lines] == [entry.value for entry in values.entries]
    assert found.left_out == values.left_out == len(lines) - len(found.lines)
    return [entry.value for entry in values.entries]


def test_lines_are_read_as_they_were_written() -> None:
    assert read(stored(SAID)) == SAID
    assert read([]) == []


def test_changed_line_and_one_of_elsewhere_are_left_out() -> None:
    one, two, three = stored(SAID)
    assert read([one.replace("one", "1"), two, three]) == SAID[1:]
    assert read([one, two.replace('"place":1', '"place":2'), three]) == [SAID[0], SAID[2]]
    assert read([one, two, three], name="Bot/sms:1:3") == []
    assert read([one, two, three], Keyring([NEW])) == []


@pytest.mark.parametrize("line", ["{}", "7", "null", '"mac"', '{"role":"user","content":"x"}', '{"mac":""}', "[" * 9])
def test_line_without_a_seal_is_left_out(line: str) -> None:
    one, *others = stored(SAID)
    found = LineReader(KEYRING).read("Bot/sms:1:2", [one, line, *others])
    assert (len(found.lines), found.left_out) == (3, 1)


def test_copied_or_moved_line_is_left_out() -> None:
    one, two, three = stored(SAID)
    assert read([one, two, one, three]) == SAID
    assert read([two, three, one]) == SAID[1:]
    late = stored([SAID[0]], after=last_place(KEYRING, "Bot/sms:1:2", [one, two, three]))
    assert read([*late, two, three]) == [SAID[0]], "the lines between were deleted, and older ones put back"


def test_places_grow_though_the_clock_does_not() -> None:
    lines = stored(SAID)
    for ago in (timedelta(), timedelta(days=1)):
        after = last_place(KEYRING, "Bot/sms:1:2", lines)
        lines += stored(SAID, after=after, now=NOW - ago)
    assert read(lines) == SAID * 3


def test_a_place_is_taken_from_no_forged_line() -> None:
    (line,) = stored([SAID[0]])
    forged = line.replace('"place":', '"place":9')
    assert last_place(KEYRING, "Bot/sms:1:2", [line, forged]) == last_place(KEYRING, "Bot/sms:1:2", [line]) > 0
    assert last_place(KEYRING, "Bot/sms:1:2", [forged]) == 0


def test_a_reset_counts_wherever_it_stands() -> None:
    one, two, _ = stored(SAID)
    (reset,) = stored([RESET], now=NOW - timedelta(days=1))
    assert read([one, reset, two]) == [SAID[0], RESET, SAID[1]]
    assert read([one, encode(RESET), two]) == SAID[:2], "but not without the key"


def test_old_lines_are_sealed_anew_at_their_place() -> None:
    both, lines = Keyring([NEW, OLD]), stored(SAID)
    lines += stored([SAID[0]], Keyring([NEW]), after=last_place(KEYRING, "Bot/sms:1:2", lines))
    entries = [LogEntry(seq=seq, stamp=NOW, value=json.loads(line)) for seq, line in enumerate(lines, start=5)]
    rewritten = sealed_anew(both, "Bot/sms:1:2", "log", read_entries(both, "Bot/sms:1:2", entries))
    assert [(log, seq) for log, seq, _ in rewritten] == [("log", 5), ("log", 6), ("log", 7)]
    anew = [encode(line) for _, _, line in rewritten]
    assert read([*anew, lines[3]], Keyring([NEW])) == [*SAID, SAID[0]]
    reader = LineReader(both)
    assert reader.read("Bot/sms:1:2", lines).is_old and not reader.read("Bot/sms:1:2", anew).is_old


def test_a_remembered_line_counts_in_its_conversation_alone() -> None:
    reader, lines = LineReader(KEYRING), stored(SAID)
    assert len(reader.read("Bot/sms:1:2", lines).lines) == 3
    assert reader.read("Bot/sms:1:3", lines).left_out == 3
