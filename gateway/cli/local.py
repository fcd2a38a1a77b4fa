"""A bot in this process and in memory: for a chat in the terminal and for previews."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator
from datetime import UTC, datetime

from gateway.access import allow
from gateway.app import Home, assemble, open_store, temporary_files
from gateway.channel_agent import ChannelAgent
from gateway.engine.engine import Engine
from gateway.observe import Feed

__all__ = ["in_memory"]


@contextlib.asynccontextmanager
async def in_memory(bot: ChannelAgent) -> AsyncIterator[Engine]:
    """The bot with its lifespan entered, over a store that goes with the block, whatever store it has otherwise."""
    async with temporary_files() as files:
        home = Home(open_store(":memory:"), [secrets.token_bytes(32)], files)
        engine = assemble(bot, home, {}, allowed=allow(["*"]), feed=Feed(now=lambda: datetime.now(UTC)))
        await home.store.open()
        try:
            async with bot.attached(engine):
                try:
                    yield engine
                finally:
                    await engine.stop()
                    await bot.agent.provider.close()
        finally:
            await home.store.close()
