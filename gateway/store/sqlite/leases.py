"""Leases of lanes: taken, renewed, finished and given back, with the state kept between leases."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from gateway.store.codec import decode_loosely, micros
from gateway.store.errors import Fenced
from gateway.store.sqlite import lanes, records
from gateway.store.sqlite.clock import Moment
from gateway.store.sqlite.records import PARTITION
from gateway.store.sqlite.rows import EVENT_COLUMNS, numbered_parts, waiting_from_row
from gateway.store.types import MAILBOXES, Control, Key, Kind, Lease, Prefetch, QueuedPart, Waiting

_EVENTS = 100
_PARTS = 20


def lease(
    db: sqlite3.Connection,
    at: Moment,
    worker: str,
    kinds: Sequence[Kind],
    only: str | None,
    pool: str,
    lease_seconds: float,
    prefetch: Prefetch,
) -> Lease | None:
    """Lease the longest-ready lane, or return None."""
    row = lanes.first_ready(db, at, kinds, only, pool)
    if row is None:
        return None
    kind, lane, tries = row.kind, row.lane, row.tries
    lapsed = row.worker is not None
    if lapsed:
        tries += 1
        _count_try(db, kind, lane, row.upto)
        if kind == "turn":
            db.execute("DELETE FROM signal WHERE conversation = ?", (lane,))
    died = lapsed or bool(row.died)
    work = _work(db, kind, lane)
    prefetched = records.get(db, at, [Key(PARTITION, f"{name}/{lane}") for name in prefetch.records])
    lines = records.last_lines(db, f"{prefetch.log}/{lane}", prefetch.last) if prefetch.log else ()
    db.execute(
        "UPDATE lane SET worker = ?, fence = ?, until = ?, upto = ?, tries = ?, died = ? WHERE id = ?",
        (worker, at.now, at.real + lease_seconds, work.upto, tries, died, row.id),
    )
    return Lease(
        kind=kind,
        lane=lane,
        partition=PARTITION,
        worker=worker,
        fence=at.now,
        tries=tries,
        died=died,
        events=work.events,
        parts=work.parts,
        steps=work.steps,
        prefetched=prefetched,
        lines=lines,
        sure_until=at.real + lease_seconds,
    )


class _Work(NamedTuple):
    """The work of a leased lane."""

    upto: int
    """The last `seq` of the events or launches; of an outbox, the `seq` of the first part."""
    events: tuple[Waiting, ...] = ()
    parts: tuple[QueuedPart, ...] = ()
    steps: tuple[Any, ...] = ()


def _work(db: sqlite3.Connection, kind: Kind, lane: str) -> _Work:
    if kind in MAILBOXES:
        found = db.execute(
            f"SELECT {EVENT_COLUMNS} FROM event WHERE conversation = ? ORDER BY seq LIMIT {_EVENTS}",  # noqa: S608
            (lane,),
        )
        events = tuple(map(waiting_from_row, found))
        steps = db.execute("SELECT CAST(value AS BLOB) FROM step WHERE conversation = ? ORDER BY seq", (lane,))
        return _Work(events[-1].seq, events=events, steps=tuple(decode_loosely(stored) for (stored,) in steps))
    if kind == "out":
        numbered = numbered_parts(db, lane, _PARTS)
        return _Work(numbered[0][0], parts=tuple(part for _, part in numbered))
    (upto,) = db.execute("SELECT max(seq) FROM launch WHERE action_id = ?", (lane,)).fetchone()
    return _Work(upto)


def renew(db: sqlite3.Connection, at: Moment, held: Lease, lease_seconds: float) -> Control:
    """Renew the lease, and return the signals since the lease began. Raises Fenced."""
    hold(db, held)
    db.execute("UPDATE lane SET until = ? WHERE kind = ? AND lane = ?", (at.real + lease_seconds, held.kind, held.lane))
    if held.kind != "turn":
        return Control()
    found = db.execute("SELECT CAST(value AS BLOB) FROM signal WHERE conversation = ? ORDER BY seq", (held.lane,))
    return Control(tuple(decode_loosely(stored) for (stored,) in found))


def hold(db: sqlite3.Connection, held: Lease) -> int:
    """Return the last `seq` of the leased work (of an outbox: the first).

    Raises Fenced if the lease is lost. A lapsed lease is not lost until another worker takes the lane.
    """
    found: tuple[int] | None = db.execute(
        "SELECT upto FROM lane WHERE kind = ? AND lane = ? AND worker IS NOT NULL AND fence = ?",
        (held.kind, held.lane, held.fence),
    ).fetchone()
    if found is None:
        raise Fenced.by_lane(held.kind, held.lane, held.worker)
    return found[0]


def finish(
    db: sqlite3.Connection,
    at: Moment,
    held: Lease,
    upto: int,
    outcome: Literal["done", "failed"],
    due: datetime | None,
    collect_until: datetime | None,
) -> None:
    """End the lease, and keep the state of the lane for the next lease."""
    kind, lane = held.kind, held.lane
    if outcome == "done" and kind == "turn":
        db.execute("DELETE FROM step WHERE conversation = ?", (lane,))
    if outcome == "done" and kind == "action":
        db.execute("DELETE FROM launch WHERE action_id = ? AND seq <= ?", (lane, upto))
    if kind == "turn":
        db.execute("DELETE FROM signal WHERE conversation = ?", (lane,))
    not_before = 0 if due is None else micros(due)
    ready_at = max(at.now, not_before) if lanes.has_work(db, kind, lane) else None
    rests = ready_at is None and kind == "turn" and lanes.has_notes(db, lane)
    if rests:
        ready_at = max(at.now + lanes.FOLDED_AFTER, not_before)
    if outcome == "failed" or (kind == "out" and ready_at is not None):
        _count_try(db, kind, lane, upto)
    if ready_at is not None and not rests and collect_until is not None and lanes.may_collect(db, lane):
        ready_at = max(ready_at, micros(collect_until))
    if ready_at is not None:
        at.woken.add((kind, None))
    elif outcome == "done" and not_before <= at.now:
        db.execute("DELETE FROM lane WHERE kind = ? AND lane = ?", (kind, lane))
        return
    db.execute(
        "UPDATE lane SET worker = NULL, until = NULL, upto = NULL, died = 0, ready_at = ?, rests = ?, due = ?, "
        "tries = CASE WHEN ? THEN 0 ELSE tries + 1 END WHERE kind = ? AND lane = ?",
        (ready_at, rests, not_before, outcome == "done", kind, lane),
    )


def give_back(db: sqlite3.Connection, at: Moment, kind: Kind, lane: str, worker: str, fence: int | None = None) -> None:
    """Undo a lease not received by the caller. The next lease has the same work."""
    at.woken.add((kind, None))
    given = db.execute(
        "UPDATE lane SET worker = NULL, until = NULL, upto = NULL "
        "WHERE kind = ? AND lane = ? AND worker = ? AND fence = coalesce(?, fence)",
        (kind, lane, worker, fence),
    )
    if kind == "turn" and given.rowcount:
        db.execute("DELETE FROM signal WHERE conversation = ?", (lane,))


def checkpoint(db: sqlite3.Connection, conversation: str, steps: Sequence[str]) -> None:
    """Append steps to the checkpoint of a running turn."""
    if steps:
        rows = [(conversation, step) for step in steps]
        db.executemany("INSERT INTO step (conversation, value) VALUES (?, ?)", rows)


def signal(db: sqlite3.Connection, conversation: str, value: str) -> None:
    """Store a signal for the holder of the conversation's turn. Without a holder the signal is dropped."""
    db.execute(
        "INSERT INTO signal (conversation, value) SELECT ?1, ?2 "
        "FROM lane WHERE kind = 'turn' AND lane = ?1 AND worker IS NOT NULL",
        (conversation, value),
    )


def end_all(db: sqlite3.Connection) -> None:
    """Let all leases lapse: the holding process has ended."""
    db.execute("UPDATE lane SET until = 0 WHERE worker IS NOT NULL")
    db.execute("DELETE FROM signal WHERE seq > 0")  # without a condition SQLite writes even to an empty table


def is_held(db: sqlite3.Connection, at: Moment, conversation: str) -> bool:
    """Return True if an unlapsed lease holds the turn of a conversation."""
    found = db.execute(
        "SELECT 1 FROM lane WHERE kind = 'turn' AND lane = ? AND worker IS NOT NULL AND until > ?",
        (conversation, at.real),
    )
    return found.fetchone() is not None


def _count_try(db: sqlite3.Connection, kind: Kind, lane: str, upto: int | None) -> None:
    """Add a try to the unconsumed events or parts of an ended lease."""
    if kind in MAILBOXES:
        db.execute("UPDATE event SET tries = tries + 1 WHERE conversation = ? AND seq <= ?", (lane, upto))
    elif kind == "out":
        db.execute("UPDATE part SET tries = tries + 1 WHERE conversation = ? AND seq <= ?", (lane, upto))
