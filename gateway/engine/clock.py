"""The clocks: the store's clock, estimated between two answers, and the skew of this machine's clock.

The skew is the difference between this machine's clock and the Date header of the platforms' answers. A clock far ahead
would expire and delete too early. A clock some minutes off stops a channel: Slack allows five minutes
(https://docs.slack.dev/authentication/verifying-requests-from-slack). So a store with a clock far ahead of the last
stored moment continues from the stored moment, until a platform agrees with the clock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

import aiohttp

from gateway.store.base import Store
from gateway.store.clock_steps import elapsed_ns, elapsed_seconds
from gateway.store.codec import micros, moment

_TIMELY_WITHIN = timedelta(seconds=60)
"""Longest time between receipt and stamp of a deciding event. A later event was replayed or held up."""
_ASKED_EVERY_SECONDS = 10.0


class StoreClock:
    """Estimate of the store's time: the last answer of the store, plus the time elapsed since on a monotonic clock."""

    def __init__(self, store: Store, elapsed: Callable[[], float] = lambda: elapsed_ns() / 1e9) -> None:
        self._store, self._elapsed = store, elapsed
        self._ahead: float | None = None
        """Seconds from the monotonic clock to the store's clock, without the store's offset."""
        self._observed = 0.0

    def observe(self, now: datetime) -> None:
        """Note the store's time, answered just now."""
        self._observed = self._elapsed()
        self._ahead = micros(now) / 1_000_000 - self._store.offset_seconds - self._observed

    async def keep(self) -> None:
        """Ask the store if the last answer is old, because the store's clock may have been set."""
        if self._ahead is None or self._elapsed() - self._observed > _ASKED_EVERY_SECONDS:
            self.observe(await self._store.now())

    async def now(self) -> datetime:
        """Return the store's time. The first call asks the store."""
        if self._ahead is None:
            self.observe(await self._store.now())
        return self.guess()

    def guess(self) -> datetime:
        """Return the estimated store's time, or this machine's time before the first answer of the store."""
        if self._ahead is None:
            return datetime.now(UTC)
        return datetime.fromtimestamp(self._ahead + self._elapsed() + self._store.offset_seconds, UTC)


def is_timely(stamp: datetime, received: object) -> bool:
    """Return True for an event stamped within a minute of receipt. `received`: microseconds since 1970."""
    return isinstance(received, int) and abs(stamp - moment(received)) <= _TIMELY_WITHIN


log = logging.getLogger("askfirst.clock")

AGREES_WITHIN_SECONDS: Final = 120.0
_TRUSTED_WITHIN_SECONDS: Final = 3600.0
_LOOK_SECONDS: Final = 30.0
_SAID_SECONDS: Final = 3600.0


class Skew:
    """The skew measured by this process. `trust` is called when a platform roughly agrees with the clock.

    `now` is this machine's clock. `elapsed` counts seconds.
    """

    def __init__(
        self,
        trust: Callable[[], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        elapsed: Callable[[], float] = elapsed_seconds,
    ) -> None:
        self._trust, self._now, self._elapsed = trust, now, elapsed
        self._look_at: dict[str, float] = {}
        self._said_at = -_SAID_SECONDS
        self.seconds: float | None = None
        """Seconds of this machine's clock ahead of a platform's clock. None before the first answer of a platform."""

    @property
    def is_off(self) -> bool:
        """True if the clock is wrong by more than two minutes."""
        return self.seconds is not None and abs(self.seconds) > AGREES_WITHIN_SECONDS

    def observe(self, host: str, date: str | None) -> None:
        """Compare the clock with the Date of a host's answer, for each host at most twice a minute."""
        elapsed = self._elapsed()
        if date is None or elapsed < self._look_at.get(host, 0.0):
            return
        self._look_at[host] = elapsed + _LOOK_SECONDS
        seconds = skew_of(date, self._now())
        if seconds is None:
            return
        self.seconds = seconds
        if abs(seconds) <= _TRUSTED_WITHIN_SECONDS:
            self._trust()
        if self.is_off and elapsed - self._said_at >= _SAID_SECONDS:
            self._said_at = elapsed
            log.warning(
                "this machine's clock is %.0f seconds %s that of %s: webhooks may be refused as stale, and deadlines "
                "are wrong. Set it by NTP",
                abs(seconds),
                "ahead of" if seconds > 0 else "behind",
                host,
            )


def skew_of(date: str, now: datetime) -> float | None:
    """Return the seconds from an HTTP date to `now`, or None for an unreadable date."""
    try:
        return (now - parsedate_to_datetime(date)).total_seconds()
    except (ValueError, TypeError):
        return None


def watched(skew: Skew) -> aiohttp.TraceConfig:
    """Return a trace configuration for a session: `skew` observes the session's answers."""

    async def observe(session: object, context: object, end: aiohttp.TraceRequestEndParams) -> None:
        skew.observe(end.url.host or "", end.response.headers.get("Date"))

    config = aiohttp.TraceConfig()
    config.on_request_end.append(observe)
    return config
