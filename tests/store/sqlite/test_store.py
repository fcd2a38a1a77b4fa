"""The embedded store alone has a file, an owner, and a disk that may be full."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import stat
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from gateway.store.errors import Overloaded, StoreRefused, StoreUnavailable
from gateway.store.form import FORM
from gateway.store.sqlite import SqliteStore, leases, mailbox
from gateway.store.sqlite.clock import Clock, Moment
from gateway.store.sqlite.files import DiskSpace
from gateway.store.sqlite.writer import Writer
from gateway.store.transaction import Put, Timer, Transaction
from gateway.store.types import Dead, Incoming, Key, Prefetch, QueuedPart, Spending
from gateway.testing.store_contract.helpers import arrive, take

BODY = {"text": "x" * 300}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "askfirst.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    yield store
    await store.close()


async def restarted(store: SqliteStore, path: Path) -> SqliteStore:
    await store.close()
    store = SqliteStore(path)
    await store.open()
    return store


# ───────────── the file ─────────────


async def test_a_restart_finds_everything(store: SqliteStore, path: Path) -> None:
    await store.accept([Incoming(conversation="c", event_ids=("a",), body=BODY)])
    timer = Timer(timer_id="t", due=await store.now(), incoming=Incoming(conversation="d", event_ids=(), body={}))
    part = QueuedPart(part_id="p", conversation="c", body=BODY)
    dead = Dead(dead_id="d", conversation="c", reason="r")
    await store.commit(
        Transaction(partition="00", puts={"r": Put(1)}, appends=[("log", 1)], parts=[part], timers=[timer], dead=[dead])
    )
    before = await store.stats()
    store = await restarted(store, path)
    after = await store.stats()
    assert (after.waiting, after.parts, after.timers, after.dead, after.ready) == (1, 1, 1, 1, 2)
    assert (before.waiting, before.ready) == (after.waiting, after.ready)
    assert (await store.get([Key("00", "r")]))[Key("00", "r")].value == 1
    assert [entry.value for entry in await store.read(Key("00", "log"))] == [1]
    assert await store.accept([Incoming(conversation="c", event_ids=("a",), body=BODY)]) == [False]
    await store.close()


async def test_the_clock_goes_on_where_it_was_though_it_had_been_moved(store: SqliteStore, path: Path) -> None:
    store.offset_seconds = 86400
    await store.accept([Incoming(conversation="c", event_ids=(), body={})])
    before, _ = await store.commit(Transaction(partition="00"))
    store = await restarted(store, path)
    assert await store.now() >= before
    assert await store.lease("w", ["turn"]) is not None, "nothing waits for a day that was only in a test's clock"
    await store.close()


async def test_files_are_readable_by_their_owner_only(store: SqliteStore, path: Path) -> None:
    await store.ping()
    for file in path.parent.glob("*.db*"):
        if file.suffix != ".lock":
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file.name


async def test_another_name_of_a_file_is_no_other_file(store: SqliteStore, path: Path) -> None:
    other = path.with_name("other.db")
    other.symlink_to(path)
    with pytest.raises(StoreRefused, match=f"{path} is in use by process"):
        await SqliteStore(other).open()


async def test_a_file_has_one_owner(store: SqliteStore, path: Path) -> None:
    with pytest.raises(StoreRefused, match=f"{path} is in use by process"):
        await SqliteStore(path).open()
    await store.close()
    other = SqliteStore(path)
    await other.open()
    await other.close()


@pytest.mark.parametrize("content", [b"this is no database " * 500, b"SQLite format 3\0" + b"\xff" * 5000])
async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(StoreRefused, match=r"notes.txt cannot be used"):
        await SqliteStore(path).open()
    assert path.read_bytes() == content


async def test_a_damaged_file_is_refused_and_left_alone(store: SqliteStore, path: Path) -> None:
    for n in range(200):
        await store.accept([Incoming(conversation=f"c{n}", event_ids=(f"e{n}",), body=BODY)])
    await store.close()
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 20] = b"\x5a" * (4096 * 17)
    path.write_bytes(content)
    with pytest.raises(StoreRefused, match="restore it from a backup"):
        await SqliteStore(path).open()
    assert path.read_bytes() == content


async def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    with closing(sqlite3.connect(path)) as theirs:
        theirs.execute("CREATE TABLE lane (x)")
    with pytest.raises(StoreRefused, match="another program"):
        await SqliteStore(path).open()


@pytest.mark.parametrize("form", [1, FORM - 1, FORM + 1])
async def test_file_of_another_form_is_refused_and_left_as_it_is(store: SqliteStore, path: Path, form: int) -> None:
    await store.close()
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA user_version = {form}")
    before = path.read_bytes()
    told = (
        rf"has form {form}, and this release, Askfirst \S+, reads form {FORM} alone\. Run the release that wrote it, or"
    )
    with pytest.raises(StoreRefused, match=told):
        await SqliteStore(path).open()
    assert path.read_bytes() == before


@pytest.mark.parametrize("form", [0, FORM - 1, FORM + 1])
async def test_file_that_changes_form_is_refused_at_the_next_call(store: SqliteStore, path: Path, form: int) -> None:
    await store.commit(Transaction(partition="00", puts={"r": Put("old")}))
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA user_version = {form}")
    for call in (
        store.accept([Incoming(conversation="c", event_ids=("e",), body={})]),
        store.commit(Transaction(partition="00", puts={"r": Put("new")})),
        store.get([Key("00", "r")]),
        store.lease("w", ["turn", "action", "out"]),
        store.run_timers(),
        store.stats(),
        store.scrub(anew=True),
    ):
        with pytest.raises(StoreUnavailable, match=rf"has form {form}, and this release, .* start anew"):
            await call
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT value FROM record WHERE name = 'r'").fetchall() == [('"old"',)]
        other.execute(f"PRAGMA user_version = {FORM}")
    key = Key("00", "r")
    assert (await store.get([key]))[key].value == "old"


@pytest.mark.parametrize("form", [7, FORM + 1])
async def test_file_of_another_form_without_tables_is_refused(tmp_path: Path, form: int) -> None:
    with closing(sqlite3.connect(tmp_path / "empty.db")) as other:
        other.execute(f"PRAGMA user_version = {form}")
    with pytest.raises(StoreRefused, match=f"has form {form}, and this release"):
        await SqliteStore(tmp_path / "empty.db").open()


async def test_file_without_one_of_its_tables_is_refused(store: SqliteStore, path: Path) -> None:
    await store.close()
    with closing(sqlite3.connect(path)) as other:
        other.execute("DROP TABLE clock")
    with pytest.raises(StoreRefused, match=r"is damaged \(no table clock\)"):
        await SqliteStore(path).open()


async def test_a_directory_one_may_not_write_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreRefused, match="Give this user a directory"):
        await SqliteStore(tmp_path / "file" / "askfirst.db").open()


async def test_a_store_that_was_refused_can_be_opened_later(store: SqliteStore, path: Path) -> None:
    second = SqliteStore(path)
    with pytest.raises(StoreRefused):
        await second.open()
    await store.close()
    await second.open()
    await second.ping()
    await second.close()


# ───────────── a disk, a lock, a loop ─────────────


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_full_disk_refuses_new_events_and_keeps_the_stored_ones(store: SqliteStore, path: Path) -> None:
    accepted: list[str] = []

    async def fill() -> None:
        for n in range(1000):
            await store.accept([Incoming(conversation="c", event_ids=(f"e{n}",), body=BODY)])
            accepted.append(f"e{n}")

    waiting = asyncio.create_task(store.lease("w", ["out"], wait_seconds=20))
    with no_file_larger_than(300_000):
        with pytest.raises(StoreUnavailable, match="SQLITE_"):
            await fill()
        assert (await store.stats()).waiting == len(accepted), "it can still be read"
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(waiting, 60)
    assert await store.accept([Incoming(conversation="c", event_ids=("more",), body=BODY)]) == [True]
    store = await restarted(store, path)
    assert (await store.stats()).waiting == len(accepted) + 1
    await store.close()


async def test_unwritable_disk_is_not_ready(store: SqliteStore, path: Path) -> None:
    await store.ping()
    with no_file_larger_than(1), pytest.raises(StoreUnavailable, match="SQLITE_"):
        await store.ping()
    await store.ping()


async def test_nearly_full_disk_refuses_only_new_messages(store: SqliteStore, path: Path) -> None:
    """Begun work comes to an end, and decisions are kept."""
    new = Incoming(conversation="c", event_ids=(), body=BODY, refusable=True)
    assert await store.accept([new]) == [True]
    await store.close()
    full = SqliteStore(path, disk_space=DiskSpace(path, reserve_bytes=1 << 62, look_seconds=0.0))
    await full.open()
    assert not await full.has_headroom()
    with pytest.raises(Overloaded, match="make room"):
        await full.accept([new])
    press = Incoming(conversation="c", event_ids=(), body=BODY, decides=True)
    assert await full.accept([press]) == [True]
    lease = await full.lease("w", ["turn"])
    assert lease is not None
    consume = [(event.conversation, event.seq) for event in lease.events]
    await full.commit(Transaction(partition="00", lease=lease, consume=consume, finish="done"))
    await full.close()
    await store.open()
    assert await store.has_headroom()
    assert await store.accept([new]) == [True]


async def test_file_held_by_another_program_is_unavailable_meanwhile(store: SqliteStore, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as theirs:
        theirs.execute("BEGIN IMMEDIATE")
        answers = await asyncio.gather(*(store.ping() for _ in range(20)), return_exceptions=True)
        theirs.execute("ROLLBACK")
    assert {str(answer) for answer in answers} == {
        "the store cannot be used now (SQLITE_BUSY); another program holds the file"
    }
    await store.ping()


async def test_failing_commit_of_a_group_fails_alone(store: SqliteStore) -> None:
    """A huge record cannot be written (SQLITE_TOOBIG, or a full disk); the simultaneous commits can."""
    huge = Transaction(partition="00", puts={"huge": Put("x" * 3_000_000)})
    small = [Transaction(partition="00", puts={f"small{n}": Put(n)}) for n in range(20)]
    with no_file_larger_than(1_000_000):
        done = await asyncio.gather(
            *(store.commit(each) for each in [*small[:10], huge, *small[10:]]), return_exceptions=True
        )
    assert [n for n, answer in enumerate(done) if isinstance(answer, BaseException)] == [10]
    assert isinstance(done[10], StoreUnavailable)
    assert len(await store.scan("small")) == 20


async def test_lane_falling_due_while_the_thread_is_busy_is_noticed() -> None:
    """The writer has looked a moment ago, and looks again before a long sleep."""
    passed = 0
    writer = Writer(None, Clock(lambda: time.time_ns() + passed, lambda: time.monotonic_ns() + passed))
    await writer.start()

    def makes_due(db: sqlite3.Connection, at: Moment) -> None:
        mailbox.queue(db, at._replace(now=at.now + 20_000), QueuedPart(part_id="p", conversation="c", body=BODY))

    def takes_long(db: sqlite3.Connection, at: Moment) -> None:
        nonlocal passed
        passed += 30_000_000

    await writer.submit(makes_due)
    lease = writer.submit(
        lambda db, at: leases.lease(db, at, "w", ["out"], None, "", 6.0, Prefetch()), topic="out", wait_seconds=60.0
    )
    await writer.submit(takes_long)
    async with asyncio.timeout(15):
        assert (await lease) is not None
    await writer.stop()


async def test_expired_data_is_removed_from_the_file(store: SqliteStore, path: Path) -> None:
    for n in range(3):
        await store.accept([Incoming(conversation="c", event_ids=(f"e{n}",), body={}, keep_seconds=10)])
        await store.commit(Transaction(partition="00", puts={f"r{n}": Put("private", ttl_seconds=10)}))
    await store.commit(Transaction(partition="00", puts={"kept": Put(1)}, deletes=["r0"]))
    await store.commit(Transaction(partition="00", spends=[Spending(name="day", amounts={"n": 1}, keep_seconds=10)]))
    await store.close()
    for seconds, left in ((20, [("kept", "1"), ("r0", None), ("r1", None), ("r2", None)]), (4000, [("kept", "1")])):
        later = SqliteStore(path)
        later.offset_seconds = seconds
        await later.open()
        await later.ping()
        await later.close()
        with closing(sqlite3.connect(path)) as file:
            assert file.execute("SELECT count(*) FROM seen").fetchone() == (0,)
            assert file.execute("SELECT count(*) FROM spent").fetchone() == (0,)
            assert file.execute("SELECT name, value FROM record").fetchall() == left


async def test_no_call_blocks_the_loop(path: Path) -> None:
    with blockbuster_ctx(["gateway", "channels"]):
        store = SqliteStore(path)
        await store.open()
        await store.accept([Incoming(conversation="c", event_ids=("a",), body=BODY)])
        lease = await store.lease("w", ["turn"], wait_seconds=1)
        assert lease is not None
        await store.renew(lease)
        await store.commit(Transaction(partition="00", lease=lease, finish="done", puts={"r": Put(1)}))
        await store.scan("")
        await store.run_timers()
        await store.acquire([])
        await store.stats()
        await store.now()
        await store.close()


async def test_each_of_several_waiting_workers_gets_a_due_lane(store: SqliteStore) -> None:
    """No other call comes meanwhile: the thread is notified of the waiting workers all the same."""
    many = [f"c{number}" for number in range(5)]
    due = await store.now() + timedelta(seconds=0.2)
    for name in many:
        await arrive(store, name)
        lease = await take(store)
        await store.commit(Transaction(partition="00", lease=lease, finish="failed", due=due))
    waiting = []
    for _ in many:
        waiting.append(asyncio.create_task(store.lease("w", ["turn"], wait_seconds=60)))
        for _ in range(3):  # so the next call comes while this call is with the thread
            await asyncio.sleep(0)
    async with asyncio.timeout(15):
        taken = await asyncio.gather(*waiting)
    assert sorted(lease.lane for lease in taken if lease is not None) == many
