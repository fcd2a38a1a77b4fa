"""A worker waiting on Redis goes by looks and notifications: in order, and with any message on the channel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import count

import pytest

from gateway.store.redis import RedisStore, leases
from gateway.store.redis.connection import RedisTimings
from gateway.store.redis.keys import PARTITIONS, partition_of
from gateway.store.redis.notifications import Subscription
from gateway.testing.store_contract.helpers import arrive, event, take
from tests.store.redis_server import RedisServer

FAR = 3600.0


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStore]:
    """A store without periodic looks."""
    store = RedisStore(server.url, ack_seconds=15, timings=RedisTimings(look_again_seconds=FAR))
    await store.open()
    yield store
    await store.close()


async def heard(store: RedisStore, partitions: set[str]) -> None:
    """Wait for the notifications of these partitions."""
    [ready] = store._parts.leases._ready.values()
    while not partitions <= set(ready.subscription._places or ()):
        await asyncio.sleep(0.001)


async def test_lanes_only_heard_of_keep_their_place_in_the_order(store: RedisStore) -> None:
    names = [f"c{number}" for number in range(100)]
    here = [name for name in names if partition_of(name) == "03"][:3]
    there = [name for name in names if partition_of(name) == "07"][:3]
    in_turn = [name for pair in zip(here, there, strict=True) for name in pair]
    await arrive(store, "first")
    await take(store, wait_seconds=15, lease_seconds=FAR)
    for name in in_turn:
        await arrive(store, name)
    await heard(store, {"03", "07"})
    taken = [(await take(store, wait_seconds=15, lease_seconds=FAR)).lane for _ in in_turn]
    # News takes a moment, in which the next may have come: so one lane, and no more, may go before its turn.
    assert all(taken.index(name) <= in_turn.index(name) + 1 for name in in_turn)


async def test_listeners_hear_of_lanes_left_after_another_took_one(store: RedisStore) -> None:
    """One message announces any number of events, and the notified worker took a single lane."""
    here = [name for number in range(200) if partition_of(name := f"c{number}") == "03"][:4]
    waiting = [asyncio.create_task(take(store, wait_seconds=15, lease_seconds=FAR)) for _ in here]
    async with asyncio.timeout(15):
        while not store._parts.leases._ready:
            await asyncio.sleep(0.001)
        assert await store.accept([event(name) for name in here]) == [True] * len(here)
        assert {lease.lane for lease in await asyncio.gather(*waiting)} == set(here)


@pytest.fixture
async def ready() -> leases.ReadyLanes:
    """All partitions were looked at and found empty."""
    ready = leases.ReadyLanes(Subscription(), PARTITIONS)
    ready.take_notifications(0)
    ready.begin(FAR)
    for partition in PARTITIONS:
        ready.saw(partition, -1, -1)
    assert ready.claim() is None
    return ready


async def test_news_of_a_partition_under_look_is_looked_at_again(ready: leases.ReadyLanes) -> None:
    """The news may have come after the look, despite the look's later answer."""
    ready.subscription.notify("03")
    ready.take_notifications(1_000_000)
    assert ready.claim() == "03"
    ready.subscription.notify("07")
    ready.subscription.notify("03")
    ready.take_notifications(2_000_000)
    assert ready.claim() == "07"
    ready.saw("03", -1, -1)
    assert ready.claim() == "03"
    assert ready.claim() is None
    assert not ready.is_old


async def test_pause_while_hearing_news_keeps_their_order(
    ready: leases.ReadyLanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = (float(number * number) for number in count())
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: next(pauses))
        ready.subscription.notify("07")
        ready.subscription.notify("03")
        ready.take_notifications(100_000_000)
    assert [ready.claim(), ready.claim()] == ["07", "03"]


async def test_look_does_not_erase_news_still_unheard(ready: leases.ReadyLanes) -> None:
    ready.subscription.notify("03")
    ready.saw("03", -1, -1)
    ready.take_notifications(1_000_000)
    assert ready.claim() == "03"


@pytest.mark.parametrize("odd", [b"\xff\xffturn", b"zzturn", b"turn", b"0", b""])
async def test_odd_messages_on_the_channel_do_not_hide_news(store: RedisStore, server: RedisServer, odd: bytes) -> None:
    waiting = asyncio.create_task(take(store, wait_seconds=15, lease_seconds=FAR))
    only = asyncio.create_task(take(store, "out", only="nobody's", wait_seconds=0.1))
    while await server.command("PUBLISH", "askfirst:news", odd.decode("latin-1")) != 1:
        pass
    await arrive(store)
    assert (await waiting).lane == "c"
    with pytest.raises(AssertionError):
        await only
