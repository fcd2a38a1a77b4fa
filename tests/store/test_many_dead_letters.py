"""A listing or drop of a hundred thousand dead letters and settled actions holds up no other call."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Dead, Incoming
from gateway.testing.store_contract.helpers import event
from tests.store.conftest import prefix, redis_url

__all__ = ["prefix", "redis_url"]

MANY, AT_ONCE = 100_000, 1_000
MOST_SECONDS = 0.25
"""A platform with a longer wait for a webhook delivers again."""


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "sqlite":
        return SqliteStore(str(tmp_path / "askfirst.db"))
    url, prefix = request.getfixturevalue("redis_url"), request.getfixturevalue("prefix")
    return RedisStore(url, prefix=prefix, ack_seconds=5)


async def fill(store: Store) -> None:
    for begin in range(0, MANY, AT_ONCE):
        numbers = range(begin, begin + AT_ONCE)
        letters = [
            Dead(
                dead_id=f"d{number}",
                conversation="c",
                reason=f"reason {number % 3}",
                incoming=Incoming(conversation="c", event_ids=(), body={"text": "x" * 50}),
            )
            for number in numbers
        ]
        settled = {
            f"action/{number}": Put({"state": "done", "args": "y" * 200}, ttl_seconds=86_400) for number in numbers
        }
        await store.commit(Transaction(partition=store.partition("c"), dead=letters, puts=settled))


async def slowest_acceptance(store: Store, until: asyncio.Event) -> float:
    """Take a message each ten milliseconds. Return how long the slowest waited."""
    slowest, number = 0.0, 0
    while not until.is_set():
        began = time.perf_counter()
        await store.accept([event("new", f"n{number}")])
        slowest, number = max(slowest, time.perf_counter() - began), number + 1
        await asyncio.sleep(0.01)
    return slowest


@pytest.mark.nightly
@pytest.mark.timeout(600)
async def test_listing_and_dropping_100_000_letters_delays_no_event(store: Store) -> None:
    await store.open()
    try:
        await fill(store)
        done = asyncio.Event()
        waiting = asyncio.create_task(slowest_acceptance(store, done))
        seen, after = 0, 0
        while page := await store.dead_letters(after=after, limit=100):
            seen, after = seen + len(page), page[-1].seq or 0
        assert seen == MANY
        dropped = await store.drop_all("reason 1")
        assert 33_000 < dropped < 33_400
        assert dropped + await store.drop_all() == MANY
        done.set()
        assert await waiting < MOST_SECONDS
    finally:
        await store.close()
