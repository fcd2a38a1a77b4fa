"""A bot with endless tools, each in another way. A begun call is a line in the file ``begun``."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gateway import Agent, ChannelAgent, tool


def _begin() -> None:
    with Path("begun").open("a") as file:
        file.write("begun\n")


@tool
async def wait() -> str:
    """Wait for ever, and end when told to."""
    _begin()
    await asyncio.Event().wait()
    return "never"


@tool
async def refuse() -> str:
    """Wait for ever, whatever one is told."""
    _begin()
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


@tool
def block() -> str:
    """Wait for ever in a thread of the tools."""
    _begin()
    threading.Event().wait()
    return "never"


@tool
async def block_elsewhere() -> str:
    """Wait for ever in a thread of the event loop."""
    _begin()
    await asyncio.to_thread(threading.Event().wait)
    return "never"


@tool(confirm="Pay invoice {invoice_id}?")
async def pay_invoice(invoice_id: str) -> str:
    """Pay an invoice, and never hear that it is paid."""
    _begin()
    await asyncio.Event().wait()
    return "never"


@asynccontextmanager
async def _at_the_end() -> AsyncIterator[None]:
    yield
    if "HANGS_AT_ITS_END" in os.environ:
        await asyncio.Event().wait()


bot = ChannelAgent(
    Agent([wait, refuse, block, block_elsewhere, pay_invoice], provider="openai:test-model"), lifespan=_at_the_end
)
