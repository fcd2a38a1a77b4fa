"""Maintenance of the file: the latest moment of the clock, and the removal of expired rows."""

from __future__ import annotations

import sqlite3

from gateway.store.codec import span
from gateway.store.errors import StoreUnavailable
from gateway.store.sqlite.clock import Moment

_ROWS = 500
_VERSIONS_KEPT = span(3600.0)
"""How long the version of a record is kept after the record's end."""

_EXPIRED = (
    f"DELETE FROM seen WHERE event_id IN (SELECT event_id FROM seen WHERE until <= :now LIMIT {_ROWS})",  # noqa: S608
    "DELETE FROM record WHERE name IN "  # noqa: S608
    f"(SELECT name FROM record WHERE expires <= :now - {_VERSIONS_KEPT} LIMIT {_ROWS})",
    "UPDATE record SET value = NULL WHERE name IN "  # noqa: S608
    f"(SELECT name FROM record WHERE expires <= :now AND value IS NOT NULL LIMIT {_ROWS})",
    f"DELETE FROM cell WHERE name IN (SELECT name FROM cell WHERE arrival <= :now LIMIT {_ROWS})",  # noqa: S608
    f"DELETE FROM spent WHERE name IN (SELECT name FROM spent WHERE ends <= :now LIMIT {_ROWS})",  # noqa: S608
    "DELETE FROM lane WHERE id IN (SELECT id FROM lane WHERE ready_at IS NULL AND worker IS NULL AND due <= :now "  # noqa: S608
    f"AND tries = 0 AND died = 0 AND kind IN ('turn', 'memory', 'action', 'out') LIMIT {_ROWS}) "
    "AND NOT (kind = 'turn' AND EXISTS (SELECT 1 FROM step WHERE conversation = lane))",
)


def high_water(db: sqlite3.Connection) -> int:
    """Return the latest stored moment of the clock."""
    latest: int = db.execute("SELECT high_water FROM clock").fetchone()[0]
    return latest


def set_high_water(db: sqlite3.Connection, at: Moment) -> None:
    """Store this moment as the latest of the clock."""
    db.execute("UPDATE clock SET high_water = ?", (at.now,))


def clean(db: sqlite3.Connection, at: Moment) -> bool:
    """Remove some expired rows, not returned by any call. Return True if more are left."""
    return max([db.execute(statement, {"now": at.now}).rowcount for statement in _EXPIRED]) >= _ROWS


def scrub(db: sqlite3.Connection, at: Moment, *, anew: bool) -> None:
    """Empty the write-ahead log, and with `anew` write the file anew before. Raises StoreUnavailable while another
    program reads the file."""
    if anew:
        db.execute("PRAGMA temp_store = FILE")  # the copy may be larger than the memory
        try:
            db.execute("VACUUM")
        finally:
            db.execute("PRAGMA temp_store = MEMORY")
    blocked, *_ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    if blocked:
        raise StoreUnavailable(
            "another program reads the store's file, so removed bytes are still in its log: end that one"
        )
