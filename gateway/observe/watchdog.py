"""The watchdog of the event loop: logs a stalled loop with the place of the stall.

A thread watches the beat of the loop, because a stalled loop runs no code. A call in C may hold the interpreter as
well. Then the place is read as soon as the thread runs again, and is the call itself or a call shortly after. Unlike
the watchdog, `aiodebug` and asyncio's debug mode time each callback, report only at the end, and do not work with
uvloop.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import PurePath
from types import FrameType
from typing import Final, NamedTuple

from gateway.timing.loop_lag import BEAT_SECONDS, LoopLag

log = logging.getLogger("askfirst.watchdog")

STALL_SECONDS: Final = 1.0
"""The shortest standstill of the loop counted as a stall."""
_LOOK_SECONDS: Final = 0.25
_MOST_PLACES: Final = 12
"""The number of innermost calls logged from a stack."""


class Stall(NamedTuple):
    """An ended stall. `at` is the time of the end by the watchdog's clock."""

    at: float
    seconds: float


class Watchdog:
    """Watches the event loop of one process, from `start` to `stop`. `now` is a monotonic clock in seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic, cpu: Callable[[], float] = time.process_time) -> None:
        """`cpu` is the processor time of the process in seconds."""
        self._now, self._cpu = now, cpu
        self.lag = LoopLag(now)
        self.stalls, self.stalled_seconds = 0, 0.0
        """The number of stalls since the start, and the sum of the durations."""
        self.last: Stall | None = None
        self._thread_of_loop = 0
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_logged, self._seen_beat, self._cpu_at_beat = False, 0.0, cpu()

    async def start(self) -> None:
        """Watch the running loop."""
        self.lag.start()
        self._thread_of_loop = threading.get_ident()
        self._stopped.clear()
        self._thread = threading.Thread(target=self._watch, name="askfirst-watchdog", daemon=True)
        await asyncio.to_thread(self._thread.start)

    async def stop(self) -> None:
        """Stop watching. The thread has ended on return."""
        self.lag.stop()
        self._stopped.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join)
            self._thread = None

    def stalled_within(self, seconds: float) -> Stall | None:
        """Return the last stall if the end was less than `seconds` ago, else None."""
        return self.last if self.last is not None and self._now() - self.last.at < seconds else None

    def _watch(self) -> None:
        while not self._stopped.wait(_LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Log a stalled loop, once for each stall, and count an ended stall."""
        ended, beat, now = self.lag.take_longest(), self.lag.beat_at, self._now()
        if ended >= STALL_SECONDS:
            if not self._is_logged:
                self._log(ended, "an unknown place: it ended before it could be seen")
            self.stalls, self.stalled_seconds, self._is_logged = self.stalls + 1, self.stalled_seconds + ended, False
            self.last = Stall(now, ended)
        elif (late := now - beat - BEAT_SECONDS) >= STALL_SECONDS and not self._is_logged:
            self._is_logged = True
            self._log(late, places(sys._current_frames().get(self._thread_of_loop)))
        if beat != self._seen_beat:
            self._seen_beat, self._cpu_at_beat = beat, self._cpu()

    def _log(self, seconds: float, place: str) -> None:
        log.error(
            "the event loop stood still for %.1f s, and the process used the processor for %.1f s of them: "
            "all webhooks and turns waited. It stood at %s",
            seconds,
            self._cpu() - self._cpu_at_beat,
            place,
        )


def places(frame: FrameType | None) -> str:
    """Return the calls of a stack, the innermost first: files, lines and functions, without values."""
    stack = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=_MOST_PLACES, lookup_lines=False)
    shown = [f"{'/'.join(PurePath(each.filename).parts[-2:])}:{each.lineno} {each.name}" for each in stack]
    return " < ".join(shown) or "an unknown place"
