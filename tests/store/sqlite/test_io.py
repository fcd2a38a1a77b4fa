"""A disk fails under a running store: reported as a fault, without acknowledged losses, and used again after.

Other open files replace the store's own for a while, so the errors are the operating system's.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from channels import Json
from gateway.store.base import Store
from gateway.store.errors import Conflict, StoreRefused, StoreUnavailable
from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite.clock import Moment
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Incoming, Key

BODY = {"text": "x" * 3000}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "askfirst.db"


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    async with opened(path) as store:
        yield store


def _unwritable(file: Path) -> int:
    """As on a disk become read-only, or with failing writes."""
    return os.open(file, os.O_RDONLY)


def _forgetful(file: Path) -> int:
    """Takes every byte and keeps none; a request for durability (fdatasync) fails."""
    return os.open(os.devnull, os.O_RDWR)


@contextmanager
def failing(file: Path, how: Callable[[Path], int]) -> Iterator[None]:
    """Replace every descriptor of the file in this process meanwhile."""
    with ExitStack() as back:
        open_files = [int(each.name) for each in Path("/proc/self/fd").iterdir() if _where(each) == str(file)]
        assert open_files, f"{file} is not open"
        for number in open_files:
            kept, other = os.dup(number), how(file)
            os.dup2(other, number)
            os.close(other)
            back.callback(os.close, kept)
            back.callback(os.dup2, kept, number)
        yield


def _where(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:  # closed meanwhile
        return ""


def beside(path: Path) -> Path:
    """Return the write-ahead log, the first place of every write."""
    return path.with_name(f"{path.name}-wal")


async def found_after_a_crash(path: Path, at: Path) -> tuple[int, dict[Key, Json]]:
    """Return the waiting events and the records for a process finding the files as now."""
    at.mkdir()
    for file in (path, beside(path)):
        shutil.copy(file, at)
    async with opened(at / path.name) as store:
        records = {key: record.value for key, record in await store.scan("")}
        return (await store.stats()).waiting, records


def put(name: str) -> Transaction:
    return Transaction(partition="00", puts={name: Put("kept")})


async def accepts(store: Store, *events: str) -> list[bool]:
    return await store.accept([Incoming(conversation="c", event_ids=(event,), body=dict(BODY)) for event in events])


@pytest.mark.parametrize(
    ("how", "error"), [(_unwritable, "WRITE"), (_forgetful, "(FSYNC|SHORT_READ)")], ids=["unwritable", "unsynced"]
)
async def test_failed_write_is_not_acknowledged_and_earlier_ones_stay(
    store: SqliteStore, path: Path, tmp_path: Path, how: Callable[[Path], int], error: str
) -> None:
    assert await accepts(store, "before") == [True]
    await store.commit(put("before"))
    waiting = asyncio.create_task(store.lease("w", ["out"], wait_seconds=60))
    await store.now()
    with failing(beside(path), how):
        with pytest.raises(StoreUnavailable, match=rf"SQLITE_IOERR_{error}\); the disk does not take or give it"):
            await accepts(store, "lost")
        calls = (
            lambda: accepts(store, "many", "more"),
            lambda: store.commit(put("lost")),
            lambda: store.ping(),
            lambda: asyncio.wait_for(waiting, 60),
            lambda: store.lease("w", ["turn"]),
        )
        for call in calls:
            with pytest.raises(StoreUnavailable):
                await call()
        assert await found_after_a_crash(path, tmp_path / "then") == (1, {Key("00", "before"): "kept"})
    await store.ping()
    assert await accepts(store, "lost", "before") == [True, False]
    await store.commit(put("after"))
    lease = await store.lease("w", ["turn"])
    assert lease is not None and len(lease.events) == 2
    kept = {Key("00", "before"): "kept", Key("00", "after"): "kept"}
    assert await found_after_a_crash(path, tmp_path / "later") == (2, kept)


async def test_a_database_that_cannot_be_written_keeps_all_in_its_log(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    """The log's content moves into the database now and then: no answer waits for the move."""
    before = path.stat().st_mtime_ns
    with failing(path, _unwritable):
        for number in range(500):
            await store.commit(Transaction(partition="00", puts={f"r{number}": Put("x" * 12_000)}))
        assert path.stat().st_mtime_ns == before, "nothing was written there"
        assert beside(path).stat().st_size > 4 * 1024**2, "and it was to be"
        _, records = await found_after_a_crash(path, tmp_path / "then")
        assert len(records) == 500
    await store.commit(put("after"))
    assert path.stat().st_mtime_ns > before
    _, records = await found_after_a_crash(path, tmp_path / "later")
    assert len(records) == 501


async def test_a_full_database_is_told_with_its_mend_and_used_again(store: SqliteStore, tmp_path: Path) -> None:
    """SQLite's own limit stands for the end of the disk."""

    def limit(pages: int) -> Callable[[sqlite3.Connection, Moment], int]:
        return lambda db, at: int(db.execute(f"PRAGMA max_page_count = {pages}").fetchone()[0])

    await store._do(limit(1))  # as many as there are, at least
    with pytest.raises(StoreUnavailable, match=r"SQLITE_FULL\); the disk is full: make room"):
        for number in range(100):
            await accepts(store, f"e{number}")
    await store.ping()  # a page that is there can be written
    waiting = (await store.stats()).waiting
    assert waiting == number
    with pytest.raises(Conflict):
        await store.commit(Transaction(partition="00", expect={"r": 1}))
    await store._do(limit(2**30))
    assert await accepts(store, "more") == [True]
    assert (await store.stats()).waiting == waiting + 1


@pytest.mark.parametrize("size", [0, 5000, 40_000])
async def test_start_without_room_is_refused_and_works_with_room(path: Path, size: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        with pytest.raises(StoreRefused) as refused:
            await SqliteStore(path).open()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "backup" not in str(refused.value), "nothing is wrong with the file"
    async with opened(path) as store:
        assert await accepts(store, "e") == [True]


async def test_no_other_directory_is_written_to(store: SqliteStore, path: Path) -> None:
    """SQLite's rollback data may be large; a container may have no other writable place."""
    for number in range(200):
        await store.commit(Transaction(partition="00", puts={f"r{number}": Put("x" * 3000)}))

    def much(db: sqlite3.Connection, at: Moment) -> list[str]:
        db.execute("SAVEPOINT step")
        db.execute("UPDATE record SET value = ?", ("y" * 3000,))
        return [where for each in Path("/proc/self/fd").iterdir() if "etilqs" in (where := _where(each))]

    assert await store._do(much, durable=True) == []
