"""The clocks: the store's, estimated by this process between its answers, and this machine's, beside the platforms'.

The skew is this machine's clock compared with the Date header of the platforms' answers. A clock that is far ahead
would expire and delete too early. One that is minutes off makes a channel deaf: Slack allows five
(https://docs.slack.dev/authentication/verifying-requests-from-slack). So a store that finds the clock far ahead of its
last moment continues from that moment until a platform agrees with the clock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

import aiohttp

from gateway.store.base import Store
from gateway.store.clock_steps import elapsed_ns
from gateway.store.codec import micros, moment

_TIMELY_WITHIN = timedelta(seconds=60)
"""An event whose stamp is further from its receipt decides no action: it was replayed or held up."""
_ASKED_EVERY_SECONDS = 10.0


class StoreClock:
    """Estimate of the store's time: its last answer, plus the time that a monotonic clock has counted since."""

    def __init__(self, store: Store, elapsed: Callable[[], float] = lambda: elapsed_ns() / 1e9) -> None:
        self._store, self._elapsed = store, elapsed
        self._ahead: float | None = None
        """Seconds from the monotonic clock to the store's, without its offset."""
        self._observed = 0.0

    def observe(self, now: datetime) -> None:
        """Note the time that the store answered just now."""
        self._observed = self._elapsed()
        self._ahead = micros(now) / 1_000_000 - self._store.offset_seconds - self._observed

    async def keep(self) -> None:
        """Ask the store if its last answer is old, because its clock may have been set."""
        if self._ahead is None or self._elapsed() - self._observed > _ASKED_EVERY_SECONDS:
            self.observe(await self._store.now())

    async def now(self) -> datetime:
        """Return the store's time. The first call asks the store."""
        if self._ahead is None:
            self.observe(await self._store.now())
        return self.guess()

    def guess(self) -> datetime:
        """Return the store's time as far as it is known, or this machine's before the store was asked."""
        if self._ahead is None:
            return datetime.now(UTC)
        return datetime.fromtimestamp(self._ahead + self._elapsed() + self._store.offset_seconds, UTC)


def is_timely(stamp: datetime, received: object) -> bool:
    """Return True for an event that was stamped within a minute of its receipt, in microseconds since 1970."""
    return isinstance(received, int) and abs(stamp - moment(received)) <= _TIMELY_WITHIN


log = logging.getLogger("askfirst.clock")

AGREES_WITHIN_SECONDS: Final = 120.0
_TRUSTED_WITHIN_SECONDS: Final = 3600.0
_LOOK_SECONDS: Final = 30.0
_SAID_SECONDS: Final = 3600.0


class Skew:
    """The skew that this process has measured. `trust` is called when a platform roughly agrees with the clock.

    `now` is this machine's clock. `elapsed` counts seconds.
    """

    def __init__(
        self,
        trust: Callable[[], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        self._trust, self._now, self._elapsed = trust, now, elapsed
        self._look_at: dict[str, float] = {}
        self._said_at = -_SAID_SECONDS
        self.seconds: float | None = None
        """Seconds by which this machine's clock is ahead of a platform's. None before a platform answered."""

    @property
    def is_off(self) -> bool:
        """True if the clock is wrong by more than two minutes."""
        return self.seconds is not None and abs(self.seconds) > AGREES_WITHIN_SECONDS

    def observe(self, host: str, date: str | None) -> None:
        """Compare the clock with the Date of a host's answer, for each host twice a minute at most."""
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
    """Return the seconds by which `now` is ahead of an HTTP date, or None for an unreadable date."""
    try:
        return (now - parsedate_to_datetime(date)).total_seconds()
    except (ValueError, TypeError):
        return None


def watched(skew: Skew) -> aiohttp.TraceConfig:
    """Return the trace configuration with which a session's answers are observed."""

    async def observe(session: object, context: object, end: aiohttp.TraceRequestEndParams) -> None:
        skew.observe(end.url.host or "", end.response.headers.get("Date"))

    config = aiohttp.TraceConfig()
    config.on_request_end.append(observe)
    return config
