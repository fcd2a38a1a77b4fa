"""Lanes: what can be leased, by whom it is held, and what is remembered from one lease to the next.

A row exists while a lane has work, is held, or has something to remember. `ready_at` says it all for those who look
for work: NULL when there is none, else the moment from which the lane may be leased.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from channels import Json
from gateway.store.codec import decode, encode, micros, moment, span
from gateway.store.errors import Fenced
from gateway.store.sqlite import records
from gateway.store.sqlite.clock import Moment
from gateway.store.sqlite.records import PARTITION
from gateway.store.types import FOLDED_AFTER_SECONDS, Control, Key, Kind, Lease, Prefetch, QueuedPart, Snapshot, Waiting

__all__ = [
    "EVENT_COLUMNS",
    "checkpoint",
    "clear_if_idle",
    "end_all",
    "finish",
    "give_back",
    "has_work",
    "hold",
    "is_held",
    "lease",
    "leave",
    "outbox",
    "put_off_no_more",
    "renew",
    "rest",
    "seconds_to_next",
    "signal",
    "waiting_from_row",
    "wake",
    "wake_turns",
]

_EVENTS = 100
_PARTS = 20

_FOLDED_AFTER = span(FOLDED_AFTER_SECONDS)

_WORK: dict[Kind, str] = {
    "turn": "SELECT 1 FROM event WHERE conversation = ? AND wakes AND NOT pointed LIMIT 1",
    "action": "SELECT 1 FROM launch WHERE action_id = ? LIMIT 1",
    "out": "SELECT 1 FROM part WHERE conversation = ? LIMIT 1",
}

_NOTES = "SELECT 1 FROM event WHERE conversation = ? AND NOT (wakes OR pointed) LIMIT 1"
_URGENT = "SELECT 1 FROM event WHERE conversation = ? AND wakes AND NOT pointed AND NOT collects LIMIT 1"

_LOOK = "SELECT id, kind, lane, ready_at, tries, died, worker, upto FROM lane WHERE kind = ? "
_FREE = _LOOK + "AND needs <= ? AND pool = ? AND worker IS NULL AND ready_at <= ? ORDER BY ready_at, id LIMIT 1"
_LAPSED = (
    _LOOK + "AND needs <= ? AND pool = ? AND worker IS NOT NULL AND until <= ? AND ready_at <= ? "
    "ORDER BY ready_at, id LIMIT 1"
)
_ANY = f"SELECT * FROM ({_FREE}) UNION ALL SELECT * FROM ({_LAPSED})"  # noqa: S608
_ONLY = _LOOK + "AND needs <= ? AND lane = ? AND ready_at <= ? AND (worker IS NULL OR until <= ?)"


def _soonest(moments: str) -> str:
    """Of every kind: each finds its first by an index."""
    return f"SELECT min(moment) FROM ({' UNION ALL '.join(moments.format(kind) for kind in _WORK)})"  # noqa: S608


_DUE = _soonest("SELECT min(ready_at) AS moment FROM lane WHERE kind = '{}' AND worker IS NULL AND ready_at > :now")
_LAPSES = _soonest(
    "SELECT min(until) AS moment FROM lane "
    "WHERE kind = '{}' AND worker IS NOT NULL AND until > :real AND ready_at IS NOT NULL"
)
_NEXT = f"SELECT ({_DUE}), ({_LAPSES})"

EVENT_COLUMNS = "seq, conversation, stamp, body, pointed, collects, tries, needs"


class _Row(NamedTuple):
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
    """The lane has work now."""
    at.woken.add((kind, pool))
    db.execute(_WAKE, {"kind": kind, "lane": lane, "pool": pool, "now": at.now, "collects": False})


def put_off_no_more(db: sqlite3.Connection, kind: Kind, lane: str) -> None:
    """Let the lane be ready before it was due; one that is held is for its holder to put off."""
    db.execute("UPDATE lane SET due = 0 WHERE kind = ? AND lane = ? AND worker IS NULL AND due > 0", (kind, lane))


def wake_turns(db: sqlite3.Connection, at: Moment, conversations: Iterable[str], *, collects: bool) -> None:
    """Events wait in these conversations now, and may wait for more where the conversation does (`collects`)."""
    names = dict.fromkeys(conversations)
    if not names:
        return
    at.woken.add(("turn", ""))
    how = {"now": at.now, "collects": collects}
    odd = [name for name in names if "\0" in name]  # json_each reads a text no further than there
    db.executemany(_WAKE, [{**how, "kind": "turn", "pool": "", "lane": name} for name in odd])
    plain: list[Json] = [name for name in names if name not in odd] if odd else [*names]
    db.execute(_WAKE_TURNS, {**how, "conversations": encode(plain)})


def rest(db: sqlite3.Connection, at: Moment, conversation: str) -> None:
    """A note waits in the conversation now: it is ready for a turn once that is old, if nothing wakes it before."""
    at.woken.add(("turn", ""))
    db.execute(
        "INSERT INTO lane (kind, lane, ready_at, rests) VALUES ('turn', ?, ?, 1) ON CONFLICT (kind, lane) "
        "DO UPDATE SET ready_at = max(excluded.ready_at, due), rests = 1 WHERE ready_at IS NULL",
        (conversation, at.now + _FOLDED_AFTER),
    )


def clear_if_idle(db: sqlite3.Connection, at: Moment, kind: Kind, lane: str) -> None:
    """Work of the lane is gone; perhaps it was the last. `finish` sees that for itself."""
    if has_work(db, kind, lane):
        return
    if kind == "turn" and has_notes(db, lane):
        db.execute(
            "UPDATE lane SET ready_at = max(?, due), rests = 1 WHERE kind = ? AND lane = ? AND NOT rests",
            (at.now + _FOLDED_AFTER, kind, lane),
        )
    else:
        db.execute("UPDATE lane SET ready_at = NULL, rests = 0 WHERE kind = ? AND lane = ?", (kind, lane))


def lease(
    db: sqlite3.Connection,
    at: Moment,
    worker: str,
    kinds: Sequence[Kind],
    only: str | None,
    pool: str,
    lease_seconds: float,
    knows: int,
    prefetch: Prefetch,
) -> Lease | None:
    """Take the ready lane that has waited longest."""
    rows = [row for kind in kinds for row in _ready(db, at, kind, only, pool if kind == "out" else "", knows)]
    if not rows:
        return None
    row = min(rows, key=lambda row: (row.ready_at, row.id))
    kind, lane, tries = row.kind, row.lane, row.tries
    lapsed = row.worker is not None
    if lapsed:
        tries += 1
        _count_try(db, kind, lane, row.upto)
        if kind == "turn":
            db.execute("DELETE FROM signal WHERE conversation = ?", (lane,))
    events: tuple[Waiting, ...] = ()
    parts: tuple[QueuedPart, ...] = ()
    steps: tuple[Any, ...] = ()
    if kind == "turn":
        found = db.execute(
            f"SELECT {EVENT_COLUMNS} FROM event WHERE conversation = ? ORDER BY seq LIMIT {_EVENTS}",  # noqa: S608
            (lane,),
        )
        events = tuple(map(waiting_from_row, found))
        steps = tuple(
            decode(text)
            for (text,) in db.execute("SELECT value FROM step WHERE conversation = ? ORDER BY seq", (lane,))
        )
        upto = events[-1].seq
    elif kind == "out":
        numbered = _outbox(db, lane, _PARTS)
        parts, upto = tuple(part for _, part in numbered), numbered[0][0]
    else:
        (upto,) = db.execute("SELECT max(seq) FROM launch WHERE action_id = ?", (lane,)).fetchone()
    died = lapsed or bool(row.died)
    try:
        prefetched = records.get(db, at, [Key(PARTITION, f"{name}/{lane}") for name in prefetch.records])
    except ValueError:
        prefetched = Snapshot({}, moment(at.now))
    lines = records.last_lines(db, f"{prefetch.log}/{lane}", prefetch.last) if prefetch.log else ()
    db.execute(
        "UPDATE lane SET worker = ?, fence = ?, until = ?, upto = ?, tries = ?, died = ?, needs = 1 WHERE id = ?",
        (worker, at.now, at.real + lease_seconds, upto, tries, died, row.id),
    )
    return Lease(
        kind=kind,
        lane=lane,
        partition=PARTITION,
        worker=worker,
        fence=at.now,
        tries=tries,
        died=died,
        events=events,
        parts=parts,
        steps=steps,
        prefetched=prefetched,
        lines=lines,
        sure_until=at.real + lease_seconds,
    )


def renew(db: sqlite3.Connection, at: Moment, held: Lease, lease_seconds: float) -> Control:
    """Keep the lease, and hear the signals since it began."""
    hold(db, held)
    db.execute("UPDATE lane SET until = ? WHERE kind = ? AND lane = ?", (at.real + lease_seconds, held.kind, held.lane))
    if held.kind != "turn":
        return Control()
    found = db.execute("SELECT value FROM signal WHERE conversation = ? ORDER BY seq", (held.lane,))
    return Control(tuple(decode(text) for (text,) in found))


def hold(db: sqlite3.Connection, held: Lease) -> int:
    """The number up to which it was handed out (of an outbox: its first).

    Raises Fenced unless the lane is still this lease's; a lapsed one is, until somebody takes the lane.
    """
    found: tuple[int] | None = db.execute(
        "SELECT upto FROM lane WHERE kind = ? AND lane = ? AND worker IS NOT NULL AND fence = ?",
        (held.kind, held.lane, held.fence),
    ).fetchone()
    if found is None:
        raise Fenced(f"the {held.kind} lease of {held.lane} is no longer held by {held.worker}")
    return found[0]


def leave(db: sqlite3.Connection, at: Moment, held: Lease, needs: int) -> None:
    """Give the lane back as it was found, to whoever knows so much."""
    give_back(db, at, held.kind, held.lane, held.worker, held.fence)
    db.execute("UPDATE lane SET needs = ? WHERE kind = ? AND lane = ?", (needs, held.kind, held.lane))


def finish(
    db: sqlite3.Connection,
    at: Moment,
    held: Lease,
    upto: int,
    outcome: Literal["done", "failed"],
    due: datetime | None,
    collect_until: datetime | None,
) -> None:
    """Give the lane back, with what is to be remembered of the lease."""
    kind, lane = held.kind, held.lane
    if outcome == "done" and kind == "turn":
        db.execute("DELETE FROM step WHERE conversation = ?", (lane,))
    if outcome == "done" and kind == "action":
        db.execute("DELETE FROM launch WHERE action_id = ? AND seq <= ?", (lane, upto))
    if kind == "turn":
        db.execute("DELETE FROM signal WHERE conversation = ?", (lane,))
    not_before = 0 if due is None else micros(due)
    ready_at = max(at.now, not_before) if has_work(db, kind, lane) else None
    rests = ready_at is None and kind == "turn" and has_notes(db, lane)
    if rests:
        ready_at = max(at.now + _FOLDED_AFTER, not_before)
    if outcome == "failed" or (kind == "out" and ready_at is not None):
        _count_try(db, kind, lane, upto)
    if (
        ready_at is not None
        and not rests
        and collect_until is not None
        and db.execute(_URGENT, (lane,)).fetchone() is None
    ):
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
    """Undo a lease that nobody received: the next one is told what this one would have been told."""
    at.woken.add((kind, None))
    given = db.execute(
        "UPDATE lane SET worker = NULL, until = NULL, upto = NULL "
        "WHERE kind = ? AND lane = ? AND worker = ? AND fence = coalesce(?, fence)",
        (kind, lane, worker, fence),
    )
    if kind == "turn" and given.rowcount:
        db.execute("DELETE FROM signal WHERE conversation = ?", (lane,))


def checkpoint(db: sqlite3.Connection, conversation: str, steps: Sequence[str]) -> None:
    """Record what a running turn has done so far, behind what it had."""
    if steps:
        rows = [(conversation, step) for step in steps]
        db.executemany("INSERT INTO step (conversation, value) VALUES (?, ?)", rows)


def signal(db: sqlite3.Connection, conversation: str, value: str) -> None:
    """Leave word for whoever holds the turn of this conversation; nobody: it is dropped."""
    db.execute(
        "INSERT INTO signal (conversation, value) SELECT ?1, ?2 "
        "FROM lane WHERE kind = 'turn' AND lane = ?1 AND worker IS NOT NULL",
        (conversation, value),
    )


def end_all(db: sqlite3.Connection) -> None:
    """The process that held them is gone: every lease has lapsed."""
    db.execute("UPDATE lane SET until = 0 WHERE worker IS NOT NULL")
    db.execute("DELETE FROM signal WHERE seq > 0")  # without a condition it writes, also where there is nothing


def seconds_to_next(db: sqlite3.Connection, at: Moment, since: Moment) -> float | None:
    """Until a lane becomes ready by time alone: it falls due, or its lease lapses. Below 0: one has since then."""
    due, until = db.execute(_NEXT, {"now": since.now, "real": since.real}).fetchone()
    waits = [] if due is None else [(due - at.now) / 1_000_000]
    if until is not None:
        waits.append(until - at.real)
    return min(waits, default=None)


def outbox(db: sqlite3.Connection, conversation: str, limit: int = -1) -> list[QueuedPart]:
    """What waits to be sent, in order."""
    return [part for _, part in _outbox(db, conversation, limit)]


def _outbox(db: sqlite3.Connection, conversation: str, limit: int) -> list[tuple[int, QueuedPart]]:
    """With the number of each."""
    found = db.execute(
        "SELECT seq, part_id, body, pool, stamp, tries FROM part WHERE conversation = ? ORDER BY seq LIMIT ?",
        (conversation, limit),
    )
    return [
        (
            seq,
            QueuedPart(
                part_id=part_id,
                conversation=conversation,
                body=decode(body),
                pool=pool,
                stamp=moment(stamp),
                tries=tries,
            ),
        )
        for seq, part_id, body, pool, stamp, tries in found
    ]


def waiting_from_row(row: tuple[Any, ...]) -> Waiting:
    """The event of a row of `EVENT_COLUMNS`."""
    seq, conversation, stamp, body, pointed, collects, tries, needs = row
    return Waiting(
        seq=seq,
        conversation=conversation,
        stamp=moment(stamp),
        body=decode(body),
        pointed=bool(pointed),
        collects=bool(collects),
        tries=tries,
        needs=needs,
    )


def _ready(db: sqlite3.Connection, at: Moment, kind: Kind, only: str | None, pool: str, knows: int) -> list[_Row]:
    if only is not None:
        return [_Row(*row) for row in db.execute(_ONLY, (kind, knows, only, at.now, at.real))]
    found = db.execute(_ANY, (kind, knows, pool, at.now, kind, knows, pool, at.real, at.now))
    return [_Row(*row) for row in found]


def has_work(db: sqlite3.Connection, kind: Kind, lane: str) -> bool:
    return db.execute(_WORK[kind], (lane,)).fetchone() is not None


def has_notes(db: sqlite3.Connection, conversation: str) -> bool:
    """Return True when something waits there that wakes nobody."""
    return db.execute(_NOTES, (conversation,)).fetchone() is not None


def is_held(db: sqlite3.Connection, at: Moment, conversation: str) -> bool:
    found = db.execute(
        "SELECT 1 FROM lane WHERE kind = 'turn' AND lane = ? AND worker IS NOT NULL AND until > ?",
        (conversation, at.real),
    )
    return found.fetchone() is not None


def _count_try(db: sqlite3.Connection, kind: Kind, lane: str, upto: int | None) -> None:
    """One more try for what a lease held that ended without dealing with it."""
    if kind == "turn":
        db.execute("UPDATE event SET tries = tries + 1 WHERE conversation = ? AND seq <= ?", (lane, upto))
    elif kind == "out":
        db.execute("UPDATE part SET tries = tries + 1 WHERE conversation = ? AND seq <= ?", (lane, upto))
