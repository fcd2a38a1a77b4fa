"""Redis's clock is set back, or a replica takes over whose clock is behind: no stamp goes back, and time goes on.

What is stored then is ahead of the server's clock. The tests put it there: nobody sets this machine's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from gateway.store.base import Cell, Incoming, Key, Put, Timer, Transaction
from gateway.store.redis import RedisStore
from gateway.store.redis.keys import PARTITIONS, Keys
from tests.store.redis_server import RedisServer

HOUR = timedelta(hours=1)
KEYS = Keys("askfirst")
RECORD, LOG = Key("03", "r"), Key("03", "log")


@pytest.fixture
async def ahead(server: RedisServer) -> datetime:
    """The clock in each partition, which is by an hour ahead of the server's."""
    seconds, micros = cast("tuple[bytes, bytes]", await server.command("TIME"))
    clock = int(seconds) * 1_000_000 + int(micros) + 3_600_000_000
    for base in (*map(KEYS.base, PARTITIONS), KEYS.rates):
        await server.command("SET", f"{base}:clock", clock)
    return datetime.fromtimestamp(clock / 1e6, UTC)


async def opened(server: RedisServer) -> RedisStore:
    store = RedisStore(server.url, ack_seconds=15)
    await store.open()
    return store


@pytest.fixture
async def store(server: RedisServer, ahead: datetime) -> AsyncIterator[RedisStore]:
    """Of a process that has seen nothing yet."""
    store = await opened(server)
    yield store
    await store.close()


async def test_no_stamp_goes_back(store: RedisStore, server: RedisServer, ahead: datetime) -> None:
    other = await opened(server)
    stamps = []
    for number in range(10):
        each = (store, other)[number % 2]
        stamps.append((await each.commit(Transaction(partition="03", appends=[("log", number)]))).at)
        assert await each.now() >= stamps[-1]
    assert [ahead, *stamps] == sorted([ahead, *stamps])
    entries = await store.read(LOG)
    assert [entry.value for entry in entries] == list(range(10))
    assert [entry.stamp for entry in entries] == sorted(entry.stamp for entry in entries)
    for number in range(6):
        await (store, other)[number % 2].accept([Incoming(conversation="c", event_ids=(), body={"n": number})])
    lease = await store.lease("w", ["turn"])
    assert lease is not None
    assert [event.body["n"] for event in lease.events] == list(range(6))
    assert [event.seq for event in lease.events] == sorted({event.seq for event in lease.events})
    await other.close()


async def test_time_goes_on_and_does_not_wait_for_the_server_to_catch_up(store: RedisStore, ahead: datetime) -> None:
    """Or an open question would be one for an hour more, and so long would a reply wait that is tried again."""
    began, _ = await store.commit(Transaction(partition="03", puts={"r": Put(1, ttl_seconds=0.2)}))
    later = Incoming(conversation="c", event_ids=(), body={})
    timer = Timer(timer_id="t", due=began + timedelta(seconds=0.2), incoming=later)
    await store.commit(Transaction(partition="03", timers=[timer]))
    cell = Cell(name="c", burst=1, period_seconds=0.2)
    assert await store.take([cell]) == 0
    waits = [await store.take([cell])]
    while (await store.get([RECORD]))[RECORD].value is not None:
        await asyncio.sleep(0.01)
    while (await store.stats()).waiting == 0:
        await store.tick()
        await asyncio.sleep(0.01)
    while waits[-1] > 0:
        waits.append(await store.take([cell]))
    assert 0 <= (await store.now() - began).total_seconds() < 60, "by its own pace, and not by an hour"


async def test_another_process_goes_on_from_there(store: RedisStore, server: RedisServer, ahead: datetime) -> None:
    other = await opened(server)
    stamp, _ = await store.commit(Transaction(partition="03", appends=[("log", 1)]))
    while await store.now() < stamp + timedelta(seconds=0.1):
        await asyncio.sleep(0.01)
    seen, _ = await store.commit(Transaction(partition="03", appends=[("log", 2)]))
    assert (await other.commit(Transaction(partition="03", appends=[("log", 3)]))).at >= seen
    assert (await other.commit(Transaction(partition="07"))).at >= seen, "and takes it to where nobody has been"
    await other.close()


async def test_a_lease_is_as_long_as_ever_from_when_it_is_renewed(store: RedisStore, server: RedisServer) -> None:
    """Who was killed holds his until the clock has caught up: it was counted on the old one."""
    await store.accept([Incoming(conversation="c", event_ids=(), body={})])
    lease = await store.lease("killed", ["turn"], lease_seconds=3600)  # of a few seconds, on a clock ahead by an hour
    assert lease is not None
    assert await store.lease("w", ["turn"]) is None
    await store.renew(lease, lease_seconds=0.1)
    taken: Any = await store.lease("w", ["turn"], wait_seconds=15)
    assert taken is not None
