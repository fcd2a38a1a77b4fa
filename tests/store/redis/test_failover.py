"""A replica takes over: the store follows by itself, and all data of the replica is there."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.store.errors import StoreUnavailable
from gateway.store.redis import RedisStore
from gateway.store.redis.connection import RedisTimings
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Incoming, Key
from tests.store.redis.test_server import looked
from tests.store.redis_server import RedisServer
from tests.store.replicas import How, fail_over, follow, following, has_all_of
from tests.store.wire import Wire

RECORD = Key("00", "r")


@pytest.fixture
async def replica(server: RedisServer, tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with following(server, tmp_path / "replica") as replica:
        yield replica


@pytest.fixture
async def wire(server: RedisServer, replica: RedisServer) -> AsyncIterator[Wire]:
    """A wire like a name or address moving with the primary."""
    async with Wire(server.url) as wire:
        yield wire


def event(number: int) -> Incoming:
    return Incoming(conversation="c", event_ids=(f"e{number}",), body={"n": number})


async def accepted(store: RedisStore, number: int) -> bool:
    """Return whether the event is new, after retries."""
    while True:
        try:
            [new] = await store.accept([event(number)])
            return new
        except StoreUnavailable:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["demoted", "killed", "frozen"])
async def test_acknowledged_data_is_there_and_the_store_goes_on(
    server: RedisServer,
    replica: RedisServer,
    wire: Wire,
    how: How,
    caplog: pytest.LogCaptureFixture,
) -> None:
    timings = RedisTimings(work_seconds=1.0) if how == "frozen" else RedisTimings()
    store = RedisStore(wire.url, ack_seconds=1, timings=timings)
    await store.open()
    await looked(store, server, 1)
    assert await accepted(store, 0)
    lease = await store.lease("w", ["turn"], lease_seconds=600)
    assert lease is not None
    await store.commit(Transaction(partition="00", puts={"r": Put("before")}))
    await asyncio.gather(*(store.ping() for _ in range(5)), *(store.get([RECORD]) for _ in range(5)))  # connections
    await has_all_of(replica, server)
    await fail_over(server, replica, wire, how)

    began = time.monotonic()
    assert not await accepted(store, 0), "it was acknowledged, and is known there"
    assert time.monotonic() - began < 15, "seconds, and what a busy machine takes"
    new = [await accepted(store, number) for number in range(1, 20)]
    waiting = asyncio.create_task(store.lease("w", ["out"], wait_seconds=0.1))
    seen = RedisStore(replica.url, ack_seconds=15)
    await seen.open()
    assert (await seen.stats()).waiting == 20
    assert True in new, "though one may be stored, and its answer lost"
    await looked(store, replica, 2)
    await asyncio.wait([waiting])
    await store.renew(lease, lease_seconds=600)  # the holder still holds the lease
    await store.commit(Transaction(partition="00", expect={"r": 1}, puts={"r": Put("after")}))
    assert (await seen.get([RECORD]))[RECORD].value == "after"
    assert [text for name, _, text in caplog.record_tuples if name == "askfirst.store"] == []
    for each in (store, seen):
        await each.close()


async def test_data_missing_on_the_replica_is_lost_and_told(
    server: RedisServer, replica: RedisServer, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    """Replication does not hold up an answer. Lost data is requested again, as after an old backup (docs/deploy.md)."""
    store = RedisStore(wire.url, ack_seconds=15)
    await store.open()
    assert await accepted(store, 0)
    await has_all_of(replica, server)
    await replica.command("REPLICAOF", "NO", "ONE")  # the old primary does not know yet
    assert await accepted(store, 1)
    await looked(store, server, 2)
    wire.leads_to = replica.url
    await follow(server, replica)
    assert not await accepted(store, 0)
    with caplog.at_level(logging.ERROR, logger="askfirst.store"):
        await looked(store, replica, 2)
    assert "Redis has lost what it had stored" in caplog.text
    assert await accepted(store, 1), "who sent it may send it again"
    await store.close()


async def test_primary_without_its_minimum_of_replicas_takes_no_writes(
    server: RedisServer, replica: RedisServer
) -> None:
    """With min-replicas-to-write, a cut-off primary acknowledges no write that would be lost."""
    store = RedisStore(server.url, ack_seconds=15)
    await store.open()
    await server.command("CONFIG", "SET", "min-replicas-to-write", 1)
    assert await accepted(store, 0)
    await replica.command("REPLICAOF", "NO", "ONE")
    with pytest.raises(StoreUnavailable, match=r"too few replicas follow it.*min-replicas-to-write"):
        while True:  # until it has noticed
            await store.accept([event(1)])
    with pytest.raises(StoreUnavailable, match="too few replicas"):
        await store.commit(Transaction(partition="00", puts={"r": Put(1)}))
    with pytest.raises(StoreUnavailable, match="too few replicas"):
        await store.ping()
    await follow(replica, server)
    await accepted(store, 2)
    await store.ping()
    await store.close()
