"""A file of the first release is opened by this one: all that people had is there, brought forward as a whole."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite.schema import _MIGRATIONS
from gateway.store.transaction import Transaction
from gateway.store.types import Cell, Incoming, Key
from tests.store.sqlite import migrating

CHAT = "agent/telegram:1:2"
V1 = Path(__file__).with_name("v1.sql").read_text()
POINTS = 60


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of the first release."""
    path = tmp_path / "askfirst.db"
    with closing(sqlite3.connect(path)) as first:
        first.executescript(V1)
    return path


@pytest.fixture
async def store(file: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(file)
    await store.open()
    yield store
    await store.close()


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as found:
        number: int = found.execute("PRAGMA user_version").fetchone()[0]
        return number


async def test_migrated_file_has_everything(store: SqliteStore) -> None:
    stats = await store.stats()
    assert (stats.waiting, stats.pointed, stats.ready, stats.parts, stats.timers, stats.dead) == (3, 1, 3, 2, 1, 1)
    assert (await store.get([Key("00", "action/act")]))[Key("00", "action/act")].version == 3
    assert [entry.value for entry in await store.read(Key("00", "transcript"))] == [
        {"role": "user", "content": "hello"}
    ]
    seen = [Incoming(conversation=CHAT, event_ids=(f"telegram:1:update {n}",), body={}) for n in (7, 6)]
    assert await store.accept(seen) == [False, True]
    assert await store.acquire([Cell(name="telegram", burst=1, period_seconds=1)]) > 0
    assert await store.replay("d1")
    assert [(part.part_id, part.tries) for part in await store.outbox(CHAT)] == [("p1", 1), ("p2", 0), ("p0", 0)]
    await store.commit(Transaction(partition="00", puts={}, expect={"gone": 0}))


async def test_work_goes_on_where_it_was(store: SqliteStore) -> None:
    turn = await store.lease("w", ["turn"])
    assert turn is not None
    assert [(event.seq, event.pointed, event.tries, event.needs) for event in turn.events] == [
        (1, False, 2, 1),
        (2, True, 0, 1),
        (3, False, 0, 1),
    ]
    assert (turn.steps, turn.tries, turn.died) == (({"events": [1]}, "half way"), 1, False)
    out = await store.lease("w", ["out"], pool="telegram")
    assert out is not None
    assert ([part.part_id for part in out.parts], out.tries, out.died) == (["p1", "p2"], 2, True)
    assert out.fence > 1799999994000000
    action = await store.lease("w", ["action"])
    assert action is not None
    assert action.lane == "act"
    store.offset_seconds = 20 * 365 * 86400
    await store.run_timers()
    assert [event.body["kind"] for event in await store.pending_decisions(CHAT)] == ["ButtonPress", "expiry"]


async def test_kill_during_a_migration_leaves_a_file_of_one_version(file: Path, tmp_path: Path) -> None:
    """And the next start goes on from there."""
    processes = multiprocessing.get_context("forkserver")
    said, says = processes.Pipe(duplex=False)
    copies = tmp_path / "copies"
    copies.mkdir()
    child = processes.Process(target=migrating.run, args=(says, file.read_bytes(), copies, POINTS), daemon=True)
    child.start()
    says.close()
    found = []
    while (word := await asyncio.to_thread(said.recv)) is not None:
        found.append(word)
    await asyncio.to_thread(child.join)
    assert [killed for _, killed in found] == [True] * POINTS
    versions = [version(Path(path)) for path, _ in found]
    assert versions == sorted(versions)
    assert set(versions) >= {1, len(_MIGRATIONS) - 1}
    for path, _ in found:
        store = SqliteStore(path)
        await store.open()
        await store.close()
        with closing(sqlite3.connect(path)) as left:
            assert left.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            counted = [left.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("event", "part", "log")]
            assert counted == [3, 2, 1]
            assert left.execute("SELECT part_id, pool FROM part").fetchall() == [("p1", "telegram"), ("p2", "telegram")]
        assert version(Path(path)) == len(_MIGRATIONS)


async def test_new_file_and_migrated_file_have_the_same_tables(file: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    for path in (file, new):
        store = SqliteStore(path)
        await store.open()
        await store.close()
    with closing(sqlite3.connect(file)) as one, closing(sqlite3.connect(new)) as other:
        schema = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
        assert one.execute(schema).fetchall() == other.execute(schema).fetchall()
