"""selectools' pending stores: one action a scope, stashed with its executor, popped by an answer.

What they do is in `seed_store`; here is where each of them keeps its records.
"""

from __future__ import annotations

from pathlib import Path

from gateway.pending.reading import ConfirmParser
from gateway.pending.seed_home import at_path, at_url
from gateway.pending.seed_store import PendingStore
from gateway.store.base import Store
from gateway.store.sqlite import SqliteStore
from gateway.tools.stash import DEFAULT_TTL_SECONDS

__all__ = ["InMemoryPendingStore", "RedisPendingStore", "SqlitePendingStore"]


class InMemoryPendingStore(PendingStore):
    """Keeps actions in memory: they end with the process. For tests, and for bots that may forget."""

    def __init__(
        self,
        *,
        parser: ConfirmParser | None = None,
        default_ttl_seconds: float = DEFAULT_TTL_SECONDS,
        max_entries: int = 5000,
    ) -> None:
        """`max_entries` may wait at once, over all users; raises ValueError for numbers that make no sense."""
        super().__init__(
            None,
            lambda: SqliteStore(":memory:"),
            parser=parser,
            default_ttl_seconds=default_ttl_seconds,
            max_entries=max_entries,
        )


class SqlitePendingStore(PendingStore):
    """Keeps actions in a file of one process: its path, ``sqlite:///path``, or a Store that is open already.

    Two of one path share the file within a process; a second process is refused. After a restart an action runs only
    by a factory.
    """

    def __init__(
        self,
        path: str | Path | Store,
        *,
        parser: ConfirmParser | None = None,
        default_ttl_seconds: float = DEFAULT_TTL_SECONDS,
        max_entries: int = 5000,
    ) -> None:
        """The arguments are those of InMemoryPendingStore. A Store that is handed in is not closed with this one."""
        given = None if isinstance(path, str | Path) else path
        super().__init__(
            given,
            lambda: at_path(str(path)),
            parser=parser,
            default_ttl_seconds=default_ttl_seconds,
            max_entries=max_entries,
        )


class RedisPendingStore(PendingStore):
    """Keeps actions on a Redis server that processes share, sealed with ASKFIRST_SECRET; no code is stored there.

    A process that has not stashed an action runs it only by a factory.
    """

    def __init__(
        self,
        url: str | Store = "redis://localhost:6379/0",
        *,
        parser: ConfirmParser | None = None,
        default_ttl_seconds: float = DEFAULT_TTL_SECONDS,
        max_entries: int = 5000,
    ) -> None:
        """The arguments are those of SqlitePendingStore. Raises ImportError without the package of Redis."""
        super().__init__(
            None if isinstance(url, str) else url,
            at_url(url),
            parser=parser,
            default_ttl_seconds=default_ttl_seconds,
            max_entries=max_entries,
        )
