"""The write-ahead log during an endless read of the database by another program."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite.files import KEPT_BYTES
from gateway.store.sqlite.writer import SqliteTimings
from gateway.store.transaction import Put, Transaction

MIB = 1024**2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "askfirst.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, timings=SqliteTimings(look_up_seconds=0.0))
    await store.open()
    yield store
    await store.close()


def size(path: Path) -> int:
    return path.with_name(f"{path.name}-wal").stat().st_size


async def write(store: SqliteStore, mebibytes: int) -> None:
    """Write this many mebibytes, and have the store look at the log again. An unchanged page is not written."""
    for number in range(mebibytes):
        value = "xy"[number % 2] * MIB
        await store.commit(Transaction(partition=store.partition("c"), puts={"large": Put(value)}))
    await store.stats()


async def test_log_grown_by_a_reader_is_told_once_and_shrunk_again(
    store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM event").fetchone()
        await write(store, 30)
        assert told() == []
        await write(store, 5)
        (warning,) = told()
        assert warning.startswith(f"{path}-wal has 3")
        assert "another program reads askfirst.db without end" in warning
    assert size(path) > 32 * MIB
    await write(store, 3)
    assert size(path) <= KEPT_BYTES
    assert told()[1:] == [f"{path}-wal is small again"]
