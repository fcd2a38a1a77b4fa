"""Calls that travel together: many in one round trip, each standing alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.store.errors import Conflict, StoreUnavailable
from gateway.store.redis import RedisStore
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Incoming, Key
from tests.store.redis_server import RedisServer


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStore]:
    store = RedisStore(server.url, ack_seconds=5)
    await store.open()
    yield store
    await store.close()


def write(name: str, store: RedisStore, **more: object) -> Transaction:
    return Transaction(partition=store.partition(name), puts={name: Put(name)}, **more)  # type: ignore[arg-type]


async def round_trips(server: RedisServer) -> int:
    stats = await server.command("INFO", "stats")
    assert isinstance(stats, dict)
    return int(stats["total_reads_processed"])


async def test_commits_at_the_same_time_share_round_trips(store: RedisStore, server: RedisServer) -> None:
    await store.commit(write("first", store))
    before = await round_trips(server)
    await asyncio.gather(*(store.commit(write(f"r{number}", store)) for number in range(200)))
    assert await round_trips(server) - before < 50
    assert len(await store.scan("r")) == 200


async def test_calls_of_one_pipeline_fail_alone(store: RedisStore, server: RedisServer) -> None:
    await store.commit(write("taken", store))
    await store.accept([Incoming(conversation="c", event_ids=(), body={}, decides=True)])
    [pointed] = await store.pending_decisions("c")
    await server.command("CONFIG", "SET", "maxmemory", 1)  # additions alone are refused
    read, conflicting, adding, deciding = await asyncio.gather(
        store.get([Key(store.partition("taken"), "taken")]),
        store.commit(write("taken", store, expect={"taken": 7}, sent=["nothing"])),
        store.commit(write("added", store)),
        store.commit(Transaction(partition=store.partition("c"), consume=[("c", pointed.seq)])),
        return_exceptions=True,
    )
    await server.command("CONFIG", "SET", "maxmemory", 0)
    assert not isinstance(read, BaseException) and not isinstance(deciding, BaseException)
    assert isinstance(conflicting, Conflict)
    assert isinstance(adding, StoreUnavailable) and "memory is full" in str(adding)
    assert await store.pending_decisions("c") == []


async def test_scripts_that_were_flushed_are_loaded_for_all(store: RedisStore, server: RedisServer) -> None:
    await store.commit(write("first", store))
    await server.command("SCRIPT", "FLUSH")
    await asyncio.gather(*(store.commit(write(f"r{number}", store)) for number in range(20)), store.stats())
    assert len(await store.scan("r")) == 20


async def test_cancelled_call_leaves_the_others_their_answers(store: RedisStore) -> None:
    asked = [asyncio.create_task(store.commit(write(f"r{number}", store))) for number in range(50)]
    await asyncio.sleep(0)
    for task in asked[::2]:
        task.cancel()
    done = await asyncio.gather(*asked, return_exceptions=True)
    assert not any(isinstance(result, BaseException) for result in done[1::2])
    await store.ping()


async def test_a_server_that_dies_under_way_answers_everybody(store: RedisStore, server: RedisServer) -> None:
    server.freeze()
    asked = [asyncio.create_task(store.commit(write(f"r{number}", store))) for number in range(400)]
    await asyncio.sleep(0.01)
    await server.kill()
    done = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(result, StoreUnavailable) for result in done)
    await server.start()
    await store.commit(write("after", store))
