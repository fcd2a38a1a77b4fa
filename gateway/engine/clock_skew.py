"""Whether this machine's clock is right, by the clocks of the platforms: each of their answers carries a Date.

A clock that is far ahead would expire and delete what is wanted, and one that is minutes off makes a channel deaf:
Slack takes five (https://docs.slack.dev/authentication/verifying-requests-from-slack). So a store that finds a clock
far ahead of what it knows goes on from there until a platform agrees with the clock.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import aiohttp

__all__ = ["AGREES_WITHIN_SECONDS", "Skew", "skew_of", "watched"]

log = logging.getLogger("askfirst.clock")

AGREES_WITHIN_SECONDS: Final = 120.0
_TRUSTED_WITHIN_SECONDS: Final = 3600.0
_LOOK_SECONDS: Final = 30.0
_SAID_SECONDS: Final = 3600.0


class Skew:
    """What this process knows of it. `trust` is called when a platform agrees with the clock, roughly.

    `now` is this machine's clock, `elapsed` counts seconds.
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
        """By how much this machine's clock is ahead of a platform's; None: none has said."""

    @property
    def is_off(self) -> bool:
        return self.seconds is not None and abs(self.seconds) > AGREES_WITHIN_SECONDS

    def hear(self, host: str, date: str | None) -> None:
        """Take note of the Date of an answer of this host; of each host twice a minute at most."""
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
    """Return by how many seconds `now` is ahead of an HTTP date; None for what is no date."""
    try:
        return (now - parsedate_to_datetime(date)).total_seconds()
    except (ValueError, TypeError):
        return None


def watched(skew: Skew) -> aiohttp.TraceConfig:
    """Return what has a session's answers heard."""

    async def heard(session: object, context: object, end: aiohttp.TraceRequestEndParams) -> None:
        skew.hear(end.url.host or "", end.response.headers.get("Date"))

    config = aiohttp.TraceConfig()
    config.on_request_end.append(heard)
    return config
