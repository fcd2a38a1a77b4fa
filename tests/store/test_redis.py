"""The shared store does what every store must."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.testing import StoreContract


class OnePartition(RedisStore):
    """The suite writes to several conversations in one transaction: here they are neighbours."""

    def partition(self, conversation: str) -> str:
        return "07"


class TestOnRedis(StoreContract):
    @pytest.fixture
    async def store(self, redis_url: str, prefix: str) -> AsyncIterator[Store]:
        store = OnePartition(redis_url, prefix=prefix, max_waiting=self.max_waiting, ack_seconds=5)
        await store.open()
        yield store
        await store.close()
