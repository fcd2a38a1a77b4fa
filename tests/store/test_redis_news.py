"""Who waits for work on Redis goes by what was seen and heard: in order, and whatever is said on the channel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.store.redis import RedisStore, leases
from gateway.store.redis.keys import partition_of
from gateway.testing.store_contract.helpers import arrive, take
from tests.store.redis_server import RedisServer

FAR = 3600.0


@pytest.fixture
async def store(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RedisStore]:
    """A store that looks nowhere without a reason."""
    monkeypatch.setattr(leases, "_LOOK_AGAIN_SECONDS", FAR)
    store = RedisStore(server.url, ack_seconds=15)
    await store.open()
    yield store
    await store.close()


async def heard(store: RedisStore, partitions: set[str]) -> None:
    """News of these has come."""
    [known] = store._parts.leases._known.values()
    while not partitions <= set(known.heard._places or ()):
        await asyncio.sleep(0.001)


async def test_what_was_only_heard_of_has_its_place_among_what_was_seen(store: RedisStore) -> None:
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
    # News takes a moment, in which the next one may have come: so one, and no more, may go before its turn.
    assert all(taken.index(name) <= in_turn.index(name) + 1 for name in in_turn)


@pytest.mark.parametrize("odd", [b"\xff\xffturn", b"zzturn", b"turn", b"0", b""])
async def test_whatever_else_is_said_there_news_is_heard(store: RedisStore, server: RedisServer, odd: bytes) -> None:
    waiting = asyncio.create_task(take(store, wait_seconds=15, lease_seconds=FAR))
    only = asyncio.create_task(take(store, "out", only="nobody's", wait_seconds=0.1))
    while await server.command("PUBLISH", "askfirst:news", odd.decode("latin-1")) != 1:
        pass
    await arrive(store)
    assert (await waiting).lane == "c"
    with pytest.raises(AssertionError):
        await only
