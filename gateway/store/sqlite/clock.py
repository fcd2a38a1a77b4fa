"""The clock of an embedded store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from gateway.store.clock_steps import DOUBTED_MICROS, ClockSteps
from gateway.store.codec import span
from gateway.store.types import Kind

Woken: TypeAlias = tuple[Kind, str | None]
"""The kind of a lane, and its pool (None: any)."""


class Moment(NamedTuple):
    """One moment of both clocks: the store's, and the monotonic one of leases."""

    now: int
    """Microseconds since 1970 on the store's clock. It is unique, and so also numbers fences."""
    real: float
    """Seconds of the machine's monotonic clock."""
    woken: set[Woken]
    """The lanes that the operation of this moment has made ready."""


class Clock:
    """A clock that follows the machine's, but not its steps, so that no deadline moves by them.

    When the machine's clock is set back or forward, this one continues at the rate of the elapsed time. After a step
    forward it catches up slowly, or at the next start (`ClockSteps`). It never goes backwards. `wall` returns
    nanoseconds since 1970. `elapsed` returns nanoseconds of a monotonic clock that counts the time asleep. Thread-safe.
    """

    def __init__(self, wall: Callable[[], int], elapsed: Callable[[], int]) -> None:
        self._wall = wall
        self._elapsed = elapsed
        self._lock = threading.Lock()
        self._steps = ClockSteps("the clock of this machine")
        self._base = wall()
        self._read = elapsed()
        self._offset = 0
        self._last = 0
        self._doubted = 0
        self._observe(self._base, self._read)

    @property
    def offset_seconds(self) -> float:
        """Seconds added to the clock. If they are reduced, the clock stands until the time has caught up."""
        return self._offset / 1_000_000

    @offset_seconds.setter
    def offset_seconds(self, seconds: float) -> None:
        with self._lock:
            self._offset = span(seconds)

    def start_after(self, high_water: int) -> None:
        """Start after the latest moment in the file: right after it, if the machine's clock is so far ahead that it may
        be wrong."""
        with self._lock:
            ahead = self._wall() // 1000 - high_water
            if high_water and ahead > DOUBTED_MICROS:
                self._doubted = ahead
                self._steps.begin(ahead, self._elapsed() // 1000)
                self._base, self._last = high_water * 1000, high_water  # no stamp is older than this
            self._base = max(self._base, high_water * 1000)
            self._last = max(self._last, high_water)

    @property
    def doubted_seconds(self) -> float:
        """By how much the machine's clock was ahead at the start, in seconds; 0 once it is trusted."""
        return self._doubted / 1_000_000

    def trust(self) -> None:
        """Follow the machine's clock although it was far ahead at the start."""
        with self._lock:
            if self._doubted:
                self._doubted = 0
                self._steps.begin(0, self._elapsed() // 1000)

    def tick(self) -> Moment:
        """Return the next moment, at least a microsecond later than every one before it."""
        with self._lock:
            wall, real = self._wall(), self._elapsed()
            self._observe(wall, real)
            self._base = max(self._base + real - self._read, wall - self._steps.ahead(real // 1000) * 1000)
            self._read = real
            self._last = max(self._last + 1, self._base // 1000 + self._offset)
            return Moment(self._last, real / 1e9, set())

    def _observe(self, wall: int, real: int) -> None:
        self._steps.observe(wall // 1000, real // 1000, real // 1000)
