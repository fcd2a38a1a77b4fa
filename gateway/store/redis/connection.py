"""The connections to the server, the server's clock, and the scripts in the partitions.

The address stands in ASKFIRST_STORE. redis-py uses database 0 for an unreadable number, fails on an unknown option, and
lets an option of the address override the options of our connections. So mistakes silently accepted by redis-py are
refused here.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, TypeVar
from urllib.parse import parse_qsl, urlsplit

from redis.exceptions import ConnectionError as NotThere
from redis.exceptions import InvalidResponse
from redis.exceptions import TimeoutError as NoAnswer

from gateway.store.clock_steps import DOUBTED_MICROS, ClockSteps
from gateway.store.codec import moment
from gateway.store.errors import StoreRefused, StoreUnavailable
from gateway.store.redis import checks
from gateway.store.redis.client import AutoPipeline, Call, Client, Value, is_lasting
from gateway.store.redis.keys import PARTITIONS, Keys
from gateway.store.redis.notifications import Notifications
from gateway.store.redis.scripts import Script


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisTimings:
    """The times of a Redis store, in seconds."""

    work_seconds: float = 5.0
    """Timeout of calls without a waiting platform."""
    watch_seconds: float = 1.0
    """The least time between two looks for lost data."""
    look_again_seconds: float = 5.0
    """A waiter looks into all partitions at least this often, or as often as a lease may lapse. New work is notified,
    and each look shows the lanes ready by time later. So no lease taken after a look lapses before the next look."""
    gather_seconds: float = 0.002
    """After a call with several batches of events, the next batches wait this long for more, as during a call. A shared
    call takes a fraction of the time of several calls. An event arriving alone does not wait."""
    counted_seconds: float = 1.0
    """Greatest age of the count of events in the other partitions."""


T = TypeVar("T")

_LOOK_SECONDS: Final = 1.0
_AHEAD_KEPT_MILLISECONDS: Final = 60_000
"""How long a step of the clock is kept for the next process. A later process uses the server's clock unchanged."""
_PACE: Final = 0.999
"""Rate of the time estimated here without asking the server, slower than any correct clock. So the estimate is never
ahead of a correct server clock, and a clock set back catches up."""


class Server:
    """Two clients of a server: `ack`, with a short timeout, for calls with a waiting platform, and one for the rest.

    The calls of the second are pipelined (`AutoPipeline`).

    Every script has the same first arguments, among them the offset of the clock, the estimated time here (a lower
    limit for the script), and the channel of the notifications. The clock is the server's. After a step back, or after
    a takeover by a replica with a clock behind, time continues from the latest moment seen here: an open question does
    not stay open until the server has caught up, and a retry does not wait for that. After a step forward, time
    continues from the value before (`ClockSteps`), for each process with an earlier look at the clock, and for
    processes started while one of these runs. So no open question expires early.
    """

    def __init__(
        self, url: str, prefix: str, ack_seconds: float, elapsed_ns: Callable[[], int], timings: RedisTimings
    ) -> None:
        """Check the address. Raises StoreRefused."""
        self.keys = Keys(prefix)
        self.offset = 0
        """Offset of the store's clock, in microseconds."""
        self._latest, self._latest_at = 0, 0.0
        """The latest moment seen, and the time.monotonic() then."""
        self._wrote: dict[str, int] = {}
        """Base of a partition's keys -> the latest stamp of a write there, in microseconds."""
        self._elapsed_ns, self._steps = elapsed_ns, ClockSteps("the clock of Redis")
        self._clock_at = 0.0
        self._open = True
        self._has_headroom, self._look_at = True, 0.0
        self._running: set[asyncio.Future[Any]] = set()
        check_address(url)
        self._url = url
        self.doubted = 0
        """Microseconds of the server's clock ahead at the start; 0 once trusted."""
        self._work = Client(url, timeout_seconds=timings.work_seconds, connections=32)
        self._pipeline = AutoPipeline(self._work)
        self._ack = Client(url, timeout_seconds=ack_seconds, connections=16)
        self.notifications = Notifications(url, self.keys.notifications)
        self._watch = checks.Watch(self._work, self.keys, look_seconds=timings.watch_seconds)

    async def open(self) -> None:
        """Connect, and check the server. Raises StoreRefused and StoreUnavailable."""
        try:
            try:
                await checks.check(self._work, self.keys)
                self._steps.begin(int(await self._work.command("GET", self.keys.ahead) or 0), self._elapsed())
                await self._doubt_clock(await self.look_at_clock())
            except StoreUnavailable as error:
                cause, advised = error.__cause__, advise(self._url, error)
                if isinstance(cause, Exception) and is_lasting(cause):
                    raise StoreRefused(str(advised)) from cause
                raise advised from cause
            await self.notifications.open()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Refuse new calls, complete the running calls, and disconnect."""
        self._open = False
        self.notifications.notify_all()
        while self._running:
            await asyncio.wait(self._running)
        await self._pipeline.drain()
        await self.notifications.close()
        await self._ack.close()
        await self._work.close()

    def seen(self, micros: int) -> datetime:
        """Record a moment of the server's clock, in microseconds. Return the latest recorded moment."""
        if micros > self._latest:
            self._latest, self._latest_at = micros, time.monotonic()
        return moment(self._latest)

    def wrote(self, partition: str, micros: int) -> None:
        """Record the stamp of an acknowledged write. A partition with an older clock later has lost the write."""
        self.seen(micros)
        base = self.keys.base(partition)
        self._wrote[base] = max(micros, self._wrote.get(base, 0))

    def carried(self) -> int:
        """Return the estimated time in microseconds, without asking the server. 0 before any moment was seen."""
        since = time.monotonic() - self._latest_at
        return self._latest and self._latest + int(since * _PACE * 1_000_000)

    async def now(self) -> datetime:
        """Return the store's clock. Raises StoreUnavailable."""
        self.check_open()
        clock = await self.to_its_end(self.look_at_clock())
        return self.seen(max(clock + self.offset - self._steps.ahead(self._elapsed()), self.carried()))

    async def _doubt_clock(self, clock: int) -> None:
        """Continue from the latest stored moment if the server's clock is far enough ahead to be wrong."""
        names = [f"{self.keys.base(partition)}:clock" for partition in PARTITIONS]
        last = max(int(moment or 0) for moment in [await self._work.command("GET", name) for name in names])
        ahead = clock - last
        if last and ahead > DOUBTED_MICROS and self._steps.ahead(self._elapsed()) < ahead - DOUBTED_MICROS:
            self.doubted = ahead
            self._steps.begin(ahead, self._elapsed())

    def trust_clock(self) -> None:
        """Follow the server's clock although far ahead at the start."""
        if self.doubted:
            self.doubted = 0
            self._steps.begin(0, self._elapsed())
            self.notifications.notify_all()

    async def look_at_clock(self) -> int:
        """Return the server's clock in microseconds, and notice steps. Raises StoreUnavailable."""
        asked = self._elapsed()
        seconds, micros = await self._work.command("TIME")
        clock, answered = int(seconds) * 1_000_000 + int(micros), self._elapsed()
        self._steps.observe(clock, asked, answered)
        return clock

    async def keep_clock(self) -> None:
        """Look at the clock, at most once a second, and store the lead for processes started later.

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
        """Raise StoreUnavailable if the server does not answer or accepts no writes."""
        self.check_open()
        await self.to_its_end(self._ack.command("DEL", self.keys.nothing))

    async def has_headroom(self) -> bool:
        """Return True if the server's memory is below `maxmemory`. Above, only begun work is completed."""
        self.check_open()
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            found = await self.to_its_end(self._work.command("INFO", "memory"))
            self._has_headroom = not found["maxmemory"] or found["used_memory"] < found["maxmemory"]
        return self._has_headroom

    async def look_for_losses(self) -> None:
        """Log if the server has lost data or has another form; see `Watch`. Raises StoreUnavailable once closed."""
        if not self._open:
            raise StoreUnavailable("the store is closed")
        if await self.to_its_end(self._watch.look()):
            self._wrote.clear()  # it is told

    async def scan_keys(
        self, cursor: int, pattern: bytes, most: int, only: Literal["list"] | None
    ) -> tuple[int, list[bytes]]:
        """Return the keys of a pattern among the next keys, and the next cursor; 0 at the end.

        `only`: keys of this type.

        Raises StoreUnavailable.
        """
        self.check_open()
        of_type = ("TYPE", only) if only is not None else ()
        call = self._work.command("SCAN", cursor, "MATCH", pattern, "COUNT", most, *of_type)
        following, names = await self.to_its_end(call)
        return int(following), names

    async def run(self, script: Script, partitions: Sequence[str], *arguments: Value) -> list[Any]:
        """Run a script in each of these partitions, in a single round trip. Raises StoreUnavailable."""
        return await self.run_at(script, [(self.keys.base(partition), arguments) for partition in partitions])

    async def run_at(
        self, script: Script, places: Sequence[tuple[str, Sequence[Value]]], *, ack: bool = False
    ) -> list[Any]:
        """Run a script for each base of keys, with separate arguments. Raises StoreUnavailable.

        `ack` uses the client with the short timeout.
        """
        self.check_open()
        calls = self._headed([(script, base, arguments) for base, arguments in places])
        return await (self.to_its_end(self._ack.run(calls)) if ack else self._pipeline.run(calls))

    async def each_ack(self, calls: Sequence[Call]) -> list[Any]:
        """Run calls with a waiting platform. Return the error of a failed call in place of its answer.

        Raises StoreUnavailable when no call was answered.
        """
        self.check_open()
        return await self.to_its_end(self._ack.each(self._headed(calls)))

    def _headed(self, calls: Sequence[Call]) -> list[Call]:
        elapsed = self._elapsed()
        moved = self.offset - self._steps.ahead(elapsed)
        most = self._steps.at_most(elapsed)
        head: list[Value] = [moved, self.carried(), most and most + moved, self.keys.notifications]
        return [(script, base, [*head, self._wrote.get(base, 0), *arguments]) for script, base, arguments in calls]

    async def to_its_end(self, call: Awaitable[T]) -> T:
        """Complete the call even if the caller is cancelled, so no connection is left in the middle of an answer.

        `close` waits for the call. The caller's cancellation is not lost: redis-py swallows a cancellation while
        checking a connection.
        """
        running = asyncio.ensure_future(call)
        self._running.add(running)
        running.add_done_callback(self._forget)
        return await asyncio.shield(running)

    def check_open(self) -> None:
        """Raise StoreUnavailable once the store is closed, and while the stored form is another."""
        if not self._open:
            raise StoreUnavailable("the store is closed")
        if self._watch.refused is not None:
            raise StoreUnavailable(f"Redis cannot be used now: {self._watch.refused}")

    def _elapsed(self) -> int:
        return self._elapsed_ns() // 1000

    def _forget(self, running: asyncio.Future[Any]) -> None:
        self._running.discard(running)
        if not running.cancelled():
            running.exception()  # marks the error as retrieved


log = logging.getLogger("askfirst.store")

_TLS: Final[Mapping[str, str]] = {
    "ssl_ca_certs": ".+",
    "ssl_ca_path": ".+",
    "ssl_certfile": ".+",
    "ssl_keyfile": ".+",
    "ssl_password": ".+",
    "ssl_cert_reqs": "none|optional|required",
    "ssl_check_hostname": "true|false",
}
"""Option -> pattern of its values."""


def check_address(url: str) -> None:
    """Check the address. Raises StoreRefused, without quoting the address and so the password.

    Warns if the server's certificate is not verified.
    """
    try:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        right = parts.port != 0 and re.fullmatch("(/[0-9]{0,9})?", parts.path) is not None and not parts.fragment
        if not right:
            raise ValueError
    except ValueError:  # its text may hold the password
        raise StoreRefused(
            "ASKFIRST_STORE is no address: write redis://[user:password@]host:6379[/number], "
            "and in a password %2F for /, %3F for ?, %23 for #, %40 for @ and %25 for %"
        ) from None
    if given and parts.scheme != "rediss":
        raise StoreRefused("ASKFIRST_STORE has options, which are for TLS: write rediss://, or nothing from the ? on")
    options = dict(given)
    if len(options) < len(given) or not all(re.fullmatch(_TLS.get(name, "(?!)"), options[name]) for name in options):
        raise StoreRefused(
            f"ASKFIRST_STORE has an option that is none, or a value that one cannot have: there are {', '.join(_TLS)}"
        )
    if options.get("ssl_cert_reqs") == "none" or options.get("ssl_check_hostname") == "false":
        log.warning(
            "Redis need not prove that it is the one that ASKFIRST_STORE names: whoever is on the way there can read "
            "and change everything. Name its CA with ssl_ca_certs."
        )


def advise(url: str, error: StoreUnavailable) -> StoreUnavailable:
    """Return the error of the very first call, with advice on a wrong scheme of the address."""
    cause = error.__cause__
    if urlsplit(url).scheme == "rediss":
        if isinstance(cause, (TimeoutError, NoAnswer)):
            return StoreUnavailable(f"{error}: see that its port takes TLS, or write redis:// in ASKFIRST_STORE")
        if type(cause) is NotThere and _was_there(cause):
            return StoreUnavailable(
                "Redis cannot be used now: it hung up: if it wants to know who calls, name a certificate and its key "
                "in ASKFIRST_STORE (rediss://host:6379?ssl_certfile=...&ssl_keyfile=...)"
            )
    elif isinstance(cause, InvalidResponse) or (type(cause) is NotThere and _was_there(cause)):
        return StoreUnavailable(
            "Redis cannot be used now: it hung up at the first word: if its port takes TLS, write rediss:// in "
            "ASKFIRST_STORE; if not, see whether it is a Redis at all"
        )
    return error


def _was_there(error: Exception) -> bool:
    """Return True if a connection was made, and then broke."""
    below = error.__cause__ or error.__context__
    return not isinstance(below, OSError) or isinstance(below, (ConnectionResetError, BrokenPipeError))
