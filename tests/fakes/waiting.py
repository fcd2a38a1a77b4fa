"""The common part of the fake platforms: a test waits for them, and they for a test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from aiohttp import web

T = TypeVar("T")


async def listen(app: web.Application, port: int = 0) -> tuple[web.AppRunner, str]:
    """Serve an application on loopback. Returns the runner and the URL."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


class Hold:
    """A held call: the answer waits for the release."""

    def __init__(self) -> None:
        self._reached, self._released = asyncio.Event(), asyncio.Event()

    async def reached(self, timeout_seconds: float = 60.0) -> None:
        """Wait until the bot has made the call."""
        async with asyncio.timeout(timeout_seconds):
            await self._reached.wait()

    def release(self) -> None:
        self._released.set()

    async def stay(self) -> None:
        self._reached.set()
        await self._released.wait()


async def first(
    condition: Callable[[], T | None], changed: asyncio.Event, timeout_seconds: float, seen: Callable[[], object]
) -> T:
    """Return the first truthy value of `condition`, checked after each change.

    Raises AssertionError after the timeout. The error has the `seen` messages of the bot.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_seconds):
            while not (value := condition()):
                changed.clear()
                with contextlib.suppress(TimeoutError):  # the condition may also depend on other state
                    await asyncio.wait_for(changed.wait(), 0.02)
            return value
    raise AssertionError(f"not within {timeout_seconds} s; the bot sent {seen()}")
