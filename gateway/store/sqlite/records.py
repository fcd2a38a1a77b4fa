"""Records, logs and rates."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from gateway.store.codec import decode_all, decode_loosely, encode, lines_of, moment, span
from gateway.store.sqlite.clock import Moment
from gateway.store.transaction import LogCut, Put
from gateway.store.types import Cell, Key, LogEntry, Record, Snapshot

PARTITION = "00"
"""The only partition of an embedded store."""

_LAST_CHARACTER = "\U0010ffff"
_ABSENT = Record()


def get(db: sqlite3.Connection, at: Moment, keys: Sequence[Key]) -> Snapshot:
    """Return records, read at the same moment. A key of another partition is absent."""
    return Snapshot(
        {key: _record(db, at, key.name) if key.partition == PARTITION else _ABSENT for key in keys}, moment(at.now)
    )


def _record(db: sqlite3.Connection, at: Moment, name: str) -> Record:
    row = db.execute(
        "SELECT CAST(value AS BLOB), version FROM record WHERE name = ? AND (expires IS NULL OR expires > ?)",
        (name, at.now),
    ).fetchone()
    return _ABSENT if row is None or row[0] is None else Record(decode_loosely(row[0]), row[1])


def version(db: sqlite3.Connection, at: Moment, name: str) -> int:
    """Return the version of a record; 0 if absent."""
    row = db.execute(
        "SELECT version FROM record WHERE name = ? AND (expires IS NULL OR expires > ?)", (name, at.now)
    ).fetchone()
    return 0 if row is None else row[0]


def scan(db: sqlite3.Connection, at: Moment, prefix: str, first: str, limit: int) -> list[tuple[Key, Record]]:
    """Return records with this name prefix, from the name `first` on."""
    found = db.execute(
        "SELECT name, CAST(value AS BLOB), version FROM record WHERE name >= ? AND name < ? AND value IS NOT NULL "
        "AND (expires IS NULL OR expires > ?) ORDER BY name LIMIT ?",
        (first, prefix + _LAST_CHARACTER, at.now, limit),
    )
    return [(Key(PARTITION, name), Record(decode_loosely(value), version)) for name, value, version in found]


def put(db: sqlite3.Connection, at: Moment, name: str, new: Put) -> None:
    """Write a record. The version grows by 1, also after a deletion or expiry."""
    expires = None if new.ttl_seconds is None else at.now + span(new.ttl_seconds)
    db.execute(
        "INSERT INTO record VALUES (?, ?, 1, ?) ON CONFLICT (name) DO UPDATE "
        "SET value = excluded.value, version = version + 1, expires = iif(?, expires, excluded.expires)",
        (name, encode(new.value), expires, new.keeps_end),
    )


def delete(db: sqlite3.Connection, at: Moment, name: str) -> None:
    """Delete a record. The version is kept for a while, so a new record has another version."""
    db.execute("UPDATE record SET value = NULL, expires = ? WHERE name = ?", (at.now, name))


def append(db: sqlite3.Connection, at: Moment, lines: Sequence[tuple[str, str]]) -> None:
    """Append lines to logs. Each line comes with the name of the log."""
    db.executemany(
        "INSERT INTO log SELECT ?1, coalesce(max(seq), (SELECT upto FROM emptied)) + 1, ?2, ?3 FROM log WHERE log = ?1",
        [(log, at.now, line) for log, line in lines],
    )


def cut(db: sqlite3.Connection, cuts: Sequence[LogCut]) -> None:
    """Remove the first lines of logs."""
    for each in cuts:
        last: int | None = db.execute("SELECT max(seq) FROM log WHERE log = ?", (each.log,)).fetchone()[0]
        if last is None:
            continue
        upto = last - each.keep if each.upto is None else min(each.upto, last - each.keep)
        db.execute("DELETE FROM log WHERE log = ? AND seq <= ?", (each.log, upto))
        if upto == last:
            db.execute("UPDATE emptied SET upto = max(upto, ?)", (last,))


def rewrite(db: sqlite3.Connection, lines: Sequence[tuple[str, int, str]]) -> None:
    """Give lines of logs another value. Each comes with the name of the log and the line's number."""
    db.executemany("UPDATE log SET value = ?3 WHERE log = ?1 AND seq = ?2", lines)


def logs(db: sqlite3.Connection, at: Moment, prefix: str, first: str, limit: int) -> list[tuple[str, int]]:
    """Return logs with this name prefix, from the name `first` on, each with the stamp of the first line."""
    return db.execute(
        "WITH RECURSIVE named (log) AS (SELECT min(log) FROM log WHERE log >= :first "
        "UNION ALL SELECT (SELECT min(log) FROM log WHERE log > named.log) FROM named WHERE named.log IS NOT NULL) "
        "SELECT log, (SELECT stamp FROM log WHERE log = named.log ORDER BY seq LIMIT 1) FROM named "
        "WHERE log < :end LIMIT :limit",
        {"first": first, "end": prefix + _LAST_CHARACTER, "limit": limit},
    ).fetchall()


def read(
    db: sqlite3.Connection, at: Moment, log: Key, after: int, first: int | None, last: int | None
) -> list[LogEntry]:
    """Return entries of a log in order: the first, or without `first` the last."""
    if log.partition != PARTITION:
        return []
    chosen = "SELECT seq, stamp, CAST(value AS BLOB) FROM log WHERE log = ? AND seq > ? ORDER BY seq"
    most = last if first is None else first
    order = "DESC" if first is None else "ASC"
    found = db.execute(f"{chosen} {order} LIMIT ?", (log.name, after, -1 if most is None else max(most, 0))).fetchall()
    if first is None:
        found.reverse()
    values = decode_all([stored for _, _, stored in found])
    return [
        LogEntry(seq=seq, stamp=moment(stamp), value=value)
        for (seq, stamp, _), value in zip(found, values, strict=True)
    ]


def last_lines(db: sqlite3.Connection, log: str, last: int) -> tuple[str, ...]:
    """Return the last lines of a log, without stamps. A single row is read: after each, a thread may take the GIL."""
    (newest_first,) = db.execute(
        "SELECT CAST(group_concat(value, char(10)) AS BLOB) "
        "FROM (SELECT value FROM log WHERE log = ? ORDER BY seq DESC LIMIT ?)",
        (log, last),
    ).fetchone()
    return () if newest_first is None else tuple(reversed(lines_of(newest_first)))


def acquire(db: sqlite3.Connection, at: Moment, cells: Sequence[Cell]) -> float:
    """Take the cost of all cells or of none. Return the seconds to wait, or 0.

    GCRA: each cell stores the arrival of the next unit at an even rate.
    """
    arrivals: dict[str, int] = {}
    wait = 0
    for cell in cells:
        arrival = arrivals.get(cell.name)
        if arrival is None:
            row = db.execute("SELECT arrival FROM cell WHERE name = ?", (cell.name,)).fetchone()
            arrival = at.now if row is None else max(at.now, row[0])
        arrival += cell.cost_micros
        arrivals[cell.name] = arrival
        wait = max(wait, arrival - span(cell.period_seconds) - at.now)
    if wait > 0:
        return wait / 1_000_000
    db.executemany(
        "INSERT INTO cell VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET arrival = excluded.arrival", arrivals.items()
    )
    return 0.0
