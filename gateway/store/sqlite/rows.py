"""Events and parts, read from their rows."""

from __future__ import annotations

import sqlite3
from typing import Any

from gateway.store.codec import decode_body, stamp_of
from gateway.store.types import QueuedPart, Waiting

EVENT_COLUMNS = "seq, conversation, stamp, CAST(body AS BLOB), pointed, collects, kind, tries"
"""The body is read as bytes: SQLite refuses to return invalid text as text."""


def waiting_from_row(row: tuple[Any, ...]) -> Waiting:
    """Return the event of a row of `EVENT_COLUMNS`."""
    seq, conversation, stamp, body, pointed, collects, kind, tries = row
    return Waiting(
        seq=seq,
        conversation=conversation,
        stamp=stamp_of(stamp),
        body=decode_body(body),
        pointed=bool(pointed),
        collects=bool(collects),
        kind=kind,
        tries=tries,
    )


def outbox(db: sqlite3.Connection, conversation: str, limit: int = -1) -> list[QueuedPart]:
    """Return the unsent parts of a conversation, in order. A negative `limit` is none."""
    return [part for _, part in numbered_parts(db, conversation, limit)]


def numbered_parts(db: sqlite3.Connection, conversation: str, limit: int) -> list[tuple[int, QueuedPart]]:
    """Return the unsent parts of a conversation, in order, each with the `seq`."""
    found = db.execute(
        "SELECT seq, part_id, CAST(body AS BLOB), pool, stamp, tries FROM part "
        "WHERE conversation = ? ORDER BY seq LIMIT ?",
        (conversation, limit),
    )
    return [
        (
            seq,
            QueuedPart(
                part_id=part_id,
                conversation=conversation,
                body=decode_body(body),
                pool=pool,
                stamp=stamp_of(stamp),
                tries=tries,
            ),
        )
        for seq, part_id, body, pool, stamp, tries in found
    ]
