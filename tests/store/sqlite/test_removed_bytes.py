"""Bytes removed from an embedded store are in none of the files."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.store.errors import StoreUnavailable
from gateway.store.sqlite import SqliteStore
from gateway.store.transaction import LogCut, Put, Transaction
from gateway.store.types import Incoming

CANARY = "canary-3f9a0c"
LONG = f"{CANARY} " * 2000
"""A text filling whole pages."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "askfirst.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    yield store
    await store.close()


def found_in(path: Path) -> set[str]:
    """Return the files of the store with the canary."""
    files = path.parent.glob(f"{path.name}*")
    return {file.name.removeprefix(path.name) for file in files if CANARY.encode() in file.read_bytes()}


async def write(store: SqliteStore, **changes: object) -> None:
    await store.commit(Transaction(partition="00", **changes))  # type: ignore[arg-type]  # each test has its own


async def plant(store: SqliteStore) -> None:
    """Store the canary in a record, in an event and in lines, beside others."""
    event = Incoming(conversation="c", event_ids=("e",), body={"text": CANARY})
    lines = [("transcript/c", text) for text in ("before", CANARY, LONG, "after")]
    await write(store, puts={"r": Put(LONG), "other": Put("kept")}, appends=lines, accept=[event])


async def remove(store: SqliteStore) -> None:
    await write(store, cut=[LogCut(log="transcript/c", upto=3)], deletes=["r"], consume=[("c", 1)])


async def test_removed_bytes_are_gone_after_a_scrub(store: SqliteStore, path: Path) -> None:
    await plant(store)
    await store.scrub()
    assert found_in(path) == {""}
    await remove(store)
    await store.scrub()
    assert found_in(path) == set()
    assert Path(f"{path}-wal").stat().st_size == 0
    await write(store, puts={"r": Put("later")})
    assert len(await store.scan("")) == 2


async def test_scrub_says_that_a_reader_holds_the_bytes(store: SqliteStore, path: Path) -> None:
    await plant(store)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM log").fetchone()
        await remove(store)
        with pytest.raises(StoreUnavailable, match="another program reads"):
            await store.scrub()
        await write(store, puts={"r": Put("the store is used as before")})
    await store.scrub()
    assert found_in(path) == set()


async def test_scrub_of_a_store_in_memory_keeps_its_records() -> None:
    store = SqliteStore(":memory:")
    await store.open()
    await plant(store)
    await store.scrub()
    assert len(await store.scan("")) == 2
    await store.close()
