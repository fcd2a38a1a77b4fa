"""Steps of a clock: set by hand, by NTP at the start, or when a virtual machine is resumed.

A deadline of 15 minutes lasts 15 minutes of a monotonic clock. All moments here are microseconds.
"""

from __future__ import annotations

import logging
import time
from typing import Final

log = logging.getLogger("askfirst.store")

DOUBTED_MICROS: Final = 86_400_000_000
"""A clock this far ahead of the latest moment in a store may be wrong, until confirmed by an operator."""
_NOTICED: Final = 2_000_000
"""A smaller step is followed at once: no deadline is missed, and clocks are usually corrected this way."""
_SURE_WITHIN: Final = 1_000_000
"""A remote clock with a slower answer is not compared."""
_CATCHES_UP: Final = 1_000
"""The divisor of the passing time for catching up after a step: 15 minutes are a second shorter."""

_ASLEEP_TOO = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""Linux has a separate clock with the time asleep. Elsewhere the monotonic clock includes this time."""


def elapsed_ns() -> int:
    """Return the nanoseconds of a monotonic clock, including the time asleep."""
    return time.monotonic_ns() if _ASLEEP_TOO is None else time.clock_gettime_ns(_ASLEEP_TOO)


def elapsed_seconds() -> float:
    """Return the seconds of a monotonic clock, including the time asleep: leases lapse during a suspend."""
    return elapsed_ns() / 1e9


class ClockSteps:
    """The lead of a clock since a step forward, by comparison with a monotonic clock."""

    def __init__(self, name: str) -> None:
        """`name` of the clock, for the log."""
        self._name = name
        self._ahead, self._since = 0, 0
        self._known: tuple[int, int, int] | None = None
        """The last value of the clock, and the moments of the monotonic clock before and after."""

    def begin(self, ahead: int, elapsed: int) -> None:
        """Start from an earlier noticed step, of this process or another."""
        self._ahead, self._since = ahead, elapsed

    def observe(self, clock: int, asked: int, answered: int) -> None:
        """Record a value of the clock, read between two moments of the monotonic clock."""
        if self._known is not None:
            if answered - asked > _SURE_WITHIN:
                return
            before, earliest, latest = self._known
            forward = clock - before - (answered - earliest)
            back = clock - before - (asked - latest)
            if forward > _NOTICED:
                log.warning(
                    "%s was set forward by %.0f seconds. Deadlines stay as far away as they were: the store's time "
                    "goes on from where it was, and makes up for it by a second in %d.",
                    self._name,
                    forward / 1e6,
                    _CATCHES_UP,
                )
                self.begin(self.ahead(answered) + forward, answered)
            elif back < -_NOTICED:
                self.begin(max(self.ahead(answered) + back, 0), answered)
        self._known = clock, asked, answered

    def ahead(self, elapsed: int) -> int:
        """Return the lead of the clock at a moment of the monotonic clock."""
        return self._ahead and max(self._ahead - (elapsed - self._since) // _CATCHES_UP, 0)

    def at_most(self, elapsed: int) -> int:
        """Return the greatest possible value of the clock without a step since the last reading; 0 before the first
        reading."""
        if self._known is None:
            return 0
        clock, earliest, _ = self._known
        passed = elapsed - earliest
        return clock + passed + passed // _CATCHES_UP + _NOTICED
