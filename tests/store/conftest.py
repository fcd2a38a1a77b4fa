"""Redis servers for tests: the one of this machine, and one of a test's own to be filled, frozen and killed."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.store.redis_server import RedisServer

REDIS_URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")


@pytest.fixture
def redis_url() -> str:
    """Of the server that tests share."""
    return REDIS_URL


@pytest.fixture
async def prefix(redis_url: str) -> AsyncIterator[str]:
    """Of this test's keys there; they are deleted."""
    prefix = f"askfirst-test-{secrets.token_hex(6)}"
    yield prefix
    async with Redis.from_url(redis_url, driver_info=None) as redis:
        made = [key async for key in redis.scan_iter(f"{prefix}:*", count=1000)]
        if made:
            await redis.delete(*made)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    """A server of this test's own, which keeps an append-only file."""
    server = RedisServer(tmp_path)
    await server.start()
    yield server
    await server.kill()
