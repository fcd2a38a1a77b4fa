"""A killed process loses no acknowledged write, and leaves no half-done work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.store.errors import StoreRefused
from gateway.store.sqlite import SqliteStore
from gateway.store.transaction import Transaction
from gateway.store.types import Key
from tests.children import children
from tests.store import worker as script


class Worker:
    """A child process and the received messages."""

    def __init__(self, path: Path | str, what: str, first: int) -> None:
        self.said: list[dict[str, Any]] = []
        self._pipe, theirs = children.Pipe(duplex=False)
        self.process = children.Process(target=script.run, args=(theirs, str(path), what, first), daemon=True)
        self.process.start()
        theirs.close()

    async def until(self, word: str, times: int = 1) -> Any:
        """Listen for this many more messages with this word."""
        while times:
            self.said.append(await asyncio.to_thread(self._pipe.recv))
            times -= word in self.said[-1]
        return self.said[-1][word]

    async def kill(self) -> None:
        """SIGKILL; earlier messages are received."""
        self.process.kill()
        await asyncio.to_thread(self.process.join)
        with contextlib.suppress(EOFError, OSError):  # the end, perhaps within a word
            while True:
                self.said.append(self._pipe.recv())

    def all(self, word: str) -> list[Any]:
        return [line[word] for line in self.said if word in line]


@asynccontextmanager
async def working(path: Path | str, what: str, first: int = 0) -> AsyncIterator[Worker]:
    worker = await asyncio.to_thread(Worker, path, what, first)
    try:
        yield worker
    finally:
        await worker.kill()


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "askfirst.db"


async def dealt_with(store: SqliteStore) -> list[int]:
    """Return the events written by the commits; each lane in the order of the events."""
    done: list[int] = []
    for lane in range(script.LANES):
        lines: list[Any] = [entry.value for entry in await store.read(Key(store.partition(""), f"c{lane}"))]
        seqs = [line["seq"] for line in lines]
        assert seqs == sorted(set(seqs))
        done += [line["n"] for line in lines]
    return done


async def still_waiting(store: SqliteStore) -> list[int]:
    """Return and process the remaining events."""
    numbers: list[int] = []
    while lease := await store.lease("test", ["turn"], lease_seconds=60):
        numbers += [int(str(event.body["n"])) for event in lease.events]
        consume = [(event.conversation, event.seq) for event in lease.events]
        await store.commit(Transaction(partition=lease.partition, lease=lease, consume=consume, finish="done"))
    return numbers


async def test_acknowledged_events_are_there_after_a_kill(path: Path) -> None:
    async with working(path, "accept") as worker:
        await worker.until("accepted", times=200)
        await worker.kill()
    async with opened(path) as store:
        found = await still_waiting(store)
    assert set(found) >= set(worker.all("accepted"))
    assert len(found) == len(set(found))


@pytest.mark.parametrize("word", ["leased", "begun", "committed"])
async def test_worker_killed_at_any_point_loses_and_repeats_no_event(path: Path, word: str) -> None:
    async with working(path, "accept") as worker:
        await worker.until("accepted", times=300)
        await worker.kill()
    accepted = set(worker.all("accepted"))
    async with working(path, "work") as worker:
        await worker.until(word)
        await worker.kill()
    async with opened(path) as store:
        done = await dealt_with(store)
        committed = {number for numbers in worker.all("committed") for number in numbers}
        waiting = await still_waiting(store)
    assert set(done) >= committed, "an acknowledged commit is there"
    assert len(done) == len(set(done)), "nothing was done twice"
    assert not set(done) & set(waiting), "a commit writes the log and takes the event, or neither"
    assert set(done) | set(waiting) >= accepted


async def test_lease_of_a_dead_process_is_taken_over_at_once(path: Path) -> None:
    async with opened(path) as store:
        await store.commit(Transaction(partition="00", actions=["act"]))
    async with working(path, "hold") as worker:
        await worker.until("holding")
        await worker.kill()
    async with opened(path) as store:
        lease = await store.lease("next", ["action"])  # it was held for an hour
        assert lease is not None
        assert (lease.lane, lease.died, lease.tries) == ("act", True, 1)


async def test_second_process_is_refused_without_disturbing_the_first(path: Path) -> None:
    async with working(path, "accept") as worker:
        await worker.until("accepted")
        with pytest.raises(StoreRefused, match=f"in use by process {worker.process.pid}"):
            await SqliteStore(path).open()
        await worker.until("accepted", times=50)
        await worker.kill()
    async with opened(path) as store:
        assert set(await still_waiting(store)) >= set(worker.all("accepted"))


async def test_refused_process_is_told_the_owner_of_the_file(path: Path) -> None:
    async with opened(path), working(path, "hold") as worker:
        assert f"in use by process {os.getpid()}" in await worker.until("refused")


@pytest.mark.parametrize("seed", range(5))
async def test_random_kills_leave_every_lane_complete_and_in_order(path: Path, seed: int) -> None:
    """Each process accepts and works on the same file until it is killed, three times over."""
    chance = random.Random(seed)
    accepted: set[int] = set()
    committed: set[int] = set()
    for attempt in range(3):
        async with working(path, "serve", attempt * 100_000) as worker:
            await worker.until(chance.choice(["accepted", "leased", "begun", "committed"]), chance.randint(1, 60))
            await worker.kill()
        accepted |= set(worker.all("accepted"))
        committed |= {number for numbers in worker.all("committed") for number in numbers}
    async with opened(path) as store:
        done = await dealt_with(store)
        waiting = await still_waiting(store)
    assert set(done) >= committed, "no acknowledged commit was lost"
    assert set(done) | set(waiting) >= accepted, "no acknowledged event was lost"
    assert len([*done, *waiting]) == len({*done, *waiting}), "nothing was done twice, or done and left"
