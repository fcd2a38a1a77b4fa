"""Files that tools made do not pile up."""

from __future__ import annotations

import asyncio
import os

from gateway.testing import ChatDriver
from tests.engine.bots import Invoices


async def test_old_files_are_removed_when_it_starts() -> None:
    chat = ChatDriver(Invoices().bot())
    async with chat:
        artifacts = chat.engine.context.artifacts
        await chat.engine.stop()
        old = artifacts.directory / ("a" * 64)
        await asyncio.to_thread(old.write_bytes, b"old")
        await asyncio.to_thread(os.utime, old, (0, 0))
        chat.engine.start()
        while await asyncio.to_thread(old.exists):
            await asyncio.sleep(0.005)
