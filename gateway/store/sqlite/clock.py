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
    """A moment on both clocks: the store's, and the monotonic clock of leases."""

    now: int
    """Microseconds since 1970 on the store's clock. Unique, and so also the number of a fence."""
    real: float
    """Seconds of the machine's monotonic clock, time asleep included."""
    woken: set[Woken]
    """The lanes made ready by the operation of this moment."""


class Clock:
    """A clock that runs with the machine's clock and ignores its jumps, so no jump moves a deadline.

    When the machine's clock is set back or forward, this clock continues at the rate of the elapsed time. After a step
    forward, this clock catches up slowly, or at the next start (`ClockSteps`). The time never goes backwards. `wall`
    returns nanoseconds since 1970. `elapsed` returns nanoseconds of a monotonic clock, including the time asleep.
    Thread-safe.
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
        """Seconds added to the clock. After a reduction, the clock stands until the time has caught up."""
        return self._offset / 1_000_000

    @offset_seconds.setter
    def offset_seconds(self, seconds: float) -> None:
        with self._lock:
            self._offset = span(seconds)

    def start_after(self, high_water: int) -> None:
        """Start after the latest moment in the file: right after, if the machine's clock is far enough ahead to be
        wrong."""
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
        """Seconds of the machine's clock ahead at the start; 0 once trusted."""
        return self._doubted / 1_000_000

    def trust(self) -> None:
        """Follow the machine's clock although far ahead at the start."""
        with self._lock:
            if self._doubted:
                self._doubted = 0
                self._steps.begin(0, self._elapsed() // 1000)

    def tick(self) -> Moment:
        """Return the next moment, at least a microsecond later than all before."""
        with self._lock:
            wall, real = self._wall(), self._elapsed()
            self._observe(wall, real)
            self._base = max(self._base + real - self._read, wall - self._steps.ahead(real // 1000) * 1000)
            self._read = real
            self._last = max(self._last + 1, self._base // 1000 + self._offset)
            return Moment(self._last, real / 1e9, set())

    def _observe(self, wall: int, real: int) -> None:
        self._steps.observe(wall // 1000, real // 1000, real // 1000)
