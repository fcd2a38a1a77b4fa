"""Counts with additions only: usage and cost, by name."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence

from gateway.store.codec import decode_loosely, span
from gateway.store.sqlite.clock import Moment
from gateway.store.types import Spending

_LAST_CHARACTER = "\U0010ffff"


def add(db: sqlite3.Connection, at: Moment, spends: Sequence[Spending]) -> None:
    """Add amounts to counts. An ended count begins anew at 0."""
    for spending in spends:
        (found,) = read(db, at, [spending.name])
        amounts = Counter(found)
        amounts.update(spending.amounts)
        db.execute(
            "INSERT OR REPLACE INTO spent VALUES (?, ?, ?)",
            (spending.name, json.dumps(amounts, separators=(",", ":")), at.now + span(spending.keep_seconds)),
        )


def read(db: sqlite3.Connection, at: Moment, names: Sequence[str]) -> list[Mapping[str, int]]:
    """Return counts; an empty mapping for a name without additions."""
    found = []
    for name in names:
        row = db.execute(
            "SELECT CAST(amounts AS BLOB) FROM spent WHERE name = ? AND ends > ?", (name, at.now)
        ).fetchone()
        found.append({} if row is None else _amounts(row[0]))
    return found


def page(
    db: sqlite3.Connection, at: Moment, prefix: str, after: str, limit: int
) -> list[tuple[str, Mapping[str, int]]]:
    """Return the counts with this name prefix, after the name `after`, ordered by name."""
    found = db.execute(
        "SELECT name, CAST(amounts AS BLOB) FROM spent "
        "WHERE name >= ? AND name < ? AND name > ? AND ends > ? ORDER BY name LIMIT ?",
        (prefix, prefix + _LAST_CHARACTER, after, at.now, limit),
    )
    return [(name, _amounts(amounts)) for name, amounts in found]


def _amounts(stored: bytes) -> Mapping[str, int]:
    """Return the amounts of a count. Anything but an integer is ignored."""
    value = decode_loosely(stored)
    return {field: n for field, n in value.items() if isinstance(n, int)} if isinstance(value, dict) else {}
