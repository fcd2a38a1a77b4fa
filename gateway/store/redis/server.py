"""The server: its connections, its clock, and scripts run in its partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from gateway.store.base import StoreRefused, StoreUnavailable
from gateway.store.codec import moment
from gateway.store.redis import startup
from gateway.store.redis.client import Client, Value
from gateway.store.redis.keys import Keys
from gateway.store.redis.news import News
from gateway.store.redis.scripts import Script

__all__ = ["Server"]

T = TypeVar("T")

_WORK_SECONDS: Final = 5.0


class Server:
    """Two clients: one for what a platform waits for (`ack`), which gives up early, and one for all else.

    Every script is told the same first: by how much the clock is moved, the latest moment that anybody here has seen
    (behind which it does not go back), and where news goes to.
    """

    def __init__(self, url: str, prefix: str, ack_seconds: float) -> None:
        """Raises StoreRefused for what is no address."""
        self.keys = Keys(prefix)
        self.offset = 0
        """Microseconds."""
        self._latest = 0
        self._open = True
        self._running: set[asyncio.Future[Any]] = set()
        try:
            self._work = Client(url, timeout_seconds=_WORK_SECONDS, connections=32)
            self._ack = Client(url, timeout_seconds=ack_seconds, connections=16)
            self.news = News(url, self.keys.news)
        except ValueError:  # its text may hold the password
            raise StoreRefused(
                "ASKFIRST_STORE is no address: write redis://[user:password@]host:6379[/number]"
            ) from None

    async def open(self) -> None:
        """Look whether it can be trusted. Raises StoreRefused and StoreUnavailable."""
        try:
            await startup.check(self._work, self.keys)
            await self.news.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Take no more calls, let those that run end, and disconnect."""
        self._open = False
        self.news.tell_all()
        while self._running:
            await asyncio.wait(self._running)
        await self.news.close()
        await self._ack.close()
        await self._work.close()

    def seen(self, micros: int) -> datetime:
        """A moment that somebody is told of."""
        self._latest = max(self._latest, micros)
        return moment(self._latest)

    async def now(self) -> datetime:
        self.check_open()
        seconds, micros = await self.to_its_end(self._work.command("TIME"))
        return self.seen(int(seconds) * 1_000_000 + int(micros) + self.offset)

    async def ping(self) -> None:
        self.check_open()
        await self.to_its_end(self._ack.command("PING"))

    async def run(self, script: Script, partitions: Sequence[str], *told: Value) -> list[Any]:
        """One script in each of these partitions, in one round trip. Raises StoreUnavailable."""
        return await self.run_at(script, [(self.keys.base(partition), told) for partition in partitions])

    async def run_at(
        self, script: Script, places: Sequence[tuple[str, Sequence[Value]]], *, ack: bool = False
    ) -> list[Any]:
        """A script at the base of each place, told what is for there. Raises StoreUnavailable."""
        self.check_open()
        head: list[Value] = [self.offset, self._latest, self.keys.news]
        client = self._ack if ack else self._work
        return await self.to_its_end(client.run([(script, base, [*head, *told]) for base, told in places]))

    async def to_its_end(self, call: Awaitable[T]) -> T:
        """Go on though the caller gives up: no connection is left in the middle of an answer, and `close` waits."""
        running = asyncio.ensure_future(call)
        self._running.add(running)
        running.add_done_callback(self._ended)
        return await asyncio.shield(running)

    def check_open(self) -> None:
        """Raises StoreUnavailable."""
        if not self._open:
            raise StoreUnavailable("the store is closed")

    def _ended(self, running: asyncio.Future[Any]) -> None:
        self._running.discard(running)
        if not running.cancelled():
            running.exception()  # who gave up does not ask
