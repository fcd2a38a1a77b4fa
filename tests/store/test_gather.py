"""Events that come shortly after several were stored go together; one that comes alone does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.store.redis import ingest as redis_ingest
from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite import ingest as sqlite_ingest
from gateway.testing.store_contract.helpers import arrive, take

MANY = 5


async def some_rounds() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


@pytest.fixture(params=["sqlite", "redis"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, redis_url: str, prefix: str) -> AsyncIterator[Store]:
    store: Store = SqliteStore(tmp_path / "askfirst.db")
    if request.param == "redis":
        store = RedisStore(redis_url, prefix=prefix, ack_seconds=15)
    await store.open()
    yield store
    await store.close()


def gathers(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    for ingest in (sqlite_ingest, redis_ingest):
        monkeypatch.setattr(ingest, "GATHER_SECONDS", seconds)


async def test_what_follows_soon_is_stored_together(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    gathers(monkeypatch, 2.0)
    await asyncio.gather(arrive(store), arrive(store))
    following = []
    for _ in range(MANY):
        following.append(asyncio.create_task(arrive(store)))
        await some_rounds()
    await asyncio.gather(*following)
    stamps = [waiting.stamp for waiting in (await take(store)).events]
    assert len(stamps) == MANY + 2
    assert len(set(stamps)) == 2


async def test_who_comes_alone_is_stored_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Again and again: somebody who writes as soon as he is answered."""
    gathers(monkeypatch, 3600.0)
    async with asyncio.timeout(15):
        for _ in range(3):
            await arrive(store)
