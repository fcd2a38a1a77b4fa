"""Two bots on one Redis would take each other's messages: the second bot does not start."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway import Agent, AgentConfig, Gateway
from gateway.config.settings import Settings
from gateway.store.errors import StoreRefused
from gateway.testing import ScriptedProvider
from tests.store.conftest import server
from tests.store.redis_server import RedisServer

pytestmark = pytest.mark.both_stores

__all__ = ["server"]

SECRET = "r4nd0m-enough-for-a-test-of-two-bots-and-more"


@pytest.fixture(autouse=True)
def kept_on() -> None:
    """The tests name Redis themselves; the embedded store has one owner."""


def gateway(name: str, url: str, files: Path) -> Gateway:
    settings = Settings(store=url, secret=SECRET, artifacts=files, allow="*")
    agent = Agent([], provider=ScriptedProvider([]), config=AgentConfig(name=name))
    return Gateway(agent, settings)


async def test_a_bot_of_another_name_is_refused_and_told_where_to_go(server: RedisServer, tmp_path: Path) -> None:
    async with gateway("invoices", server.url, tmp_path):
        with pytest.raises(StoreRefused, match=r"'invoices'.*Give 'holidays' a database of its own"):
            async with gateway("holidays", server.url, tmp_path):
                pass
        async with gateway("invoices", server.url, tmp_path), gateway("holidays", f"{server.url}/1", tmp_path):
            pass
    with pytest.raises(StoreRefused):  # nor when the first one is away: it has left work
        async with gateway("holidays", server.url, tmp_path):
            pass


async def test_of_two_that_start_at_once_one_is_served(server: RedisServer, tmp_path: Path) -> None:
    bots = [gateway(f"bot {number}", server.url, tmp_path) for number in range(4)]
    began = await asyncio.gather(*(bot.__aenter__() for bot in bots), return_exceptions=True)
    refused = [number for number, result in enumerate(began) if isinstance(result, StoreRefused)]
    assert len(refused) == 3
    await asyncio.gather(*(bot.__aexit__() for number, bot in enumerate(bots) if number not in refused))


async def test_full_server_still_starts_its_own_bot(server: RedisServer, tmp_path: Path) -> None:
    async with gateway("invoices", server.url, tmp_path):
        pass
    await server.command("CONFIG", "SET", "maxmemory", 1)
    async with gateway("invoices", server.url, tmp_path):
        pass


async def test_the_embedded_store_takes_a_bot_that_was_renamed(tmp_path: Path) -> None:
    for name in ("invoices", "holidays"):
        async with gateway(name, f"sqlite:///{tmp_path / 'askfirst.db'}", tmp_path):
            pass
