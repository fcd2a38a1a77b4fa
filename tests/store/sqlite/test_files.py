"""Files removed or replaced under a running store, or left beside a restored database."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gateway.store.errors import StoreRefused, StoreUnavailable
from gateway.store.secret import kept_secret
from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite.writer import SqliteTimings
from gateway.store.types import Incoming

LOST = "was removed or replaced while it was open: stop, "


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "askfirst.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, timings=SqliteTimings(files_seconds=0.0))
    await store.open()
    yield store
    await store.close()


def beside(path: Path, end: str) -> Path:
    return path.with_name(f"{path.name}{end}")


def content(path: Path) -> dict[str, bytes]:
    """Return the bytes of the database and the log, if present."""
    return {file.name: file.read_bytes() for file in (path, beside(path, "-wal")) if file.exists()}


async def accept(store: SqliteStore, *numbers: int) -> None:
    """Accept messages of some length, each in a separate transaction."""
    for number in numbers:
        event = Incoming(conversation=f"c{number}", event_ids=(f"e{number}",), body={"text": "x" * 3000})
        assert await store.accept([event]) == [True]


async def found(path: Path) -> int:
    """Return the message count of a process starting on copies of these files: this process may hold some open."""
    there = path.with_name("there")
    there.mkdir()
    for file in (path, beside(path, "-wal")):
        if file.exists():
            shutil.copy(file, there)
    store = SqliteStore(there / path.name)
    await store.open()
    try:
        return (await store.stats()).waiting
    finally:
        await store.close()


def back_up(path: Path, to: Path) -> None:
    """Make a backup with another program."""
    script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).backup(sqlite3.connect(sys.argv[2]))"
    subprocess.run([sys.executable, "-c", script, str(path), str(to)], check=True)


def remove(path: Path, backup: Path) -> None:
    path.unlink()


def remove_all(path: Path, backup: Path) -> None:
    for end in ("", "-wal", "-shm"):
        beside(path, end).unlink()


def replace(path: Path, backup: Path) -> None:
    shutil.copy(backup, path.with_name("new"))
    path.with_name("new").replace(path)


def restore_in_place(path: Path, backup: Path) -> None:
    beside(path, "-wal").unlink()
    beside(path, "-shm").unlink()
    shutil.copy(backup, path)


HOW = [remove, remove_all, replace, restore_in_place]


@pytest.mark.parametrize("how", HOW)
async def test_write_to_a_replaced_file_is_not_acknowledged(
    store: SqliteStore, path: Path, how: Callable[[Path, Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    await accept(store, 1)
    backup = path.with_name("backup.db")
    back_up(path, backup)
    await accept(store, *range(2, 400))
    waiting = asyncio.create_task(store.lease("w", ["out"], wait_seconds=60))
    await store.ping()
    how(path, backup)
    then = content(path)
    for call in (lambda: accept(store, 1000), store.ping, lambda: waiting, lambda: store.lease("w", ["turn"])):
        with pytest.raises(StoreUnavailable, match=rf"askfirst\.db(-wal)? {LOST}put it back or restore it"):
            await asyncio.wait_for(call(), 60)
    await store.close()
    if how is replace:
        then = {path.name: then[path.name]}
        assert beside(path, "-wal.old").exists(), "it would be taken for that of the new file"
    assert content(path) == then
    [error] = [record for record in caplog.records if record.levelname == "ERROR" and LOST in record.message]
    assert error.name == "askfirst.store"
    if path.exists():
        assert await found(path) == 1


async def test_file_put_back_is_complete_at_the_next_start(store: SqliteStore, path: Path) -> None:
    await accept(store, 1, 2)
    path.rename(path.with_name("moved"))
    with pytest.raises(StoreUnavailable, match=LOST):
        await accept(store, 3)
    path.with_name("moved").rename(path)
    with pytest.raises(StoreUnavailable, match=LOST):
        await accept(store, 3)
    await store.close()
    assert await found(path) == 2


async def test_replaced_file_is_noticed_at_the_close(path: Path) -> None:
    """The store has not looked since the opening."""
    store = SqliteStore(path)
    await store.open()
    await accept(store, 1)
    backup = path.with_name("backup.db")
    back_up(path, backup)
    await accept(store, *range(2, 100))
    restore_in_place(path, backup)
    before = content(path)
    await store.close()
    assert content(path) == before


async def test_store_without_its_lock_leaves_the_file_to_the_next(
    store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await accept(store, 1)
    beside(path, ".lock").unlink()
    second = SqliteStore(path)
    await second.open()
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match=rf"askfirst\.db\.lock {LOST}see that no other process"):
            await accept(store, 2)
    await accept(second, 2, 3)
    await store.close()
    await accept(second, 4)
    await second.close()
    assert await found(path) == 4
    assert [record.levelname for record in caplog.records] == ["ERROR"]


async def test_harmless_acts_of_other_programs_change_no_behaviour(
    store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await accept(store, *range(100))
    back_up(path, path.with_name("backup.db"))
    await accept(store, 100)
    for end in ("", "-wal", "-shm", ".lock"):
        file = beside(path, end)
        file.chmod(0o640)
        os.utime(file)
        subprocess.run(["cp", "-p", file, file.with_name("copy")], check=True)
    subprocess.run([sys.executable, "-c", _OF_ITS_OWN, str(path)], check=True)
    await accept(store, *range(101, 200))
    await store.ping()
    await store.close()
    assert not caplog.records
    assert await found(path) == 200


_OF_ITS_OWN = "import sqlite3, sys; sqlite3.connect(sys.argv[1], isolation_level=None).execute('VACUUM').fetchall()"


async def test_store_in_memory_has_no_file_to_lose() -> None:
    store = SqliteStore(":memory:")
    await store.open()
    await accept(store, 1)
    await store.close()


# ───────────── a log left beside another file ─────────────


async def crashed(path: Path, *, after_backup: int) -> None:
    """Put a killed process's files at `path`, under a backup of the time with 30 messages."""
    running = SqliteStore(path.with_name("running"))
    await running.open()
    await accept(running, *range(30))
    back_up(path.with_name("running"), path)
    await accept(running, *range(30, 30 + after_backup))
    shutil.copy(path.with_name("running-wal"), beside(path, "-wal"))
    await running.close()


def as_documented(words: str) -> str:
    """Return the shell block of docs/deploy.md with a line beginning with these words."""
    page = (Path(__file__).parents[3] / "docs" / "deploy.md").read_text(encoding="utf-8")
    [block] = [block for block in re.findall(r"^```sh\n(.*?)^```$", page, re.M | re.S) if f"\n{words}" in block]
    return str(block)


@pytest.mark.timeout(60)
async def test_backup_beside_an_older_log_is_refused_and_untouched(path: Path) -> None:
    await crashed(path, after_backup=500)
    backup = path.read_bytes()
    before = content(path)
    for _ in range(2):
        with pytest.raises(StoreRefused) as refused:
            await SqliteStore(path).open()
        assert f"if it was restored, remove {path}-wal and {path}-shm, which are of the file before" in str(
            refused.value
        )
        assert content(path) == before
    kept = path.with_name("backup")
    kept.mkdir()
    path.rename(kept / path.name)
    (kept / f"{path.name}.secret").write_bytes(b"kept beside it")
    script = as_documented("rm -f").replace("/backup", str(kept)).replace("/var/lib/askfirst", str(path.parent))
    subprocess.run(["sh", "-euc", script], check=True)
    assert content(path) == {path.name: backup}
    assert beside(path, ".secret").read_bytes() == b"kept beside it"
    assert await found(path) == 30


async def test_a_log_without_its_file_is_not_thrown_away(path: Path) -> None:
    await crashed(path, after_backup=1)
    for empty in (False, True):
        path.unlink()
        if empty:
            path.touch()
        before = content(path)
        with pytest.raises(StoreRefused, match=r"askfirst\.db was removed, and .*remove .*-wal and .*-shm"):
            await SqliteStore(path).open()
        assert content(path) == before
        path.touch()


async def test_another_programs_log_is_left_as_it_is(path: Path) -> None:
    script = (
        "import os, sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('PRAGMA journal_mode = WAL');"
        "db.execute('CREATE TABLE lane (x)'); os._exit(0)"
    )
    subprocess.run([sys.executable, "-c", script, str(path)], check=True)
    before = content(path)
    assert len(before) == 2
    with pytest.raises(StoreRefused, match="another program"):
        await SqliteStore(path).open()
    assert content(path) == before


async def test_files_readable_by_other_users_are_made_private(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secret = beside(path, ".secret")
    store = SqliteStore(path)
    await store.open()
    await accept(store, 1)
    kept = await asyncio.to_thread(kept_secret, path)
    for file in (path, secret):
        file.chmod(0o644)
    await store.close()
    await store.open()
    assert await asyncio.to_thread(kept_secret, path) == kept
    try:
        modes = {
            file.name: oct(file.stat().st_mode & 0o777) for file in path.parent.iterdir() if ".lock" not in file.name
        }
        assert set(modes.values()) == {"0o600"}, modes
    finally:
        await store.close()
    told = [record.getMessage() for record in caplog.records]
    assert told.pop(0).startswith(f"{secret} is missing: a new secret is made.")
    assert told == [f"other users could read {file} (mode 0644): now its owner alone can" for file in (path, secret)]


def test_a_secret_that_can_be_guessed_is_refused(path: Path) -> None:
    beside(path, ".secret").write_text("a" * 40, encoding="utf-8")
    with pytest.raises(StoreRefused, match="can be guessed: it has too few different characters"):
        kept_secret(path)
