"""The times of a SQLite store."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SqliteTimings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteTimings:
    """The times of a SQLite store, in seconds."""

    gather_seconds: float = 0.003
    """After an operation with several batches of events, the next ones wait this long for more: one transaction for
    many takes a fraction of the time of several. An event that arrives alone does not wait."""
    look_again_seconds: float = 0.05
    """A busy thread looks at least this often for lanes that time alone has made ready."""
    look_up_seconds: float = 30.0
    """The thread wakes at least this often, to remove expired rows, and in case the machine was suspended."""
    files_seconds: float = 1.0
    """The thread checks at most this often that the files are in place."""
