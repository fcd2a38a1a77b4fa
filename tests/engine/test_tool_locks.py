"""The lock of a tool among the processes of one store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from typing import Any

import pytest

from gateway.engine.tool_locks import ToolLocks
from gateway.store.redis import RedisStore
from gateway.tools import NothingDone, ToolContext, tool

pytestmark = pytest.mark.both_stores

NAME = "invoice:INV-1"


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[RedisStore]:
    store = RedisStore(redis_url, prefix=prefix, ack_seconds=5)
    await store.open()
    yield store
    await store.close()


def process(store: RedisStore, name: str, lease_seconds: float = 6.0) -> ToolLocks:
    return ToolLocks(store, name, lambda: lease_seconds)


async def test_calls_of_two_processes_exclude_each_other(store: RedisStore) -> None:
    inside, most = 0, 0

    @tool(lock="invoice:{invoice_id}")
    async def delete(invoice_id: str) -> None:
        """Delete."""
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1

    async def call(locks: ToolLocks) -> None:
        async with locks.hold(NAME):  # as the other process holds it
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    ctx = ToolContext(person="app:-:ana", hold=process(store, "one").hold)
    other = process(store, "two")
    await asyncio.gather(
        *(delete.run({"invoice_id": "INV-1"}, ctx) for _ in range(4)), *(call(other) for _ in range(4))
    )
    assert most == 1


async def test_wait_for_the_lock_counts_in_the_timeout(store: RedisStore) -> None:
    done = []

    @tool(lock="invoice:{invoice_id}")
    async def delete(invoice_id: str) -> None:
        """Delete."""
        done.append(invoice_id)

    ctx = ToolContext(person="app:-:ana", hold=process(store, "two").hold)
    async with process(store, "one").hold(NAME):
        with pytest.raises(NothingDone, match="another call holds 'invoice:INV-1'"):
            await delete.run({"invoice_id": "INV-1"}, ctx, timeout_seconds=0.1)
        assert done == []
        await delete.run({"invoice_id": "INV-2"}, ctx, timeout_seconds=5)
    await delete.run({"invoice_id": "INV-1"}, ctx, timeout_seconds=5)
    assert done == ["INV-2", "INV-1"]


async def test_the_lock_of_a_dead_process_is_free_after_its_lease(store: RedisStore) -> None:
    dead = process(store, "dead", lease_seconds=600).hold(NAME)
    await dead.__aenter__()
    waiting = asyncio.create_task(process(store, "two").hold(NAME).__aenter__())
    done, _ = await asyncio.wait([waiting], timeout=0.1)
    assert not done
    store.offset_seconds = 601
    async with asyncio.timeout(60):
        held = await waiting
    await held.release()
    await dead.__aexit__(None, None, None)


async def test_a_lock_that_is_left_to_a_thread_is_held_until_it_ends(store: RedisStore) -> None:
    call: Future[Any] = Future()
    async with process(store, "one", lease_seconds=600).hold(NAME) as held:
        held.leave_to(call)
    waiting = asyncio.create_task(process(store, "two").hold(NAME).__aenter__())
    done, _ = await asyncio.wait([waiting], timeout=0.1)
    assert not done
    call.set_result(None)
    async with asyncio.timeout(60):
        await (await waiting).release()


async def test_lock_without_the_store_is_refused(store: RedisStore) -> None:
    await store.close()
    with pytest.raises(NothingDone, match="the store did not answer"):
        await process(store, "one").hold(NAME).__aenter__()
