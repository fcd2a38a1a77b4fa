"""The store's clock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from gateway.store.clock_steps import DOUBTED_MICROS, ClockSteps
from gateway.store.codec import span
from gateway.store.types import Kind

__all__ = ["Clock", "Moment", "Woken"]


Woken: TypeAlias = tuple[Kind, str | None]
"""A kind of lane, and its pool; None: any."""


class Moment(NamedTuple):
    """One moment on both clocks: the store's own, and the real one that leases run on."""

    now: int
    """Microseconds since 1970 on the store's clock. No two moments share one, so it also numbers fences."""
    real: float
    """Seconds of the machine's clock that nobody sets."""
    woken: set[Woken]
    """What the operation of this moment has made ready to be leased."""


class Clock:
    """Follows the machine's clock, but not the steps in which that is set: no deadline moves by them.

    When the machine's clock is set back this one runs on at the pace of the elapsed time. When it is set forward this
    one does so too, and catches up slowly, or with the next start (`ClockSteps`). It never goes backwards. `wall` gives
    nanoseconds since 1970, `elapsed` nanoseconds since any moment, those asleep included. Used from several threads.
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
        self._hear(self._base, self._read)

    @property
    def offset_seconds(self) -> float:
        """Added to the clock; a clock that was moved back stands until it has caught up."""
        return self._offset / 1_000_000

    @offset_seconds.setter
    def offset_seconds(self, seconds: float) -> None:
        with self._lock:
            self._offset = span(seconds)

    def start_after(self, high_water: int) -> None:
        """Begin behind the last moment that the file knows: right behind it, when the machine's clock is so far ahead
        that it may be wrong."""
        with self._lock:
            ahead = self._wall() // 1000 - high_water
            if high_water and ahead > DOUBTED_MICROS:
                self._doubted = ahead
                self._steps.begin(ahead, self._elapsed() // 1000)
                self._base, self._last = high_water * 1000, high_water  # nothing has been stamped before this
            self._base = max(self._base, high_water * 1000)
            self._last = max(self._last, high_water)

    @property
    def doubted_seconds(self) -> float:
        """By how much the machine's clock was ahead at the start, while nobody trusts it."""
        return self._doubted / 1_000_000

    def trust(self) -> None:
        """Follow the machine's clock though it was far ahead at the start."""
        with self._lock:
            if self._doubted:
                self._doubted = 0
                self._steps.begin(0, self._elapsed() // 1000)

    def tick(self) -> Moment:
        """The next moment: later than every one before it, by a microsecond at least."""
        with self._lock:
            wall, real = self._wall(), self._elapsed()
            self._hear(wall, real)
            self._base = max(self._base + real - self._read, wall - self._steps.ahead(real // 1000) * 1000)
            self._read = real
            self._last = max(self._last + 1, self._base // 1000 + self._offset)
            return Moment(self._last, real / 1e9, set())

    def _hear(self, wall: int, real: int) -> None:
        self._steps.hear(wall // 1000, real // 1000, real // 1000)
