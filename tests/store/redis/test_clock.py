"""Redis's clock is set back, or a replica with a slow clock takes over: no stamp goes back, and time goes on.

The stored clock is then ahead of the server's. The tests advance the stored clock, not the machine's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from gateway.store.clock_steps import elapsed_ns
from gateway.store.redis import RedisStore
from gateway.store.redis.keys import PARTITIONS, Keys
from gateway.store.transaction import Put, Timer, Transaction
from gateway.store.types import Cell, Incoming, Key
from tests.store.redis_server import RedisServer

HOUR = timedelta(hours=1)
KEYS = Keys("askfirst")
RECORD, LOG = Key("03", "r"), Key("03", "log")


@pytest.fixture
async def ahead(server: RedisServer) -> datetime:
    """The clock in each partition, an hour ahead of the server's."""
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
    """The store of a process without earlier stamps."""
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


async def test_time_goes_on_after_the_servers_clock_was_set_back(store: RedisStore, ahead: datetime) -> None:
    """Otherwise an open question would last an hour more, and a retried reply would wait as long."""
    began, _ = await store.commit(Transaction(partition="03", puts={"r": Put(1, ttl_seconds=0.2)}))
    later = Incoming(conversation="c", event_ids=(), body={})
    timer = Timer(timer_id="t", due=began + timedelta(seconds=0.2), incoming=later)
    await store.commit(Transaction(partition="03", timers=[timer]))
    cell = Cell(name="c", burst=1, period_seconds=0.2)
    assert await store.acquire([cell]) == 0
    waits = [await store.acquire([cell])]
    while (await store.get([RECORD]))[RECORD].value is not None:
        await asyncio.sleep(0.01)
    while (await store.stats()).waiting == 0:
        await store.run_timers()
        await asyncio.sleep(0.01)
    while waits[-1] > 0:
        waits.append(await store.acquire([cell]))
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
    """A killed worker's lease lasts until the clock has caught up: the lease was counted on the old clock."""
    await store.accept([Incoming(conversation="c", event_ids=(), body={})])
    lease = await store.lease("killed", ["turn"], lease_seconds=3600)  # of a few seconds, on a clock ahead by an hour
    assert lease is not None
    assert await store.lease("w", ["turn"]) is None
    await store.renew(lease, lease_seconds=0.1)
    taken: Any = await store.lease("w", ["turn"], wait_seconds=15)
    assert taken is not None


# ── set forward ──

QUARTER = timedelta(minutes=15)
TWENTY_MINUTES = 1200


class Elapsed:
    """The clock for the comparison with the server's clock."""

    def __init__(self) -> None:
        self.back_seconds = 0

    def __call__(self) -> int:
        return elapsed_ns() - self.back_seconds * 1_000_000_000


def set_forward(elapsed: Elapsed, *stores: RedisStore) -> None:
    """Set the server's clock forward for these processes; the elapsed time goes back instead of the machine's clock."""
    elapsed.back_seconds += TWENTY_MINUTES
    for store in stores:
        store.offset_seconds += TWENTY_MINUTES


async def opened_with(server: RedisServer, elapsed: Elapsed) -> RedisStore:
    store = RedisStore(server.url, ack_seconds=15, elapsed_ns=elapsed)
    await store.open()
    return store


async def opened_later(server: RedisServer) -> RedisStore:
    """Open the store in a new process without a clock before the step."""
    store = RedisStore(server.url, ack_seconds=15)
    store.offset_seconds = TWENTY_MINUTES
    await store.open()
    return store


async def due_in(store: RedisStore, span: timedelta) -> None:
    later = Incoming(conversation="c", event_ids=(), body={})
    timer = Timer(timer_id="t", due=await store.now() + span, incoming=later)
    await store.commit(Transaction(partition=store.partition("c"), timers=[timer]))


async def noticed(server: RedisServer, store: RedisStore) -> None:
    """Wait until a later process would learn of the step."""
    while not await server.command("EXISTS", KEYS.ahead):
        await store.run_timers()
        await asyncio.sleep(0.01)


async def test_a_server_that_is_set_forward_makes_no_deadline_shorter(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Finding 32: twenty minutes forward, and a question with "15 minutes" had expired."""
    elapsed = Elapsed()
    store, other = await opened_with(server, elapsed), await opened_with(server, elapsed)
    began = await store.now()
    await due_in(store, QUARTER)
    set_forward(elapsed, store, other)
    stamps = []
    for number in range(20):  # the calls before any look at the clock, and after
        each = (store, other)[number % 2]
        stamps.append((await each.commit(Transaction(partition="03", appends=[("log", number)]))).at)
        if number >= 10:
            await each.run_timers()
            stamps.append(await each.now())
    assert stamps[-1] - began < timedelta(seconds=60)
    assert (await store.stats()).waiting == 0
    store.offset_seconds += QUARTER.total_seconds()
    await store.run_timers()
    assert (await store.stats()).waiting == 1, "in its own time it is due"
    warned = [record for record in caplog.records if "set forward by" in record.message]
    assert {record.levelname for record in warned} == {"WARNING"}
    assert len(warned) == 2, "once a process"
    await other.close()
    await store.close()


async def test_a_timer_does_not_fire_before_anybody_has_looked(server: RedisServer) -> None:
    """The first script after the step asks for the due timers."""
    elapsed = Elapsed()
    store = await opened_with(server, elapsed)
    await due_in(store, QUARTER)
    await store.run_timers()
    set_forward(elapsed, store)
    await store.run_timers()  # within the second for which the clock is not looked at again
    assert (await store.stats()).waiting == 0
    await store.close()


async def test_a_process_that_starts_later_goes_by_the_same_time(server: RedisServer) -> None:
    elapsed = Elapsed()
    store = await opened_with(server, elapsed)
    await due_in(store, QUARTER)
    set_forward(elapsed, store)
    before = await store.now()
    await noticed(server, store)
    new = await opened_later(server)
    await new.run_timers()
    assert await new.now() - before < timedelta(seconds=60)
    assert (await store.stats()).waiting == 0
    await new.close()
    await store.close()


async def test_servers_clock_counts_after_the_last_process_has_gone(server: RedisServer) -> None:
    elapsed = Elapsed()
    store = await opened_with(server, elapsed)
    set_forward(elapsed, store)
    before = await store.now()
    await noticed(server, store)
    await store.close()
    assert 0 < cast("int", await server.command("PTTL", KEYS.ahead)) <= 60_000
    await server.command("DEL", KEYS.ahead)  # as a minute without any process does
    new = await opened_later(server)
    assert await new.now() - before > QUARTER
    await new.close()
