"""The cost of ten thousand messages in a conversation, and of a hundred thousand conversations.

Each message is accepted, leased and processed at the cost of the first. Known conversations cost no memory of the
process, and no additional work in a turn.

Cost is counted in the work of the store, not in time: steps of SQLite's machine, commands in Redis.
"""

from __future__ import annotations

import itertools
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.store.base import Store
from gateway.store.errors import MailboxFull
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore, schema
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Incoming, Prefetch
from tests.store.redis_server import RedisServer

MANY = 10_000
SOME = 100
BATCH = 500


Work = Callable[[], Awaitable[int]]
"""The work done by a store so far."""


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Work:
    """The steps of SQLite, for connections made from now on."""
    done = 0
    real: Callable[..., sqlite3.Connection] = sqlite3.connect

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        db = real(*args, **options)
        db.set_progress_handler(step, 10)
        return db

    def step() -> None:
        nonlocal done
        done += 10

    async def work() -> int:
        return done

    monkeypatch.setattr(schema.sqlite3, "connect", connect)  # type: ignore[attr-defined]
    return work


def commands_of(server: RedisServer) -> Work:
    """The commands of all clients, without the counting."""

    async def commands() -> int:
        found = await server.command("INFO", "commandstats")
        assert isinstance(found, dict)
        return sum(stats["calls"] for name, stats in found.items() if name != "cmdstat_info")

    return commands


async def accepted(store: Store, numbers: range) -> None:
    for first in range(numbers.start, numbers.stop, BATCH):
        batch = range(first, min(first + BATCH, numbers.stop))
        await store.accept([Incoming(conversation="c", event_ids=(f"e{n}",), body={"n": n}) for n in batch])


async def dealt_with(store: Store, *, turns: int, at_once: int) -> list[Any]:
    """Return the events of these turns, in order."""
    taken = []
    for _ in range(turns):
        lease = await store.lease("w", ["turn"])
        assert lease is not None
        seqs = [(event.conversation, event.seq) for event in lease.events[:at_once]]
        taken += [event.body["n"] for event in lease.events[:at_once]]
        await store.commit(
            Transaction(partition=lease.partition, lease=lease, consume=seqs, appends=[("c", "line")], finish="done")
        )
    return taken


@pytest.mark.timeout(180)
async def test_ten_thousand_messages_in_a_file_cost_the_same_each(steps: Work, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "askfirst.db", max_waiting=2 * MANY)
    await store.open()
    await costs_the_same(store, steps)
    await store.close()


@pytest.mark.timeout(180)
async def test_ten_thousand_messages_on_redis_cost_the_same_each(server: RedisServer) -> None:
    await server.command("CONFIG", "SET", "appendfsync", "no")
    store = RedisStore(server.url, max_waiting=2 * MANY, ack_seconds=5)
    await store.open()
    await costs_the_same(store, commands_of(server))
    await store.close()


async def costs_the_same(store: Store, work: Work) -> None:
    async def cost(of: Awaitable[object]) -> int:
        before = await work()
        await of
        return await work() - before

    await accepted(store, range(SOME))  # scripts are loaded, statements are known
    taking_in = await cost(accepted(store, range(SOME, 2 * SOME)))
    await accepted(store, range(2 * SOME, MANY - SOME))
    assert await cost(accepted(store, range(MANY - SOME, MANY))) <= 1.1 * taking_in
    assert (await store.stats()).waiting == MANY

    order = await dealt_with(store, turns=1, at_once=1)
    dealing = await cost(dealt_with(store, turns=10, at_once=1))
    order += range(1, 11)
    while (await store.stats()).waiting > 2 * SOME:
        order += await dealt_with(store, turns=1, at_once=SOME)
    assert order == list(range(len(order)))
    assert await cost(dealt_with(store, turns=10, at_once=1)) <= 1.1 * dealing


IN_ONE = 1_000
"""The events of a full conversation: a tenth of the bound over all."""


@pytest.mark.timeout(180)
async def test_finding_the_full_conversations_of_a_file_is_cheap(steps: Work, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "askfirst.db", max_waiting=10 * IN_ONE)
    await store.open()
    await looks_little(store, steps, looking=100, refusing=12 * IN_ONE)
    await store.close()


@pytest.mark.timeout(180)
async def test_finding_the_full_conversations_on_redis_is_cheap(server: RedisServer) -> None:
    await server.command("CONFIG", "SET", "appendfsync", "no")
    store = RedisStore(server.url, max_waiting=10 * IN_ONE, ack_seconds=5)
    await store.open()
    await looks_little(store, commands_of(server), looking=1, refusing=40)  # a count of all partitions may be due
    await store.close()


async def looks_little(store: Store, work: Work, *, looking: int, refusing: int) -> None:
    """Check that no conversation is counted while few events wait; then only the writer's, at a bounded cost."""
    ids = itertools.count()

    async def cost(name: str) -> int:
        """Return the least cost of some messages: other work is done now and then."""
        least = sys.maxsize
        for _ in range(5):
            event = Incoming(conversation=name, event_ids=(f"m{next(ids)}",), body={}, refusable=True)
            before = await work()
            try:
                await store.accept([event])
            except MailboxFull:
                assert name == "c"
            least = min(least, await work() - before)
        return least

    await cost("first")  # scripts are loaded, statements are known
    few = await cost("other")
    await accepted(store, range(IN_ONE - 20))
    assert await cost("another") <= few + 10, "nobody is looked at"
    await accepted(store, range(IN_ONE - 20, IN_ONE))
    assert await cost("a third") <= few + looking
    full = await cost("c")
    assert full <= few + refusing
    await accepted(store, range(IN_ONE, 8 * IN_ONE))
    assert await cost("c") <= 1.1 * full + 10
    assert await cost("a fourth") <= few + looking


KNOWN = 100_000


async def known(store: Store, numbers: range) -> None:
    """Store conversations with a line in the transcript and an open index."""
    for first in range(numbers.start, numbers.stop, 10 * BATCH):
        told: dict[str, Transaction] = {}
        for number in range(first, min(first + 10 * BATCH, numbers.stop)):
            partition = store.partition(f"k{number}")
            transaction = told.setdefault(partition, Transaction(partition=partition))
            transaction.appends.append((f"transcript/k{number}", "line"))
            transaction.puts[f"open/k{number}"] = Put("index")
        for transaction in told.values():
            await store.commit(transaction)


async def one_turn(store: Store, number: int) -> None:
    prefetch = Prefetch(records=("open",), log="transcript", last=60)
    await store.accept([Incoming(conversation=f"k{number}", event_ids=(f"k{number}",), body={})])
    lease = await store.lease("w", ["turn"], prefetch=prefetch)
    assert lease is not None
    assert (lease.lane, lease.lines) == (f"k{number}", ('"line"',))
    done = Transaction(partition=lease.partition, lease=lease, finish="done")
    done.consume = [(event.conversation, event.seq) for event in lease.events]
    await store.commit(done)
    assert await store.lease("w", ["turn"]) is None


async def stays_small(store: Store, work: Work) -> None:
    """Check the memory of the process and the cost of a turn, with many known and silent conversations."""
    await known(store, range(SOME))

    async def cost(numbers: range) -> int:
        """Return the work of the cheapest of these turns: some include other due work."""
        least = sys.maxsize
        for number in numbers:
            before = await work()
            await one_turn(store, number)
            least = min(least, await work() - before)
        return least

    few_known = await cost(range(10))
    few = sys.getallocatedblocks()
    await known(store, range(SOME, KNOWN))
    assert await cost(range(KNOWN - 10, KNOWN)) <= 1.1 * few_known
    assert sys.getallocatedblocks() - few < KNOWN / 10


@pytest.mark.nightly
@pytest.mark.timeout(180)
async def test_hundred_thousand_conversations_in_a_file_add_no_cost(steps: Work, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "askfirst.db")
    await store.open()
    await stays_small(store, steps)
    await store.close()


@pytest.mark.nightly
@pytest.mark.timeout(180)
async def test_hundred_thousand_conversations_on_redis_add_no_cost(server: RedisServer) -> None:
    await server.command("CONFIG", "SET", "appendfsync", "no")
    store = RedisStore(server.url, ack_seconds=5)
    await store.open()
    await stays_small(store, commands_of(server))
    await store.close()
