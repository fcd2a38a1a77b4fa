"""What the doubles of platforms have in common: a test waits for them, and they for a test."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from aiohttp import web

T = TypeVar("T")


async def listen(app: web.Application, port: int = 0) -> tuple[web.AppRunner, str]:
    """Serve an application on loopback, and return its runner and its URL."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    return runner, f"http://127.0.0.1:{runner.addresses[0][1]}"


class Hold:
    """A call whose answer waits until it is released."""

    def __init__(self) -> None:
        self._reached, self._released = asyncio.Event(), asyncio.Event()

    async def reached(self, timeout_seconds: float = 60.0) -> None:
        """Returns when the bot has made the call."""
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
    """The first truthy value of `condition`, looked at after each change.

    Raises AssertionError, which tells what the bot was `seen` to send, when it takes too long.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_seconds):
            while not (value := condition()):
                changed.clear()
                with contextlib.suppress(TimeoutError):  # it may also look at what does not come through here
                    await asyncio.wait_for(changed.wait(), 0.02)
            return value
    raise AssertionError(f"not within {timeout_seconds} s; the bot sent {seen()}")
