"""The server: its connections, its clock, and scripts run in its partitions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar

from gateway.store.clock_steps import DOUBTED_MICROS, ClockSteps
from gateway.store.codec import moment
from gateway.store.errors import StoreUnavailable
from gateway.store.redis import address, checks
from gateway.store.redis.client import Call, Client, Value
from gateway.store.redis.keys import PARTITIONS, Keys
from gateway.store.redis.notifications import Notifications
from gateway.store.redis.pipelining import AutoPipeline
from gateway.store.redis.scripts import Script

__all__ = ["Server"]

T = TypeVar("T")

_WORK_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 1.0
_AHEAD_KEPT_MILLISECONDS: Final = 60_000
"""So long the next process to start learns of a step; one that starts later goes by the server's clock as it is."""
_PACE: Final = 0.999
"""How fast time goes on here where the server's clock does not: slower than any clock that is right, so that where the
server's is, nobody here is ahead of it, and one that was set back is caught up with."""


class Server:
    """Two clients: one for what a platform waits for (`ack`), which gives up early, and one for all else.

    What goes over the second travels together (`AutoPipeline`).

    Every script is told the same first: by how much the clock is moved, what it is here (behind which it does not go
    back), and where news goes to. The clock is the server's. When that is set back, or a replica whose clock is behind
    takes over, time goes on from the latest moment that was seen here: an open question does not stay open for as long
    as the server takes to catch up, nor does a reply wait so long that is tried again. When it is set forward, time
    goes on from where it was (`ClockSteps`), for each process that has looked at it before, and for those that start
    later while one of these runs: nothing that is open expires early.
    """

    def __init__(self, url: str, prefix: str, ack_seconds: float, elapsed_ns: Callable[[], int]) -> None:
        """Raises StoreRefused for what is no address."""
        self.keys = Keys(prefix)
        self.offset = 0
        """Microseconds."""
        self._latest, self._latest_at = 0, 0.0
        """A moment that was seen, and when that was on this machine's monotonic clock."""
        self._elapsed_ns, self._steps = elapsed_ns, ClockSteps("the clock of Redis")
        self._clock_at = 0.0
        self._open = True
        self._has_headroom, self._look_at = True, 0.0
        self._running: set[asyncio.Future[Any]] = set()
        address.check(url)
        self._url = url
        self.doubted = 0
        """By how much the server's clock was ahead at the start, in microseconds, while nobody trusts it."""
        self._work = Client(url, timeout_seconds=_WORK_SECONDS, connections=32)
        self._pipeline = AutoPipeline(self._work)
        self._ack = Client(url, timeout_seconds=ack_seconds, connections=16)
        self.notifications = Notifications(url, self.keys.notifications)
        self._watch = checks.Watch(self._work, self.keys)

    async def open(self) -> None:
        """Look whether it can be trusted. Raises StoreRefused and StoreUnavailable."""
        try:
            try:
                await checks.check(self._work, self.keys)
                self._steps.begin(int(await self._work.command("GET", self.keys.ahead) or 0), self._elapsed())
                await self._doubt_clock(await self.look_at_clock())
            except StoreUnavailable as error:
                raise address.at_first(self._url, error) from error.__cause__
            await self.notifications.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Take no more calls, let those that run end, and disconnect."""
        self._open = False
        self.notifications.tell_all()
        while self._running:
            await asyncio.wait(self._running)
        await self._pipeline.ended()
        await self.notifications.close()
        await self._ack.close()
        await self._work.close()

    def seen(self, micros: int) -> datetime:
        """A moment that somebody is told of."""
        if micros > self._latest:
            self._latest, self._latest_at = micros, time.monotonic()
        return moment(self._latest)

    def carried(self) -> int:
        """What the clock is by what was seen, without asking the server. Nothing was seen: 0."""
        since = time.monotonic() - self._latest_at
        return self._latest and self._latest + int(since * _PACE * 1_000_000)

    async def now(self) -> datetime:
        self.check_open()
        clock = await self.to_its_end(self.look_at_clock())
        return self.seen(max(clock + self.offset - self._steps.ahead(self._elapsed()), self.carried()))

    async def _doubt_clock(self, clock: int) -> None:
        """Go on from the last moment that is stored when the server's clock is so far ahead that it may be wrong."""
        names = [f"{self.keys.base(partition)}:clock" for partition in PARTITIONS]
        last = max(int(moment or 0) for moment in [await self._work.command("GET", name) for name in names])
        ahead = clock - last
        if last and ahead > DOUBTED_MICROS and self._steps.ahead(self._elapsed()) < ahead - DOUBTED_MICROS:
            self.doubted = ahead
            self._steps.begin(ahead, self._elapsed())

    def trust_clock(self) -> None:
        """Follow the server's clock though it was far ahead at the start."""
        if self.doubted:
            self.doubted = 0
            self._steps.begin(0, self._elapsed())
            self.notifications.tell_all()

    async def look_at_clock(self) -> int:
        """Return what the server's clock says, in microseconds, and notice when it was set. Raises StoreUnavailable."""
        asked = self._elapsed()
        seconds, micros = await self._work.command("TIME")
        clock, heard = int(seconds) * 1_000_000 + int(micros), self._elapsed()
        self._steps.hear(clock, asked, heard)
        return clock

    async def keep_clock(self) -> None:
        """Look at the clock, once a second at most, and tell who starts later by how much it was set forward.

        Raises StoreUnavailable.
        """
        self.check_open()
        now = time.monotonic()
        if now >= self._clock_at:
            self._clock_at = now + _LOOK_SECONDS
            await self.to_its_end(self.look_at_clock())
            if ahead := self._steps.ahead(self._elapsed()):
                kept = ("SET", self.keys.ahead, ahead, "PX", _AHEAD_KEPT_MILLISECONDS)
                await self.to_its_end(self._work.command(*kept))

    async def ping(self) -> None:
        """Raises StoreUnavailable when it does not answer, and when it takes no writes: then nothing can be stored."""
        self.check_open()
        await self.to_its_end(self._ack.command("DEL", self.keys.nothing))

    async def has_headroom(self) -> bool:
        """Whether its memory is below `maxmemory`; there, it takes what ends work and nothing else."""
        self.check_open()
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            found = await self.to_its_end(self._work.command("INFO", "memory"))
            self._has_headroom = not found["maxmemory"] or found["used_memory"] < found["maxmemory"]
        return self._has_headroom

    async def look_for_losses(self) -> None:
        self.check_open()
        await self.to_its_end(self._watch.look())

    async def run(self, script: Script, partitions: Sequence[str], *told: Value) -> list[Any]:
        """One script in each of these partitions, in one round trip. Raises StoreUnavailable."""
        return await self.run_at(script, [(self.keys.base(partition), told) for partition in partitions])

    async def run_at(
        self, script: Script, places: Sequence[tuple[str, Sequence[Value]]], *, ack: bool = False
    ) -> list[Any]:
        """A script at the base of each place, told what is for there. Raises StoreUnavailable."""
        self.check_open()
        calls = self._headed([(script, base, told) for base, told in places])
        return await (self.to_its_end(self._ack.run(calls)) if ack else self._pipeline.run(calls))

    async def each_ack(self, calls: Sequence[Call]) -> list[Any]:
        """What a platform waits for: these calls, with its error in place of the answer of one that failed.

        Raises StoreUnavailable when none of them was answered.
        """
        self.check_open()
        return await self.to_its_end(self._ack.each(self._headed(calls)))

    def _headed(self, calls: Sequence[Call]) -> list[Call]:
        elapsed = self._elapsed()
        moved = self.offset - self._steps.ahead(elapsed)
        most = self._steps.at_most(elapsed)
        head: list[Value] = [moved, self.carried(), most and most + moved, self.keys.notifications]
        return [(script, base, [*head, *told]) for script, base, told in calls]

    async def to_its_end(self, call: Awaitable[T]) -> T:
        """Go on though the caller gives up: no connection is left in the middle of an answer, and `close` waits.

        Nor is a cancellation lost: redis-py swallows one that comes while it looks at a connection.
        """
        running = asyncio.ensure_future(call)
        self._running.add(running)
        running.add_done_callback(self._ended)
        return await asyncio.shield(running)

    def check_open(self) -> None:
        """Raises StoreUnavailable."""
        if not self._open:
            raise StoreUnavailable("the store is closed")

    def _elapsed(self) -> int:
        return self._elapsed_ns() // 1000

    def _ended(self, running: asyncio.Future[Any]) -> None:
        self._running.discard(running)
        if not running.cancelled():
            running.exception()  # who gave up does not ask
