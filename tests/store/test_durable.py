"""The calls of an embedded store that wait for the disk before the answer: seen in the executed statements."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from gateway.store.sqlite import SqliteStore, schema
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Cell, Incoming, Key, Lease

EVENT = Incoming(conversation="c", event_ids=(), body={})


class Watched:
    """A store with traced statements."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = SqliteStore(path)
        self._executed: list[str] = []
        connect = schema.connect

        def traced(path: Path | None) -> sqlite3.Connection:
            db = connect(path)
            db.set_trace_callback(self._executed.append)
            return db

        monkeypatch.setattr(schema, "connect", traced)

    async def waits(self, call: Callable[[], Awaitable[object]]) -> bool:
        """Return whether the commit before the answer of this call waited for the disk."""
        before = len(self._executed)
        await call()
        assert "COMMIT" in self._executed[before:]
        committed = before + self._executed[before:].index("COMMIT")
        set_to = [word for word in self._executed[:committed] if word.startswith("PRAGMA synchronous")]
        return not set_to or set_to[-1].endswith("FULL")


async def test_durable_data_is_on_the_disk_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path / "askfirst.db", monkeypatch)
    store = watched.store
    leases: list[Lease] = []

    async def lease() -> None:
        found = await store.lease("w", ["turn"])
        assert found is not None
        leases.append(found)

    await store.open()
    try:
        assert not await watched.waits(lambda: store.get([Key("00", "a")]))
        assert await watched.waits(lambda: store.accept([EVENT]))
        assert not await watched.waits(lease)
        assert not await watched.waits(lambda: store.renew(leases[0]))
        assert not await watched.waits(lambda: store.acquire([Cell(name="pace", burst=1, period_seconds=1.0)]))
        assert await watched.waits(lambda: store.commit(Transaction(partition="00", puts={"a": Put("b")})))
        assert not await watched.waits(lambda: store.read(Key("00", "log")))
        for call in (store.ping, store.run_timers, lambda: store.replay("none"), lambda: store.drop("none")):
            assert await watched.waits(call)
    finally:
        await store.close()
