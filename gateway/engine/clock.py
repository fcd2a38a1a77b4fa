"""The store's clock, estimated by this process between answers of the store."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from gateway.store.base import Store
from gateway.store.clock_steps import elapsed_ns
from gateway.store.codec import micros, moment

__all__ = ["StoreClock", "is_timely"]

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
