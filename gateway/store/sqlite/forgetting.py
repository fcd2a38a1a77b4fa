"""Removal of all data of lanes, and of everything named after a subject; see `Store.forget`."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping

from gateway.store.codec import conversation_of
from gateway.store.errors import Conflict
from gateway.store.sqlite.clock import Moment
from gateway.store.types import Forgotten

_OF_LANES = (
    ("events", "DELETE FROM event WHERE conversation = ?"),
    ("parts", "DELETE FROM part WHERE conversation = ?"),
    ("dead letters", "DELETE FROM dead WHERE conversation = ?"),
    ("", "DELETE FROM step WHERE conversation = ?"),
    ("", "DELETE FROM signal WHERE conversation = ?"),
    ("", "DELETE FROM launch WHERE action_id = ?"),
    ("", "DELETE FROM lane WHERE lane = ?"),
)
"""The statements for removing a lane, each with the name for the count."""


def forget(db: sqlite3.Connection, at: Moment, forgotten: Forgotten) -> Mapping[str, int]:
    """Remove this data. Raises Conflict while a lane is leased."""
    for lane in forgotten.lanes:
        found = db.execute("SELECT 1 FROM lane WHERE lane = ? AND worker IS NOT NULL AND until > ?", (lane, at.real))
        if found.fetchone():
            raise Conflict(f"{lane} is leased")
    gone: Counter[str] = Counter()
    for lane in forgotten.lanes:
        for what, statement in _OF_LANES:
            gone[what] += db.execute(statement, (lane,)).rowcount
    _timers(db, forgotten, gone)
    _records(db, at, forgotten, gone)
    for log in _chosen(db, "SELECT DISTINCT log FROM log", forgotten):
        db.execute("UPDATE emptied SET upto = max(upto, (SELECT max(seq) FROM log WHERE log = ?))", (log,))
        gone["lines"] += db.execute("DELETE FROM log WHERE log = ?", (log,)).rowcount
    for count in _chosen(db, "SELECT name FROM spent", forgotten):
        gone["counts"] += db.execute("DELETE FROM spent WHERE name = ?", (count,)).rowcount
    for cell in _chosen(db, "SELECT name FROM cell", forgotten):
        db.execute("DELETE FROM cell WHERE name = ?", (cell,))
    seen = db.execute("SELECT event_id FROM seen").fetchall()
    db.executemany("DELETE FROM seen WHERE event_id = ?", [each for each in seen if forgotten.names_event(each[0])])
    return {what: count for what, count in gone.items() if what and count}


def _chosen(db: sqlite3.Connection, names: str, forgotten: Forgotten) -> Iterable[str]:
    """Return the names of a query to remove."""
    return [name for (name,) in db.execute(names).fetchall() if forgotten.names(name)]


def _records(db: sqlite3.Connection, at: Moment, forgotten: Forgotten, gone: Counter[str]) -> None:
    """Remove records, and the names and versions of ended records, without counting the latter."""
    for name in _chosen(db, "SELECT name FROM record", forgotten):
        lives = "SELECT count(*) FROM record WHERE name = ? AND value IS NOT NULL AND (expires IS NULL OR expires > ?)"
        gone["records"] += db.execute(lives, (name, at.now)).fetchone()[0]
        db.execute("DELETE FROM record WHERE name = ?", (name,))


def _timers(db: sqlite3.Connection, forgotten: Forgotten, gone: Counter[str]) -> None:
    for timer_id, text in db.execute("SELECT timer_id, CAST(incoming AS BLOB) FROM timer").fetchall():
        if forgotten.names(timer_id) or conversation_of(text) in forgotten.lanes:
            gone["timers"] += db.execute("DELETE FROM timer WHERE timer_id = ?", (timer_id,)).rowcount
