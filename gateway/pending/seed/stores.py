"""The three pending stores. Each is a `PendingStore` over a store of its own."""

from __future__ import annotations

from pathlib import Path

from gateway.pending.reading import ConfirmParser
from gateway.pending.seed.base import PendingStore
from gateway.pending.seed.state import at_path, at_url
from gateway.store.base import Store
from gateway.store.sqlite import SqliteStore
from gateway.tools.stash import DEFAULT_TTL_SECONDS


class InMemoryPendingStore(PendingStore):
    """A pending store in memory: its actions end with the process. For tests, and for bots that may forget."""

    def __init__(
        self,
        *,
        parser: ConfirmParser | None = None,
        default_ttl_seconds: float = DEFAULT_TTL_SECONDS,
        max_entries: int = 5000,
    ) -> None:
        """`max_entries` actions may wait at once, over all users. Raises ValueError for a number out of range."""
        super().__init__(
            None,
            lambda: SqliteStore(":memory:"),
            parser=parser,
            default_ttl_seconds=default_ttl_seconds,
            max_entries=max_entries,
        )


class SqlitePendingStore(PendingStore):
    """A pending store in a file of one process: its path, ``sqlite:///path``, or an open Store.

    Several pending stores of one process share the file; a second process is refused. After a restart an action runs
    only by a factory.
    """

    def __init__(
        self,
        path: str | Path | Store,
        *,
        parser: ConfirmParser | None = None,
        default_ttl_seconds: float = DEFAULT_TTL_SECONDS,
        max_entries: int = 5000,
    ) -> None:
        """The arguments are those of InMemoryPendingStore. A given Store is not closed with this one."""
        given = None if isinstance(path, str | Path) else path
        super().__init__(
            given,
            lambda: at_path(str(path)),
            parser=parser,
            default_ttl_seconds=default_ttl_seconds,
            max_entries=max_entries,
        )


class RedisPendingStore(PendingStore):
    """A pending store on a Redis server that processes share. Records are sealed with ASKFIRST_SECRET.

    No code is stored there: a process that did not stash an action itself runs it only by a factory.
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
