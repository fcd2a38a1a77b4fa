"""Steps of a clock: set by hand, by NTP at its start, or by whoever wakes a virtual machine.

What was promised to last 15 minutes lasts 15 minutes, by a clock that nobody sets. All moments here are microseconds.
"""

from __future__ import annotations

import logging
import time
from typing import Final

__all__ = ["DOUBTED_MICROS", "ClockSteps", "elapsed_ns"]

log = logging.getLogger("askfirst.store")

DOUBTED_MICROS: Final = 86_400_000_000
"""A clock that is so far ahead of the last moment that a store knows may be wrong: somebody else has to agree."""
_NOTICED: Final = 2_000_000
"""Less is followed at once: no deadline is missed by it, and clocks are corrected by so much all the time."""
_SURE_WITHIN: Final = 1_000_000
"""When a clock is asked over a wire: a slower answer says too little."""
_CATCHES_UP: Final = 1_000
"""One part in so many of the time that passes: 15 minutes are a second shorter until a step is made good."""

_ASLEEP_TOO = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""Linux has a clock of its own that goes on while the machine sleeps; elsewhere the monotonic one does."""


def elapsed_ns() -> int:
    """Return nanoseconds since some moment, on a clock that nobody sets and that goes on while the machine sleeps."""
    return time.monotonic_ns() if _ASLEEP_TOO is None else time.clock_gettime_ns(_ASLEEP_TOO)


class ClockSteps:
    """By how much a clock is ahead since it was set forward, beside one that nobody sets."""

    def __init__(self, whose: str) -> None:
        """`whose` clock it is, for the log."""
        self._whose = whose
        self._ahead, self._since = 0, 0
        self._known: tuple[int, int, int] | None = None
        """What the clock said last, and between which moments of the other one."""

    def begin(self, ahead: int, elapsed: int) -> None:
        """Go on with what others have noticed."""
        self._ahead, self._since = ahead, elapsed

    def hear(self, clock: int, asked: int, heard: int) -> None:
        """Take note of what the clock has said between two moments of the other one."""
        if self._known is not None:
            if heard - asked > _SURE_WITHIN:
                return
            before, earliest, latest = self._known
            forward = clock - before - (heard - earliest)
            back = clock - before - (asked - latest)
            if forward > _NOTICED:
                log.warning(
                    "%s was set forward by %.0f seconds. Deadlines stay as far away as they were: the store's time "
                    "goes on from where it was, and makes up for it by a second in %d.",
                    self._whose,
                    forward / 1e6,
                    _CATCHES_UP,
                )
                self.begin(self.ahead(heard) + forward, heard)
            elif back < -_NOTICED:
                self.begin(max(self.ahead(heard) + back, 0), heard)
        self._known = clock, asked, heard

    def ahead(self, elapsed: int) -> int:
        """Return what is to be taken off what the clock says."""
        return self._ahead and max(self._ahead - (elapsed - self._since) // _CATCHES_UP, 0)

    def at_most(self, elapsed: int) -> int:
        """Return what the clock cannot say yet unless it was set forward since it was last heard; 0: it never was."""
        if self._known is None:
            return 0
        clock, earliest, _ = self._known
        passed = elapsed - earliest
        return clock + passed + passed // _CATCHES_UP + _NOTICED
