"""The store's clock as a process knows it without asking."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from gateway.store.base import Store
from gateway.store.clock_steps import elapsed_ns
from gateway.store.codec import micros, moment

__all__ = ["StoreClock", "is_timely"]

_TIMELY_WITHIN = timedelta(seconds=60)
"""An event whose stamp is further from the moment of its receipt decides nothing: it was replayed, or held up."""
_ASKED_EVERY_SECONDS = 10.0


class StoreClock:
    """Goes on from the last moment that the store told, at the pace of a clock that nobody sets."""

    def __init__(self, store: Store, elapsed: Callable[[], float] = lambda: elapsed_ns() / 1e9) -> None:
        self._store, self._elapsed = store, elapsed
        self._ahead: float | None = None
        """Seconds from that clock to the store's, without its offset."""
        self._observed = 0.0

    def observe(self, now: datetime) -> None:
        """Take note of what the store's clock has shown just now."""
        self._observed = self._elapsed()
        self._ahead = micros(now) / 1_000_000 - self._store.offset_seconds - self._observed

    async def keep(self) -> None:
        """Ask the store when it has told nothing for a while: its clock may have been set."""
        if self._ahead is None or self._elapsed() - self._observed > _ASKED_EVERY_SECONDS:
            self.observe(await self._store.now())

    async def now(self) -> datetime:
        """Return the store's time; the first call asks the store."""
        if self._ahead is None:
            self.observe(await self._store.now())
        return self.guess()

    def guess(self) -> datetime:
        """Return the store's time as far as it is known; this machine's before the store was ever asked."""
        if self._ahead is None:
            return datetime.now(UTC)
        return datetime.fromtimestamp(self._ahead + self._elapsed() + self._store.offset_seconds, UTC)


def is_timely(stamp: datetime, received: object) -> bool:
    """Return True when an event was stamped about when it was received, in microseconds since 1970."""
    return isinstance(received, int) and abs(stamp - moment(received)) <= _TIMELY_WITHIN
