"""Processes and the server are killed: no acknowledged write is lost, and none is done twice."""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.store.errors import StoreUnavailable
from gateway.store.redis import RedisStore
from gateway.store.transaction import Transaction
from gateway.store.types import Key
from tests.store import worker as script
from tests.store.redis_server import RedisServer
from tests.store.test_kill import Worker, working


async def opened(server: RedisServer) -> RedisStore:
    store = RedisStore(server.url, ack_seconds=5)
    await store.open()
    return store


async def dealt_with(store: RedisStore) -> list[int]:
    """Return the events written by the commits; each lane in the order of the events."""
    done: list[int] = []
    for lane in (f"c{number}" for number in range(script.LANES)):
        lines: list[Any] = [entry.value for entry in await store.read(Key(store.partition(lane), lane))]
        seqs = [line["seq"] for line in lines]
        assert seqs == sorted(set(seqs))
        done += [line["n"] for line in lines]
    return done


async def still_waiting(store: RedisStore) -> list[int]:
    """Return and process the remaining events, after the leases of dead workers lapsed."""
    numbers: list[int] = []
    while lease := await store.lease("test", ["turn"], lease_seconds=60, wait_seconds=1.5):
        numbers += [int(str(event.body["n"])) for event in lease.events]
        consume = [(event.conversation, event.seq) for event in lease.events]
        await store.commit(Transaction(partition=lease.partition, lease=lease, consume=consume, finish="done"))
    return numbers


def check(done: list[int], waiting: list[int], *workers: Worker) -> None:
    accepted = {number for worker in workers for number in worker.all("accepted")}
    committed = {number for worker in workers for numbers in worker.all("committed") for number in numbers}
    assert set(done) >= committed, "no acknowledged commit was lost"
    assert {*done, *waiting} >= accepted, "no acknowledged event was lost"
    assert len([*done, *waiting]) == len({*done, *waiting}), "nothing was done twice, or done and left"


async def test_killed_redis_loses_no_acknowledged_event(server: RedisServer) -> None:
    async with working(server.url, "share") as worker:
        await worker.until("committed", times=40)
        await server.kill()
        await worker.kill()
    await server.start()
    store = await opened(server)
    waiting = await still_waiting(store)
    check(await dealt_with(store), waiting, worker)
    await store.close()


async def test_worker_takes_over_from_a_killed_one_on_the_same_server(server: RedisServer) -> None:
    async with working(server.url, "share") as first, working(server.url, "share", 100_000) as second:
        await asyncio.gather(first.until("committed", times=20), second.until("committed", times=20))
        await first.until("leased")
        await first.kill()
        held = first.all("leased")[-1]
        while await second.until("committed") and held not in second.all("leased")[-20:]:
            pass
        await second.until("committed", times=20)
        await second.kill()
    store = await opened(server)
    waiting = await still_waiting(store)
    check(await dealt_with(store), waiting, first, second)
    await store.close()


async def test_a_store_outlives_its_server(server: RedisServer) -> None:
    store = await opened(server)
    waiting = asyncio.create_task(store.lease("w", ["out"], wait_seconds=0.2))
    await server.kill()
    for call in (store.ping(), store.now(), store.commit(Transaction(partition="00")), waiting):
        try:
            await asyncio.wait_for(call, 60)
            raise AssertionError("nobody answered")
        except StoreUnavailable:
            pass
    await server.start()
    await store.ping()
    assert await store.lease("w", ["turn"]) is None
    await store.close()
