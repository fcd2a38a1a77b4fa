"""What keeps the file in order: the clock's last moment, and what has expired."""

from __future__ import annotations

import sqlite3

from gateway.store.codec import span
from gateway.store.sqlite.clock import Moment

__all__ = ["clean", "high_water", "set_high_water"]

_ROWS = 500
_VERSIONS_KEPT = span(3600.0)
"""How long the version of a record outlives it."""

_EXPIRED = (
    f"DELETE FROM seen WHERE event_id IN (SELECT event_id FROM seen WHERE until <= :now LIMIT {_ROWS})",  # noqa: S608
    "DELETE FROM record WHERE name IN "  # noqa: S608
    f"(SELECT name FROM record WHERE expires <= :now - {_VERSIONS_KEPT} LIMIT {_ROWS})",
    "UPDATE record SET value = NULL WHERE name IN "  # noqa: S608
    f"(SELECT name FROM record WHERE expires <= :now AND value IS NOT NULL LIMIT {_ROWS})",
    f"DELETE FROM cell WHERE name IN (SELECT name FROM cell WHERE arrival <= :now LIMIT {_ROWS})",  # noqa: S608
    "DELETE FROM lane WHERE id IN (SELECT id FROM lane WHERE ready_at IS NULL AND worker IS NULL AND due <= :now "  # noqa: S608
    f"AND tries = 0 AND died = 0 AND needs = 1 AND kind IN ('turn', 'action', 'out') LIMIT {_ROWS}) "
    "AND NOT (kind = 'turn' AND EXISTS (SELECT 1 FROM step WHERE conversation = lane))",
)


def high_water(db: sqlite3.Connection) -> int:
    """The latest moment any row knows of."""
    latest: int = db.execute("SELECT high_water FROM clock").fetchone()[0]
    return latest


def set_high_water(db: sqlite3.Connection, at: Moment) -> None:
    """Remember that the clock has reached this moment."""
    db.execute("UPDATE clock SET high_water = ?", (at.now,))


def clean(db: sqlite3.Connection, at: Moment) -> bool:
    """Remove a little of what has expired (it could not be seen any more); True when more is left."""
    return max([db.execute(statement, {"now": at.now}).rowcount for statement in _EXPIRED]) >= _ROWS
