"""Lanes: the choice of a ready lane, and the time until the next becomes ready.

A lane has a row while there is work, a holder, or a state to keep between leases. `ready_at` is NULL without work, else
the earliest moment of a lease. The leases themselves are in `gateway.store.sqlite.leases`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from channels import Json
from gateway.store.codec import encode, span
from gateway.store.sqlite.clock import Moment
from gateway.store.types import FOLDED_AFTER_SECONDS, Kind

FOLDED_AFTER = span(FOLDED_AFTER_SECONDS)
"""`FOLDED_AFTER_SECONDS` in microseconds."""

_MAIL = "SELECT 1 FROM event WHERE conversation = ? AND wakes AND NOT pointed LIMIT 1"
_WORK: dict[Kind, str] = {
    "turn": _MAIL,
    "memory": _MAIL,
    "action": "SELECT 1 FROM launch WHERE action_id = ? LIMIT 1",
    "out": "SELECT 1 FROM part WHERE conversation = ? LIMIT 1",
}

_NOTES = "SELECT 1 FROM event WHERE conversation = ? AND NOT (wakes OR pointed) LIMIT 1"
_URGENT = "SELECT 1 FROM event WHERE conversation = ? AND wakes AND NOT pointed AND NOT collects LIMIT 1"

_LOOK = "SELECT id, kind, lane, ready_at, tries, died, worker, upto FROM lane WHERE kind = ? "
_FREE = _LOOK + "AND pool = ? AND worker IS NULL AND ready_at <= ? ORDER BY ready_at, id LIMIT 1"
_LAPSED = _LOOK + "AND pool = ? AND worker IS NOT NULL AND until <= ? AND ready_at <= ? ORDER BY ready_at, id LIMIT 1"
_ANY = f"SELECT * FROM ({_FREE}) UNION ALL SELECT * FROM ({_LAPSED})"  # noqa: S608
_ONLY = _LOOK + "AND lane = ? AND ready_at <= ? AND (worker IS NULL OR until <= ?)"


def _soonest(moments: str) -> str:
    """Return a query for the minimum over all kinds. The query of each kind uses an index."""
    return f"SELECT min(moment) FROM ({' UNION ALL '.join(moments.format(kind) for kind in _WORK)})"  # noqa: S608


_DUE = _soonest("SELECT min(ready_at) AS moment FROM lane WHERE kind = '{}' AND worker IS NULL AND ready_at > :now")
_LAPSES = _soonest(
    "SELECT min(until) AS moment FROM lane "
    "WHERE kind = '{}' AND worker IS NOT NULL AND until > :real AND ready_at IS NOT NULL"
)
_NEXT = f"SELECT ({_DUE}), ({_LAPSES})"


class Row(NamedTuple):
    """The row of a ready lane."""

    id: int
    kind: Kind
    lane: str
    ready_at: int
    tries: int
    died: int
    worker: str | None
    upto: int | None


_AWAKE = (
    "ON CONFLICT (kind, lane) DO UPDATE SET ready_at = max(excluded.ready_at, due), pool = excluded.pool, rests = 0 "
    "WHERE ready_at IS NULL OR rests OR (NOT :collects AND worker IS NULL AND ready_at > max(excluded.ready_at, due))"
)
_WAKE = f"INSERT INTO lane (kind, lane, pool, ready_at) VALUES (:kind, :lane, :pool, :now) {_AWAKE}"  # noqa: S608
_WAKE_TURNS = (
    "INSERT INTO lane (kind, lane, ready_at) "  # noqa: S608
    f"SELECT 'turn', value, :now FROM json_each(:conversations) WHERE true {_AWAKE}"
)


def wake(db: sqlite3.Connection, at: Moment, kind: Kind, lane: str, pool: str = "") -> None:
    """Make a lane with new work ready."""
    at.woken.add((kind, pool))
    db.execute(_WAKE, {"kind": kind, "lane": lane, "pool": pool, "now": at.now, "collects": False})


def put_off_no_more(db: sqlite3.Connection, kind: Kind, lane: str) -> None:
    """Let a lane be ready before the due time. A held lane is not changed: the holder decides on the due time."""
    db.execute("UPDATE lane SET due = 0 WHERE kind = ? AND lane = ? AND worker IS NULL AND due > 0", (kind, lane))


def wake_turns(db: sqlite3.Connection, at: Moment, conversations: Iterable[str], *, collects: bool) -> None:
    """Make the turns of conversations ready. With `collects`, a turn waiting for more events continues to wait."""
    names = dict.fromkeys(conversations)
    if not names:
        return
    at.woken.add(("turn", ""))
    how = {"now": at.now, "collects": collects}
    odd = [name for name in names if "\0" in name]  # json_each reads a text only up to this character
    db.executemany(_WAKE, [{**how, "kind": "turn", "pool": "", "lane": name} for name in odd])
    plain: list[Json] = [name for name in names if name not in odd] if odd else [*names]
    db.execute(_WAKE_TURNS, {**how, "conversations": encode(plain)})


def rest(db: sqlite3.Connection, at: Moment, conversation: str) -> None:
    """Make the turn of a conversation with a new note ready after `FOLDED_AFTER`, unless ready before."""
    at.woken.add(("turn", ""))
    db.execute(
        "INSERT INTO lane (kind, lane, ready_at, rests) VALUES ('turn', ?, ?, 1) ON CONFLICT (kind, lane) "
        "DO UPDATE SET ready_at = max(excluded.ready_at, due), rests = 1 WHERE ready_at IS NULL",
        (conversation, at.now + FOLDED_AFTER),
    )


def clear_if_idle(db: sqlite3.Connection, at: Moment, kind: Kind, lane: str) -> None:
    """Make a lane without work unready. A conversation with notes alone becomes ready after `FOLDED_AFTER`.

    Called after a removal of work. `finish` computes the readiness separately.
    """
    if has_work(db, kind, lane):
        return
    if kind == "turn" and has_notes(db, lane):
        db.execute(
            "UPDATE lane SET ready_at = max(?, due), rests = 1 WHERE kind = ? AND lane = ? AND NOT rests",
            (at.now + FOLDED_AFTER, kind, lane),
        )
    else:
        db.execute("UPDATE lane SET ready_at = NULL, rests = 0 WHERE kind = ? AND lane = ?", (kind, lane))


def first_ready(db: sqlite3.Connection, at: Moment, kinds: Sequence[Kind], only: str | None, pool: str) -> Row | None:
    """Return the longest-ready lane for `Store.lease`, or None."""
    rows = [row for kind in kinds for row in _ready(db, at, kind, only, pool if kind == "out" else "")]
    return min(rows, key=lambda row: (row.ready_at, row.id), default=None)


def _ready(db: sqlite3.Connection, at: Moment, kind: Kind, only: str | None, pool: str) -> list[Row]:
    if only is not None:
        return [Row(*row) for row in db.execute(_ONLY, (kind, only, at.now, at.real))]
    found = db.execute(_ANY, (kind, pool, at.now, kind, pool, at.real, at.now))
    return [Row(*row) for row in found]


def seconds_to_next(db: sqlite3.Connection, at: Moment, since: Moment) -> float | None:
    """Return the seconds until a lane becomes ready by time alone, at the due time or the lapse of the lease.

    None if no lane will; below 0 if a lane has become ready since `since`.
    """
    due, until = db.execute(_NEXT, {"now": since.now, "real": since.real}).fetchone()
    waits = [] if due is None else [(due - at.now) / 1_000_000]
    if until is not None:
        waits.append(until - at.real)
    return min(waits, default=None)


def has_work(db: sqlite3.Connection, kind: Kind, lane: str) -> bool:
    """Return True if the lane has work; notes alone are none."""
    return db.execute(_WORK[kind], (lane,)).fetchone() is not None


def has_notes(db: sqlite3.Connection, conversation: str) -> bool:
    """Return True if a note waits in the conversation: an event without a pointer, accepted without `wakes`."""
    return db.execute(_NOTES, (conversation,)).fetchone() is not None


def may_collect(db: sqlite3.Connection, conversation: str) -> bool:
    """Return True if all waking events of the conversation may wait for more events."""
    return db.execute(_URGENT, (conversation,)).fetchone() is None
