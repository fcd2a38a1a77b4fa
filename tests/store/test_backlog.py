"""Ten thousand messages wait in one conversation: each is taken in, handed out and dealt with at the cost of the first.

Cost is counted in what the store does for it, not in time: steps of SQLite's machine, commands in Redis.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.store.base import Incoming, Store, Transaction
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore, schema
from tests.store.redis_server import RedisServer

MANY = 10_000
SOME = 100
BATCH = 500


Work = Callable[[], Awaitable[int]]
"""How much a store has done so far."""


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Work:
    """Of SQLite, for connections made from now on."""
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


async def accepted(store: Store, numbers: range) -> None:
    for first in range(numbers.start, numbers.stop, BATCH):
        batch = range(first, min(first + BATCH, numbers.stop))
        await store.accept([Incoming(conversation="c", event_ids=(f"e{n}",), body={"n": n}) for n in batch])


async def dealt_with(store: Store, *, turns: int, at_once: int) -> list[Any]:
    """What so many turns take, in order."""
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
async def test_in_a_file_each_of_ten_thousand_costs_what_the_first_did(steps: Work, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "askfirst.db", max_waiting=2 * MANY)
    await store.open()
    await costs_the_same(store, steps)
    await store.close()


@pytest.mark.timeout(180)
async def test_on_redis_each_of_ten_thousand_costs_what_the_first_did(server: RedisServer) -> None:
    async def commands() -> int:
        found = await server.command("INFO", "commandstats")
        assert isinstance(found, dict)
        return sum(stats["calls"] for name, stats in found.items() if name != "cmdstat_info")

    await server.command("CONFIG", "SET", "appendfsync", "no")
    store = RedisStore(server.url, max_waiting=2 * MANY, ack_seconds=5)
    await store.open()
    await costs_the_same(store, commands)
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
