"""The embedded store: one file, one process, one thread that writes."""

from gateway.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
