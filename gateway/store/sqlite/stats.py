"""The counts of an embedded store."""

from __future__ import annotations

import sqlite3

from gateway.store.sqlite.clock import Moment
from gateway.store.types import TIMERS_COUNTED, Stats

_STATS = """
SELECT
    (SELECT waiting FROM mail),
    (SELECT count(*) FROM event WHERE pointed = 1),
    (SELECT count(*) FROM lane WHERE ready_at <= :now AND (worker IS NULL OR until <= :real)),
    (SELECT count(*) FROM lane WHERE worker IS NOT NULL AND until > :real),
    (SELECT count(*) FROM lane WHERE ready_at > :now AND NOT rests AND worker IS NULL),
    (SELECT count(*) FROM part),
    (SELECT count(*) FROM timer),
    (SELECT count(*) FROM dead),
    (SELECT min(stamp) FROM event WHERE wakes OR pointed)
"""
_TIMER_KINDS = """
SELECT substr(timer_id, 1, instr(timer_id, '/') - 1) AS kind, count(*)
FROM (SELECT timer_id FROM timer ORDER BY due LIMIT :most) WHERE timer_id LIKE '%/%' GROUP BY kind
"""


def stats(db: sqlite3.Connection, at: Moment) -> Stats:
    """Return all counts, read at the same moment."""
    row = db.execute(_STATS, {"now": at.now, "real": at.real}).fetchone()
    waiting, pointed, ready, leased, parked, parts, timers, dead, oldest = row
    return Stats(
        waiting=waiting,
        pointed=pointed,
        ready=ready,
        leased=leased,
        parked=parked,
        parts=parts,
        timers=timers,
        dead=dead,
        oldest_waiting_seconds=0.0 if oldest is None else max(0.0, (at.now - oldest) / 1_000_000),
        timer_kinds=dict(db.execute(_TIMER_KINDS, {"most": TIMERS_COUNTED})),
    )
