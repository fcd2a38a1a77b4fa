"""The shared store keeps the contract of every store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.store.redis.connection import RedisTimings
from gateway.store.types import Incoming, Kind
from gateway.testing import StoreContract
from gateway.testing.store_contract.decisions import ActionsContract
from gateway.testing.store_contract.lanes import LanesContract, TakeoverContract
from gateway.testing.store_contract.mailbox import WaitingContract
from gateway.testing.store_contract.model import ModelContract
from gateway.testing.store_contract.outbox import OutboxContract
from gateway.testing.store_contract.prefetch import KINDS, PrefetchContract, shows_its_own
from tests.store.redis_server import RedisServer


@pytest.mark.ledger("TEST-08")
class TestOnRedis(StoreContract):
    @pytest.fixture
    async def store(self, redis_url: str, prefix: str) -> AsyncIterator[Store]:
        store = RedisStore(redis_url, prefix=prefix, max_waiting=self.max_waiting, ack_seconds=5)
        await store.open()
        yield store
        await store.close()

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("lane", ["\ud83d", "half a \udc4d/pair"])
    async def test_half_a_character_in_a_name_is_no_other_name(self, store: Store, kind: Kind, lane: str) -> None:
        await shows_its_own(store, kind, lane)


class TestNobodyLooksAgain(WaitingContract, ModelContract):
    """A waiting worker is notified, or knows the due time: an idle worker sends the server next to no commands."""

    @pytest.fixture
    async def store(self, redis_url: str, prefix: str) -> AsyncIterator[Store]:
        timings = RedisTimings(look_again_seconds=3600.0)
        store = RedisStore(redis_url, prefix=prefix, ack_seconds=5, timings=timings)
        await store.open()
        yield store
        await store.close()


@pytest.mark.nightly
class TestNobodyLooksAgainInOtherContracts(
    ActionsContract, LanesContract, OutboxContract, PrefetchContract, TakeoverContract
):
    """The other contracts with leased lanes pass without the look every few seconds, too."""

    store = TestNobodyLooksAgain.store


async def test_old_decisions_are_found_only_once_they_are_old_enough(redis_url: str, prefix: str) -> None:
    store, other = (RedisStore(redis_url, prefix=prefix, ack_seconds=5) for _ in range(2))
    await store.open()
    await other.open()
    await store.run_timers()
    await other.accept([Incoming(conversation="c", event_ids=(), body={}, decides=True)])
    assert await store.pending_decisions(older_than_seconds=3600) == []
    assert [found.conversation for found in await store.pending_decisions()] == ["c"]
    assert await store.pending_decisions("c", older_than_seconds=0.0) != []
    store.offset_seconds = other.offset_seconds = 7200
    assert [found.conversation for found in await store.pending_decisions(older_than_seconds=3600)] == ["c"]
    await store.run_timers()
    assert [found.conversation for found in await store.pending_decisions(older_than_seconds=3600)] == ["c"]
    await store.close()
    await other.close()


async def test_sweep_without_decisions_sends_the_server_no_script(server: RedisServer) -> None:
    store = RedisStore(server.url, ack_seconds=5)
    await store.open()
    await store.run_timers()
    before = await scripts_run(server)
    assert await store.pending_decisions(older_than_seconds=3600) == []
    assert await scripts_run(server) == before
    assert await store.pending_decisions() == []
    assert await scripts_run(server) > before
    await store.close()


async def scripts_run(server: RedisServer) -> int:
    stats = await server.command("INFO", "commandstats")
    assert isinstance(stats, dict)
    return sum(stat["calls"] for name, stat in stats.items() if name.startswith("cmdstat_eval"))


@pytest.mark.parametrize("yields", range(20))
async def test_store_closes_at_any_moment(redis_url: str, prefix: str, yields: int) -> None:
    """Also during a call of the background work."""
    for _ in range(10):
        store = RedisStore(redis_url, prefix=prefix, ack_seconds=5)
        await store.open()
        for _ in range(yields):
            await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await store.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}
