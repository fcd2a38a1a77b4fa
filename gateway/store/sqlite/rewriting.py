"""Rewriting all stored events and parts; see `Embedded.rewrite`."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from itertools import groupby
from typing import Any

from gateway.store.codec import decode, encode, moment
from gateway.store.embedded import Rewriting, Stored
from gateway.store.sqlite.clock import Moment

__all__ = ["rewrite"]


def rewrite(db: sqlite3.Connection, at: Moment, rewriting: Rewriting) -> None:
    """Replace the content of each event, part, timer, dead letter and checkpoint."""

    def events(body: Any, conversation: str, stamp: int) -> Any:
        return rewriting(Stored("event", conversation, body, moment(stamp)))

    def parts(body: Any, conversation: str) -> Any:
        return rewriting(Stored("part", conversation, body))

    def timers(held: Any) -> Any:
        return {**held, "body": rewriting(Stored("event", held["conversation"], held["body"]))}

    def letters(held: Any) -> Any:
        event, part = held["incoming"], held["part"]
        if event is not None:
            event["body"] = rewriting(Stored("event", event["conversation"], event["body"], is_dead=True))
        if part is not None:
            part["body"] = rewriting(Stored("part", part["conversation"], part["body"], is_dead=True))
        return held

    _each(db, "event", "seq", "body", events, "conversation", "stamp")
    _each(db, "part", "seq", "body", parts, "conversation")
    _each(db, "timer", "timer_id", "incoming", timers)
    _each(db, "dead", "seq", "held", letters)
    _checkpoints(db, rewriting)


def _each(db: sqlite3.Connection, table: str, key: str, column: str, change: Callable[..., Any], *more: str) -> None:
    columns = ", ".join([key, f"CAST({column} AS BLOB)", *more])
    for name, text, *rest in db.execute(f"SELECT {columns} FROM {table}").fetchall():  # noqa: S608
        try:
            changed = encode(change(decode(text), *rest))
        except (LookupError, RecursionError, TypeError, ValueError):  # it cannot be read: it stays as it is
            continue
        db.execute(f"UPDATE {table} SET {column} = ? WHERE {key} = ?", (changed, name))  # noqa: S608


def _checkpoints(db: sqlite3.Connection, rewriting: Rewriting) -> None:
    found = db.execute("SELECT conversation, seq, CAST(value AS BLOB) FROM step ORDER BY conversation, seq").fetchall()
    for conversation, rows in groupby(found, key=lambda row: row[0]):
        seqs, texts = zip(*((seq, text) for _, seq, text in rows), strict=True)
        try:
            steps: Any = rewriting(Stored("steps", conversation, [decode(text) for text in texts]))
        except (RecursionError, ValueError):
            continue
        changed = [(encode(step), seq) for step, seq in zip(steps, seqs, strict=True)]
        db.executemany("UPDATE step SET value = ? WHERE seq = ?", changed)
