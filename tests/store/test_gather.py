"""Events shortly after several stored events go together; a single event does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.store.redis.connection import RedisTimings
from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite.writer import SqliteTimings
from gateway.testing.store_contract.helpers import arrive, take

MANY = 5


async def some_rounds() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.fixture(params=["sqlite", "redis"])
async def store(
    request: pytest.FixtureRequest, gather_seconds: float, tmp_path: Path, redis_url: str, prefix: str
) -> AsyncIterator[Store]:
    store: Store = SqliteStore(tmp_path / "askfirst.db", timings=SqliteTimings(gather_seconds=gather_seconds))
    if request.param == "redis":
        timings = RedisTimings(gather_seconds=gather_seconds)
        store = RedisStore(redis_url, prefix=prefix, ack_seconds=15, timings=timings)
    await store.open()
    yield store
    await store.close()


@pytest.mark.parametrize("gather_seconds", [2.0])
async def test_events_in_quick_succession_are_stored_together(store: Store) -> None:
    await asyncio.gather(arrive(store), arrive(store))
    following = []
    for _ in range(MANY):
        following.append(asyncio.create_task(arrive(store)))
        await some_rounds()
    await asyncio.gather(*following)
    stamps = [waiting.stamp for waiting in (await take(store)).events]
    assert len(stamps) == MANY + 2
    assert len(set(stamps)) == 2


@pytest.mark.parametrize("gather_seconds", [3600.0])
async def test_single_event_is_stored_at_once(store: Store) -> None:
    """Again and again: a person writing right after each answer."""
    async with asyncio.timeout(15):
        for _ in range(3):
            await arrive(store)
