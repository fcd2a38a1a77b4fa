"""Redis servers for tests: the server of this machine, and a test's own server to be filled, frozen and killed."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.store.redis_server import RedisServer, answers


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the server shared by tests: from REDIS_URL, of this machine, or of a child of this run."""
    url = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")
    if "REDIS_URL" in os.environ or answers(url):
        yield url
        return
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    with server.running():
        while not answers(server.url):
            time.sleep(0.01)
        yield server.url


@pytest.fixture
async def prefix(redis_url: str) -> AsyncIterator[str]:
    """A prefix for this test's keys, deleted at the end."""
    prefix = f"askfirst-test-{secrets.token_hex(6)}"
    yield prefix
    async with Redis.from_url(redis_url, driver_info=None) as redis:
        made = [key async for key in redis.scan_iter(f"{prefix}:*", count=1000)]
        if made:
            await redis.delete(*made)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    """A server of this test's own, with an append-only file."""
    server = RedisServer(tmp_path)
    await server.start()
    yield server
    await server.kill()
