"""The store's clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from gateway.store.base import Kind
from gateway.store.codec import span

__all__ = ["Clock", "Moment", "Woken"]


Woken: TypeAlias = tuple[Kind, str | None]
"""A kind of lane, and its pool; None: any."""


class Moment(NamedTuple):
    """One moment on both clocks: the store's own, and the real one that leases run on."""

    now: int
    """Microseconds since 1970 on the store's clock. No two moments share one, so it also numbers fences."""
    real: float
    """Seconds of the machine's monotonic clock."""
    woken: set[Woken]
    """What the operation of this moment has made ready to be leased."""


class Clock:
    """Follows the machine's clock forward, never backwards.

    When the machine's clock is set back this one runs on at the pace of the monotonic clock, so no deadline grows.
    `wall` gives nanoseconds since 1970, `monotonic` nanoseconds since any moment. Used from several threads.
    """

    def __init__(self, wall: Callable[[], int], monotonic: Callable[[], int]) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._base = wall()
        self._read = monotonic()
        self._offset = 0
        self._last = 0

    @property
    def offset_seconds(self) -> float:
        """Added to the clock; a clock that was moved back stands until it has caught up."""
        return self._offset / 1_000_000

    @offset_seconds.setter
    def offset_seconds(self, seconds: float) -> None:
        with self._lock:
            self._offset = span(seconds)

    def start_after(self, high_water: int) -> None:
        """Begin behind the last moment that the file knows."""
        with self._lock:
            self._base = max(self._base, high_water * 1000)
            self._last = max(self._last, high_water)

    def tick(self) -> Moment:
        """The next moment: later than every one before it, by a microsecond at least."""
        with self._lock:
            real = self._monotonic()
            self._base = max(self._base + real - self._read, self._wall())
            self._read = real
            self._last = max(self._last + 1, self._base // 1000 + self._offset)
            return Moment(self._last, real / 1e9, set())
