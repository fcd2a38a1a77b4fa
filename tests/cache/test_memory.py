"""The cache in memory."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from gateway import Cache, InMemoryCache
from gateway.config.options import WrongOption


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.ledger("CACHE-03")
async def test_a_value_is_kept_until_it_is_deleted() -> None:
    cache = InMemoryCache()
    assert isinstance(cache, Cache)
    await cache.set("a", {"n": [1, None]})
    assert await cache.get("a") == {"n": [1, None]}
    assert (await cache.delete("a"), await cache.delete("a"), await cache.get("a")) == (True, False, None)
    await cache.set("a", 1)
    await cache.clear()
    assert (cache.stats.hits, cache.stats.misses) == (0, 0)
    assert await cache.get("a") is None


@pytest.mark.ledger("CACHE-04", "CACHE-05")
async def test_the_longest_unused_entry_goes_when_it_is_full() -> None:
    cache = InMemoryCache(max_size=2)
    await cache.set("a", 1)
    await cache.set("b", 2)
    await cache.get("a")
    await cache.set("c", 3)
    assert [await cache.get(key) for key in "abc"] == [1, None, 3]
    stats = cache.stats
    assert (stats.hits, stats.misses, stats.evictions, stats.hit_rate) == (3, 1, 1, 0.75)
    assert str(stats) == "hits 3, misses 1, evictions 1, hit rate 75.00%"


@pytest.mark.ledger("CACHE-04")
async def test_entry_expires_after_its_time() -> None:
    time = Time()
    cache = InMemoryCache(clock=time)
    await cache.set("short", 1, 5)
    await cache.set("default", 2)
    time.now = 5.0
    assert [await cache.get(key) for key in ("short", "default")] == [None, 2]
    time.now = 300.0
    assert await cache.get("default") is None
    assert cache.stats.evictions == 0


@pytest.mark.ledger("CACHE-04")
async def test_cache_holds_a_thousand_entries_and_locks_each_access() -> None:
    cache, held = InMemoryCache(), list[bool]()

    class Key(str):
        def __hash__(self) -> int:
            held.append(cache._lock.locked())
            return super().__hash__()

    for number in range(1001):
        await cache.set(str(number), number)
    assert (cache.stats.evictions, await cache.get("0"), await cache.get("1")) == (1, None, 1)
    await cache.set(Key("a"), 1)
    await cache.get(Key("a"))
    assert held and all(held)


async def test_a_kept_value_is_a_copy() -> None:
    cache, value = InMemoryCache(), dict[str, Any](list=[1])
    await cache.set("a", value)
    value["list"].append(2)
    found: Any = await cache.get("a")
    assert found == {"list": [1]}
    found["list"].append(3)
    assert await cache.get("a") == {"list": [1]}


async def test_only_json_is_kept() -> None:
    with pytest.raises(TypeError):
        await InMemoryCache().set("a", object())  # type: ignore[arg-type]


def test_threads_may_share_a_cache() -> None:
    cache = InMemoryCache(max_size=50)

    async def use() -> None:
        for number in range(300):
            await cache.set(str(number % 70), number)
            await cache.get(str(number % 60))

    threads = [threading.Thread(target=lambda: asyncio.run(use())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.stats.hits + cache.stats.misses == 1200


@pytest.mark.parametrize("wrong", [{"max_size": 0}, {"default_ttl_seconds": 0}, {"default_ttl_seconds": float("inf")}])
def test_a_wrong_option_is_named(wrong: dict[str, float]) -> None:
    with pytest.raises(WrongOption, match=next(iter(wrong))):
        InMemoryCache(**wrong)  # type: ignore[arg-type]
