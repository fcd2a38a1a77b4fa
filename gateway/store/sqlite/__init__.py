"""The embedded store: a file, a single process, a single writing thread."""

from gateway.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
