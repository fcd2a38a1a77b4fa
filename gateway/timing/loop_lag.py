"""The lag of an event loop: the delay of callbacks after the due time.

Work on the loop delays everything else there: acknowledgements, timers, the renewal of leases. A beat measures the lag.
Measuring distinguishes a busy loop from a slow store, and lets a busy loop begin less work until the lag is gone.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Final
from weakref import ref

BEAT_SECONDS: Final = 0.02
"""The interval of the beat, and so the precision of the lag."""


class LoopLag:
    """The lag of one event loop, from `start` to `stop`. `now` is a monotonic clock in seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._loop: ref[asyncio.AbstractEventLoop] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last = self._lost = self._longest = 0.0
        self._waiting: list[asyncio.Future[None]] = []
        self.beat_at = now()
        """The time of the last beat."""

    def start(self) -> None:
        """Start measuring the running loop."""
        loop = asyncio.get_running_loop()
        self._loop, self.beat_at = ref(loop), self._now()
        self._timer = loop.call_later(BEAT_SECONDS, self._tick)
        _current.lag = self

    def stop(self) -> None:
        """Stop measuring, and release the callers of `next_beat`."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop = None
        if _current.lag is self:
            _current.lag = None
        self._wake()

    def beat(self) -> None:
        """Note the lag of the loop."""
        self._last = self._late()
        self._lost += self._last
        self._longest = max(self._longest, self._last)
        self.beat_at = self._now()
        self._wake()

    def _tick(self) -> None:
        self.beat()
        self._timer = asyncio.get_running_loop().call_later(BEAT_SECONDS, self._tick)

    async def next_beat(self) -> None:
        """Wait for the next beat."""
        self._waiting.append(asyncio.get_running_loop().create_future())
        await self._waiting[-1]

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    @property
    def seconds(self) -> float:
        """The lag at the last beat, or the present lag if larger."""
        return max(self._last, self._late())

    @property
    def lost_seconds(self) -> float:
        """The sum of all lags since the start, including the present lag."""
        return self._lost + self._late()

    def take_longest(self) -> float:
        """Return the longest lag of a beat since the last call."""
        longest, self._longest = self._longest, 0.0
        return longest

    def measures(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Return True for the measured loop."""
        return self._loop is not None and self._loop() is loop

    def _late(self) -> float:
        return max(0.0, self._now() - self.beat_at - BEAT_SECONDS)


class _Current(threading.local):
    lag: LoopLag | None = None
    """The lag of the last loop started in this thread."""


_current = _Current()


def current() -> LoopLag | None:
    """Return the lag of the running loop, or None if not measured."""
    lag = _current.lag
    return lag if lag is not None and lag.measures(asyncio.get_running_loop()) else None
