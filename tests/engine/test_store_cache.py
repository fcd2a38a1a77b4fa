"""A cache in the store of the bot."""

from __future__ import annotations

import pytest

from gateway import Agent, AgentConfig, StoreCache
from gateway.testing import ChatDriver, ScriptedProvider

pytestmark = pytest.mark.both_stores


@pytest.mark.ledger("CACHE-06")
async def test_a_chat_keeps_replies_in_its_store() -> None:
    script, cache = ScriptedProvider(["a language", "a snake"]), StoreCache(default_ttl_seconds=60)
    async with ChatDriver(Agent(provider=script, config=AgentConfig(cache=cache))) as chat:
        await chat.says("ana", "What is Python?")
        await chat.says("ana", "/new")
        await chat.says("ana", "What is Python?")
        assert (len(script.requests), cache.stats.hits) == (1, 1)
        await chat.clock.advance(61)
        await chat.says("ana", "/new")
        await chat.says("ana", "What is Python?")
        assert len(script.requests) == 2
        await cache.clear()
        assert (cache.stats.hits, cache.stats.misses) == (0, 0)


async def test_an_entry_can_be_deleted() -> None:
    cache = StoreCache()
    async with ChatDriver(Agent(provider=ScriptedProvider([]), config=AgentConfig(cache=cache))):
        await cache.set("a", {"n": 1})
        await cache.set("b", [2], 60)
        assert [await cache.get(key) for key in "abc"] == [{"n": 1}, [2], None]
        assert (await cache.delete("a"), await cache.delete("a")) == (True, False)
        await cache.clear()
        assert await cache.get("b") is None


async def test_two_bots_have_a_cache_each() -> None:
    script = ScriptedProvider(["one", "two"])
    caches = [StoreCache(), StoreCache()]
    for cache in caches:
        async with ChatDriver(Agent(provider=script, config=AgentConfig(cache=cache))) as chat:
            await chat.says("ana", "What is Python?")
    assert len(script.requests) == 2
