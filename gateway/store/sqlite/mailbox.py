"""Mailboxes: events on their way in, from the platform, from timers, and back from the dead letters."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import replace

from gateway.store.base import Dead, Incoming, Overloaded, QueuedPart, Waiting
from gateway.store.codec import (
    dead_from_text,
    dead_to_text,
    encode,
    incoming_from_text,
    micros,
    moment,
    span,
)
from gateway.store.sqlite import lanes
from gateway.store.sqlite.clock import Moment

__all__ = ["accept", "bury", "dead", "drop", "pointed", "queue", "replay", "tick"]

_TIMERS = 500
"""At most so many fall due in one transaction."""


def accept(
    db: sqlite3.Connection, at: Moment, events: Sequence[Incoming], max_waiting: int | None = None
) -> list[bool]:
    """Put events into their mailboxes; False for a twin. Raises Overloaded."""
    return [_accept(db, at, event, max_waiting) for event in events]


def _accept(db: sqlite3.Connection, at: Moment, event: Incoming, max_waiting: int | None) -> bool:
    if not _remember(db, at, event):
        return False
    if event.refusable and max_waiting is not None:
        (waiting,) = db.execute("SELECT waiting FROM mail").fetchone()
        if waiting >= max_waiting:
            raise Overloaded(f"{waiting} events wait, which is all that may: try again when some are dealt with")
    _deliver(db, at, event)
    return True


def _remember(db: sqlite3.Connection, at: Moment, event: Incoming) -> bool:
    """Whether none of its ids was known. All are, from now on: a twin may bring an id of its own."""
    until = at.now + span(event.keep_seconds)
    fresh = True
    for event_id in dict.fromkeys(event.event_ids):
        written = db.execute(
            "INSERT INTO seen VALUES (?, ?) "
            "ON CONFLICT (event_id) DO UPDATE SET until = excluded.until WHERE until <= ?",
            (event_id, until, at.now),
        )
        fresh &= written.rowcount == 1
    return fresh


def _deliver(db: sqlite3.Connection, at: Moment, event: Incoming) -> None:
    stamp = at.now if event.stamp is None else micros(event.stamp)
    db.execute(
        "INSERT INTO event (conversation, stamp, body, pointed, wakes) VALUES (?, ?, ?, ?, ?)",
        (event.conversation, stamp, encode(event.body), event.decides, event.wakes),
    )
    if event.wakes and not event.decides:
        lanes.wake(db, at, "turn", event.conversation)


def pointed(
    db: sqlite3.Connection, at: Moment, conversation: str | None, older_than_seconds: float, limit: int
) -> list[Waiting]:
    """The decision lane, from its head."""
    found = db.execute(
        f"SELECT {lanes.EVENT_COLUMNS} FROM event "  # noqa: S608
        "WHERE pointed = 1 AND (?1 IS NULL OR conversation = ?1) AND stamp <= ?2 ORDER BY seq LIMIT ?3",
        (conversation, at.now - span(older_than_seconds), limit),
    )
    return [lanes.waiting_from_row(row) for row in found]


def queue(db: sqlite3.Connection, at: Moment, part: QueuedPart) -> None:
    """Put a part at the end of its outbox; one that waits there already is passed over."""
    db.execute(
        "INSERT INTO part (part_id, conversation, stamp, body) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (part.part_id, part.conversation, at.now, encode(part.body)),
    )
    lanes.wake(db, at, "out", part.conversation)


def tick(db: sqlite3.Connection, at: Moment) -> float | None:
    """Accept what timers have fallen due; seconds until the next one."""
    found = db.execute(
        "SELECT timer_id, due, incoming FROM timer WHERE due <= ? ORDER BY due, timer_id LIMIT ?", (at.now, _TIMERS)
    ).fetchall()
    for timer_id, due, text in found:
        db.execute("DELETE FROM timer WHERE timer_id = ?", (timer_id,))
        accept(db, at, [replace(incoming_from_text(text), stamp=moment(due))])
    (soonest,) = db.execute("SELECT min(due) FROM timer").fetchone()
    return None if soonest is None else max(0.0, (soonest - at.now) / 1_000_000)


def bury(db: sqlite3.Connection, at: Moment, letter: Dead) -> None:
    """Put something aside; a dead letter of the same id is replaced."""
    db.execute(
        "INSERT OR REPLACE INTO dead (dead_id, conversation, reason, stamp, held) VALUES (?, ?, ?, ?, ?)",
        (letter.dead_id, letter.conversation, letter.reason, at.now, dead_to_text(letter)),
    )


def dead(db: sqlite3.Connection, at: Moment) -> list[Dead]:
    """All dead letters, oldest first."""
    letters = []
    for dead_id, conversation, reason, stamp, held in db.execute(
        "SELECT dead_id, conversation, reason, stamp, held FROM dead ORDER BY seq"
    ):
        incoming, part, payload = dead_from_text(held)
        letters.append(
            Dead(
                dead_id=dead_id,
                conversation=conversation,
                reason=reason,
                stamp=moment(stamp),
                incoming=incoming,
                part=part,
                payload=payload,
            )
        )
    return letters


def replay(db: sqlite3.Connection, at: Moment, dead_id: str) -> bool:
    """Put a dead letter back; its event is no twin, though its ids are known."""
    found = db.execute("DELETE FROM dead WHERE dead_id = ? RETURNING held", (dead_id,)).fetchall()
    for (held,) in found:
        incoming, part, _ = dead_from_text(held)
        if incoming is not None:
            _remember(db, at, incoming)
            _deliver(db, at, incoming)
        if part is not None:
            queue(db, at, part)
    return bool(found)


def drop(db: sqlite3.Connection, at: Moment, dead_id: str) -> bool:
    """Throw a dead letter away."""
    return db.execute("DELETE FROM dead WHERE dead_id = ?", (dead_id,)).rowcount == 1
