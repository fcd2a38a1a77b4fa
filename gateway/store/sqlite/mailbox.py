"""Mailboxes with events from platforms, timers and dead letters, and outboxes with parts."""

from __future__ import annotations

import logging
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, TypeVar

from gateway.store.codec import (
    dead_from_text,
    dead_to_text,
    encode,
    incoming_from_text,
    micros,
    moment,
    open_letter,
    span,
)
from gateway.store.errors import MailboxFull, Overloaded
from gateway.store.sqlite import lanes
from gateway.store.sqlite.clock import Moment
from gateway.store.sqlite.rows import EVENT_COLUMNS, waiting_from_row
from gateway.store.transaction import Timer
from gateway.store.types import Dead, Incoming, Mailbox, MailboxKind, QueuedPart, Waiting, conversation_limit

T = TypeVar("T")

log = logging.getLogger("askfirst.store")

_TIMERS = 500
"""The most timers fired in a transaction."""
_MOST_ROWS = 64
"""The most rows of a statement. Every SQLite accepts 999 values (https://sqlite.org/limits.html); a row has eight."""


class Arrival(NamedTuple):
    """An event converted for the database, with values certain to be accepted there."""

    event_ids: tuple[str, ...]
    refusable: bool
    keep: int
    decides: bool
    wakes: bool
    collects: bool
    conversation: str
    stamp: int | None
    body: str
    kind: MailboxKind = "turn"
    about: str | None = None

    @property
    def is_note(self) -> bool:
        return not (self.wakes or self.decides)


def arrival(event: Incoming) -> Arrival:
    """Convert an event. Raises ValueError for a body without JSON form, and for a name with invalid text."""
    for name in (event.conversation, *event.event_ids, event.about or ""):
        name.encode()
    return Arrival(
        event_ids=event.event_ids,
        refusable=event.refusable,
        keep=span(event.keep_seconds),
        decides=event.decides,
        wakes=event.wakes,
        collects=event.collects,
        conversation=event.conversation,
        stamp=None if event.stamp is None else micros(event.stamp),
        body=encode(event.body),
        kind=event.kind,
        about=event.about,
    )


def accept(
    db: sqlite3.Connection, at: Moment, batches: Sequence[Sequence[Arrival]], max_waiting: int | None = None
) -> list[list[bool] | Overloaded]:
    """Store events in the mailboxes. Return for each batch a flag per event (True: new), or the error of the refusal.

    Any number of events takes a few statements: during each, another thread may take the GIL and keep it.
    """
    seen = _known(db, at, [event_id for batch in batches for event in batch for event_id in event.event_ids])
    (waiting,) = db.execute("SELECT waiting FROM mail").fetchone()
    most = conversation_limit(max_waiting or 0)
    in_each = None if max_waiting is None else _in_each(db, batches, waiting, most)
    verdicts: list[list[bool] | Overloaded] = []
    taken: list[Arrival] = []
    until: dict[str, int] = {}
    for batch in batches:
        fresh: list[bool] = []
        new: list[Arrival] = []
        ids: dict[str, int] = {}
        counted = 0
        before = -1
        """Count of the events before the last refusable event."""
        for event in batch:
            fresh.append(seen.isdisjoint(event.event_ids) and ids.keys().isdisjoint(event.event_ids))
            if fresh[-1]:
                before = counted if event.refusable else before
                counted += not event.is_note
                new.append(event)
            for event_id in event.event_ids:
                ids[event_id] = at.now + event.keep
        if max_waiting is not None and before >= 0 and waiting + before >= max_waiting:
            verdicts.append(Overloaded.by_count(waiting))
            continue
        if in_each is not None:
            if (full := _full_mailbox(new, in_each, most)) is not None:
                verdicts.append(MailboxFull(full, most))
                continue
            in_each.update(event.conversation for event in new if not event.is_note)
        verdicts.append(fresh)
        taken += new
        waiting += counted
        until |= {event_id: when for event_id, when in ids.items() if event_id not in seen}
        seen.update(ids)
    _remember(db, until)
    _deliver(db, at, taken)
    return verdicts


def _portions(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield portions for few statements. The sizes are powers of two, so few prepared statements are cached."""
    begin = 0
    while left := len(items) - begin:
        rows = min(_MOST_ROWS, 1 << (left.bit_length() - 1))
        yield items[begin : begin + rows]
        begin += rows


def _in_each(
    db: sqlite3.Connection, batches: Sequence[Sequence[Arrival]], waiting: int, most: int
) -> Counter[str] | None:
    """Return the count of waiting events, up to `most`, of each conversation with a refusable event.

    None if too few events wait in all for any conversation to reach `most`.
    """
    if waiting + sum(map(len, batches)) <= most:
        return None
    found: Counter[str] = Counter()
    for some in _portions(list({event.conversation for batch in batches for event in batch if event.refusable})):
        marks = ", ".join(["(?)"] * len(some))
        rows = db.execute(
            f"WITH some (name) AS (VALUES {marks}) "  # noqa: S608
            "SELECT name, (SELECT count(*) FROM (SELECT 1 FROM event WHERE conversation = name AND (wakes OR pointed) "
            "LIMIT ?)) FROM some",
            (*some, most),
        )
        found.update(dict(rows.fetchall()))
    return found


def _full_mailbox(new: Sequence[Arrival], in_each: Counter[str], most: int) -> str | None:
    """Return the first full conversation with a refusable event among these, or None."""
    before: Counter[str] = Counter()
    for event in new:
        if event.refusable and in_each[event.conversation] + before[event.conversation] >= most:
            return event.conversation
        before[event.conversation] += not event.is_note
    return None


def _known(db: sqlite3.Connection, at: Moment, event_ids: Sequence[str]) -> set[str]:
    known: set[str] = set()
    for some in _portions(event_ids):
        marks = ", ".join("?" * len(some))
        found = db.execute(
            f"SELECT event_id FROM seen WHERE event_id IN ({marks}) AND until > ?",  # noqa: S608
            (*some, at.now),
        )
        known.update(event_id for (event_id,) in found)
    return known


def _remember(db: sqlite3.Connection, until: Mapping[str, int]) -> None:
    """Remember ids until these moments. A twin's ids are remembered too, because some may be new."""
    for some in _portions(list(until.items())):
        marks = ", ".join(["(?, ?)"] * len(some))
        db.execute(f"INSERT OR REPLACE INTO seen VALUES {marks}", [value for row in some for value in row])  # noqa: S608


def _deliver(db: sqlite3.Connection, at: Moment, events: Sequence[Arrival]) -> None:
    notes = [event for event in events if event.is_note]
    events = _last_about_each(db, events, notes) if notes else events
    for some in _portions(events):
        marks = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?)"] * len(some))
        rows = [
            value
            for event in some
            for value in (
                event.conversation,
                event.kind,
                at.now if event.stamp is None else event.stamp,
                event.body,
                event.decides,
                event.wakes,
                event.collects,
                event.about,
            )
        ]
        db.execute(
            f"INSERT INTO event (conversation, kind, stamp, body, pointed, wakes, collects, about) VALUES {marks}",  # noqa: S608
            rows,
        )
    awake = [event for event in events if event.wakes and not event.decides]
    for collects in (True, False):
        names = (event.conversation for event in awake if event.kind == "turn" and event.collects is collects)
        lanes.wake_turns(db, at, names, collects=collects)
    for conversation in dict.fromkeys(event.conversation for event in awake if event.kind == "memory"):
        lanes.wake(db, at, "memory", conversation)
    for conversation in dict.fromkeys(event.conversation for event in notes):
        lanes.rest(db, at, conversation)


def _last_about_each(db: sqlite3.Connection, events: Sequence[Arrival], notes: Sequence[Arrival]) -> Sequence[Arrival]:
    """Return the events without replaced notes, and remove the waiting notes on the same subject.

    A leased note stays, because the holder consumes the note.
    """
    last = {(event.conversation, event.about): event for event in notes if event.about is not None}
    for conversation, about in last:
        db.execute(
            "DELETE FROM event WHERE conversation = ?1 AND about = ?2 AND seq > coalesce("
            "(SELECT upto FROM lane WHERE kind = 'turn' AND lane = ?1 AND worker IS NOT NULL), 0)",
            (conversation, about),
        )
    return [e for e in events if not e.is_note or e.about is None or last[e.conversation, e.about] is e]


def pending_decisions(
    db: sqlite3.Connection, at: Moment, conversation: str | None, older_than_seconds: float, limit: int
) -> list[Waiting]:
    """Return the head of the decision lane; see `Store.pending_decisions`."""
    found = db.execute(
        f"SELECT {EVENT_COLUMNS} FROM event "  # noqa: S608
        "WHERE pointed = 1 AND (?1 IS NULL OR conversation = ?1) AND stamp <= ?2 ORDER BY seq LIMIT ?3",
        (conversation, at.now - span(older_than_seconds), limit),
    )
    return [waiting_from_row(row) for row in found]


def mailboxes(db: sqlite3.Connection, at: Moment, most: int) -> list[Mailbox]:
    """Return the conversations with the most events, the fullest first."""
    found = db.execute(
        "SELECT conversation, count(*) AS many, min(stamp) FROM event WHERE wakes OR pointed "
        "GROUP BY conversation ORDER BY many DESC, conversation LIMIT ?",
        (most,),
    )
    return [Mailbox(conversation, many, moment(oldest)) for conversation, many, oldest in found]


def mailbox(db: sqlite3.Connection, at: Moment, conversation: str, limit: int) -> list[Waiting]:
    """Return the events and notes of one conversation, in order."""
    found = db.execute(
        f"SELECT {EVENT_COLUMNS} FROM event WHERE conversation = ? ORDER BY seq LIMIT ?",  # noqa: S608
        (conversation, limit),
    )
    return [waiting_from_row(row) for row in found]


def queue(db: sqlite3.Connection, at: Moment, part: QueuedPart) -> None:
    """Append a part to the outbox. An already queued part is skipped."""
    db.execute(
        "INSERT INTO part (part_id, conversation, stamp, body, pool) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (part.part_id, part.conversation, at.now, encode(part.body), part.pool),
    )
    lanes.wake(db, at, "out", part.conversation, part.pool)


def timers(db: sqlite3.Connection, at: Moment, conversation: str | None) -> list[Timer]:
    """Return the timers with an event of a conversation, or all timers. Unreadable timers are left out."""
    found: list[Timer] = []
    for timer_id, due, text in db.execute("SELECT timer_id, due, CAST(incoming AS BLOB) FROM timer").fetchall():
        with suppress(ValueError):
            incoming = incoming_from_text(text)
            if conversation in (None, incoming.conversation):
                found.append(Timer(timer_id=timer_id, due=moment(due), incoming=incoming))
    return found


def run_timers(db: sqlite3.Connection, at: Moment) -> float | None:
    """Accept the events of due timers. Return the seconds to the next timer, or None."""
    found = db.execute(
        "SELECT timer_id, due, CAST(incoming AS BLOB) FROM timer WHERE due <= ? ORDER BY due, timer_id LIMIT ?",
        (at.now, _TIMERS),
    ).fetchall()
    for timer_id, due, text in found:
        db.execute("DELETE FROM timer WHERE timer_id = ?", (timer_id,))
        try:
            event = arrival(replace(incoming_from_text(text), stamp=moment(due)))
        except ValueError:
            log.error("timer %s cannot be read, and was removed", timer_id)
        else:
            accept(db, at, [[event]])
    if len(found) == _TIMERS:
        return 0.0
    (soonest,) = db.execute("SELECT min(due) FROM timer WHERE due > ?", (at.now,)).fetchone()
    return None if soonest is None else (soonest - at.now) / 1_000_000


def keep_dead(db: sqlite3.Connection, at: Moment, letter: Dead) -> None:
    """Store a dead letter. A letter of the same id is replaced."""
    db.execute(
        "INSERT OR REPLACE INTO dead (dead_id, conversation, reason, stamp, held) VALUES (?, ?, ?, ?, ?)",
        (letter.dead_id, letter.conversation, letter.reason, at.now, dead_to_text(letter)),
    )


def dead_letters(db: sqlite3.Connection, at: Moment, after: int, limit: int) -> list[Dead]:
    """Return dead letters after a `seq`, the oldest first."""
    found = db.execute(
        "SELECT seq, dead_id, conversation, reason, stamp, CAST(held AS BLOB) FROM dead "
        "WHERE seq > ? ORDER BY seq LIMIT ?",
        (after, limit),
    )
    return [open_letter(*row) for row in found]


def drop_some(db: sqlite3.Connection, at: Moment, reason: str | None, limit: int) -> int:
    """Delete some of the dead letters with `reason` within the reason. Return the number."""
    gone = db.execute(
        "DELETE FROM dead WHERE seq IN (SELECT seq FROM dead WHERE ?1 IS NULL OR instr(reason, ?1) LIMIT ?2)",
        (reason, limit),
    )
    return gone.rowcount


def replay(db: sqlite3.Connection, at: Moment, dead_id: str) -> bool:
    """Put a dead letter back. The event is stored although the ids are remembered."""
    found = db.execute("DELETE FROM dead WHERE dead_id = ? RETURNING CAST(held AS BLOB)", (dead_id,)).fetchall()
    for (held,) in found:
        incoming, part = dead_from_text(held)
        if incoming is not None:
            event = arrival(incoming)
            _remember(db, dict.fromkeys(event.event_ids, at.now + event.keep))
            _deliver(db, at, [event])
        if part is not None:
            queue(db, at, part)
    return bool(found)


def drop(db: sqlite3.Connection, at: Moment, dead_id: str) -> bool:
    """Delete a dead letter."""
    return db.execute("DELETE FROM dead WHERE dead_id = ?", (dead_id,)).rowcount == 1
