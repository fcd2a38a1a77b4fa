"""The shared store does what every store must."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.testing import StoreContract

URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")


@pytest.fixture
async def prefix() -> AsyncIterator[str]:
    """Of this test alone; what it made is deleted."""
    prefix = f"askfirst-test-{secrets.token_hex(6)}"
    yield prefix
    async with Redis.from_url(URL) as redis:
        made = [key async for key in redis.scan_iter(f"{prefix}:*", count=1000)]
        if made:
            await redis.delete(*made)


class OnePartition(RedisStore):
    """The suite writes to several conversations in one transaction: here they are neighbours."""

    def partition(self, conversation: str) -> str:
        return "07"


class TestOnRedis(StoreContract):
    @pytest.fixture
    async def store(self, prefix: str) -> AsyncIterator[Store]:
        store = OnePartition(URL, prefix=prefix, max_waiting=self.max_waiting, ack_seconds=5)
        await store.open()
        yield store
        await store.close()
