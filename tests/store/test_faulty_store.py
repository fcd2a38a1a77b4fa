"""The fault proxy of a store: a call fails, loses the answer or stops by plan, and all others pass."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from gateway.store.base import Store
from gateway.store.errors import StoreUnavailable
from gateway.store.sqlite import SqliteStore
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key
from gateway.testing import FaultyStore
from gateway.testing.doubles import LostCall

KEY = Key("00", "r")
WRITES = Transaction(partition="00", puts={"r": Put(1)})


@pytest.fixture
async def real() -> AsyncIterator[Store]:
    store = SqliteStore(":memory:")
    await store.open()
    yield store
    await store.close()


async def version(store: Store) -> int:
    return (await store.get([KEY]))[KEY].version


async def test_calls_are_counted_and_forwarded(real: Store) -> None:
    proxy = FaultyStore(real)
    store = cast("Store", proxy)
    await store.commit(WRITES)
    assert await version(store) == await version(real) == 1
    assert proxy.calls == {"commit": 1, "get": 1}
    proxy.offset_seconds = 5.0
    assert (real.offset_seconds, proxy.shared, proxy.clock_ahead_seconds) == (5.0, False, 0.0)
    assert proxy.partition("c") == "00"


async def test_planned_error_is_raised_once_without_a_write(real: Store) -> None:
    proxy = FaultyStore(real)
    proxy.errors["commit"] = [StoreUnavailable("away")]
    with pytest.raises(StoreUnavailable, match="away"):
        await cast("Store", proxy).commit(WRITES)
    assert await version(real) == 0
    await cast("Store", proxy).commit(WRITES)
    assert await version(real) == 1


async def test_a_lost_answer_is_of_a_call_that_took_effect(real: Store) -> None:
    proxy = FaultyStore(real)
    proxy.lost_answers["commit"] = 1
    with pytest.raises(StoreUnavailable):
        await cast("Store", proxy).commit(WRITES)
    assert await version(real) == 1


@pytest.mark.parametrize("answer_lost", [False, True])
@pytest.mark.parametrize("recovers", [False, True])
async def test_a_process_dies_in_its_last_call(real: Store, answer_lost: bool, recovers: bool) -> None:
    proxy = FaultyStore(real)
    store = cast("Store", proxy)
    proxy.calls_left, proxy.last_answer_lost, proxy.recovers = 2, answer_lost, recovers
    assert await version(store) == 0
    with pytest.raises(LostCall):
        await store.commit(WRITES)
    assert await version(real) == answer_lost
    assert proxy.is_cut is not recovers
    if recovers:
        await store.commit(WRITES)
    else:
        with pytest.raises(LostCall):
            await store.commit(WRITES)


async def test_a_process_stops_until_it_may_go_on(real: Store) -> None:
    proxy = FaultyStore(real)
    seen: list[str] = []
    proxy.hooks = {"commit": lambda: seen.append("asked"), "commit answered": lambda: seen.append("answered")}
    proxy.pause_after = 0
    committing = asyncio.create_task(cast("Store", proxy).commit(WRITES))
    await proxy.paused.wait()
    assert (seen, await version(real)) == (["asked"], 0)
    proxy.resume.set()
    await committing
    assert (seen, await version(real)) == (["asked", "answered"], 1)
