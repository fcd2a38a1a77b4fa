"""A release before the one that cuts logs runs on the same server: it goes on until the first cut, and is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.store.errors import StoreRefused, StoreUnavailable
from gateway.store.redis import RedisStore, scripts
from gateway.store.redis.keys import Keys
from gateway.store.transaction import LogCut, Transaction
from gateway.store.types import Incoming, Key, Prefetch
from gateway.testing.store_contract.helpers import event, near

LOG = "transcript/c"


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, driver_info=None, decode_responses=True) as redis:
        yield redis


def _older_scripts() -> dict[str, scripts.Script]:
    with pytest.MonkeyPatch.context() as release:
        release.setattr(scripts, "FORMAT", 1)
        found = {name: script for name, script in vars(scripts).items() if isinstance(script, scripts.Script)}
        return {name: scripts.Script(script.name, script.flag) for name, script in found.items()}


OLDER_SCRIPTS = _older_scripts()
"""The scripts of the release that knows format 1 alone. They are read here: a test may not read files in its loop."""


@contextmanager
def older() -> Iterator[None]:
    """Within the block, this process's calls are those of the older release."""
    with pytest.MonkeyPatch.context() as release:
        release.setattr(scripts, "FORMAT", 1)
        for name, script in OLDER_SCRIPTS.items():
            release.setattr(scripts, name, script)
        yield


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[RedisStore]:
    """A store of this release, on a server that the older release uses already."""
    store = RedisStore(redis_url, prefix=prefix, ack_seconds=5)
    await store.open()
    yield store
    await store.close()


def transaction(store: RedisStore, **changes: Any) -> Transaction:
    return Transaction(partition=store.partition("c"), **changes)


async def lines(store: RedisStore, **which: int) -> dict[int, Any]:
    return {entry.seq: entry.value for entry in await store.read(Key(store.partition("c"), LOG), **which)}


async def test_both_releases_run_side_by_side_before_a_cut(store: RedisStore, redis_url: str, prefix: str) -> None:
    await store.commit(transaction(store, appends=[(LOG, "this")]))
    with older():
        started = RedisStore(redis_url, prefix=prefix, ack_seconds=5)
        await started.open()
        await started.commit(transaction(started, appends=[(LOG, "older")]))
        await started.accept([event("c")])
        lease = await started.lease("w", ["turn"], prefetch=Prefetch(log="transcript", last=9))
        assert lease is not None and len(lease.lines) == 2
        await started.close()
    assert await lines(store) == {1: "this", 2: "older"}


async def test_the_older_release_is_refused_from_the_first_cut_on(
    store: RedisStore, redis_url: str, prefix: str, redis: Redis
) -> None:
    await store.commit(transaction(store, appends=[(LOG, number) for number in range(1, 6)]))
    await store.commit(transaction(store, cut=[LogCut(log=LOG, upto=3)]))
    partition = store.partition("c")
    with older():
        for call in (
            store.commit(transaction(store, appends=[(LOG, "taken for number 3")])),
            store.read(Key(partition, LOG), after=3),
            store.lease("w", ["turn"], only="c", prefetch=Prefetch(log="transcript", last=9)),
            store.accept([Incoming(conversation=near(store, "d"), event_ids=("e",), body={})]),
        ):
            with pytest.raises(StoreUnavailable, match="newer release has brought"):
                await call
    await store.commit(transaction(store, appends=[(LOG, 6)]))
    assert await lines(store) == {4: 4, 5: 5, 6: 6}
    assert await redis.get(f"{prefix}:format") == await redis.get(f"{Keys(prefix).base(partition)}:format") == "2"
    with pytest.MonkeyPatch.context() as release:
        release.setattr(scripts, "FORMAT", 1)
        with pytest.raises(StoreRefused, match=r"format 2.*newer release"):
            await RedisStore(redis_url, prefix=prefix).open()


async def test_a_cut_of_no_line_leaves_the_older_release_running(store: RedisStore) -> None:
    await store.commit(transaction(store, appends=[(LOG, 1)]))
    await store.commit(transaction(store, cut=[LogCut(log=LOG, upto=0), LogCut(log="none"), LogCut(log=LOG, keep=1)]))
    with older():
        await store.commit(transaction(store, appends=[(LOG, 2)]))
    assert await lines(store) == {1: 1, 2: 2}


async def test_the_next_process_reads_a_cut_log(store: RedisStore, redis_url: str, prefix: str) -> None:
    await store.commit(transaction(store, appends=[(LOG, 1), (LOG, 2)]))
    await store.commit(transaction(store, cut=[LogCut(log=LOG, upto=1)]))
    another = RedisStore(redis_url, prefix=prefix)
    await another.open()
    assert await lines(another) == {2: 2}
    await another.commit(transaction(another, cut=[LogCut(log=LOG)]))
    await another.commit(transaction(another, appends=[(LOG, 3)]))
    await another.close()
    assert await lines(store) == {3: 3}


async def test_keys_of_a_log_without_lines_are_gone(store: RedisStore, redis: Redis, prefix: str) -> None:
    await store.commit(transaction(store, appends=[(LOG, 1), (LOG, 2)]))
    await store.commit(transaction(store, cut=[LogCut(log=LOG, upto=1)]))
    await store.commit(transaction(store, cut=[LogCut(log=LOG)]))
    dumped = [await redis.type(key) + key async for key in redis.scan_iter(f"{prefix}:*")]
    assert [key for key in dumped if "transcript" in key or key.endswith(":cuts")] == []
    assert await redis.get(f"{Keys(prefix).base(store.partition('c'))}:emptied") == "2"
