"""A time limit for a block of code. All limits of an event loop share one timer.

`asyncio.timeout` makes a timer for each block and cancels it again, which is a large part of the cost of a short call.
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Final, Self
from weakref import ref

from gateway import loop_lag

MOST_LAG_SECONDS: Final = 2.0
"""The lag of the loop that a deadline leaves out at most. Slack waits three seconds for an acknowledgement
(https://docs.slack.dev/apis/events-api)."""


class Deadline:
    """A context manager that cancels its block after some seconds and then raises TimeoutError, as `asyncio.timeout`.

    None sets no limit. A deadline is used once, inside a task. `without_lag`: the time by which the event loop is late
    does not count, up to two seconds.
    """

    __slots__ = ("_cancelling", "_left_out", "_lost", "_seconds", "_task", "_timer", "_without_lag", "at", "expired")

    def __init__(self, seconds: float | None, *, without_lag: bool = False) -> None:
        self._seconds, self._without_lag = seconds, without_lag
        self._lost = self._left_out = 0.0
        self._task: asyncio.Task[object] | None = None
        self._timer: _SharedTimer | None = None
        self._cancelling = 0
        self.at = 0.0
        """The time of the event loop at which the block is cancelled."""
        self.expired = False
        """True if the block was cancelled because its time was over."""

    def __enter__(self) -> Self:
        if self._seconds is None:
            return self
        self._task = task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a task")
        self._cancelling = task.cancelling()
        loop = asyncio.get_running_loop()
        self._timer = timer = _timer_of(loop)
        self.at = loop.time() + self._seconds
        if self._without_lag and (lag := loop_lag.current()) is not None:
            self._lost = lag.lost_seconds
        timer.add(self, loop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._timer is None or self._task is None:
            return
        self._timer.remove(self)
        if not self.expired:
            return
        # Another cancellation that came before or beside this one goes on.
        if self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error

    def lag(self) -> float:
        """Return the lag in seconds to add to the deadline, each once."""
        if not self._without_lag or (lag := loop_lag.current()) is None:
            return 0.0
        left_out = min(lag.lost_seconds - self._lost, MOST_LAG_SECONDS)
        more, self._left_out = left_out - self._left_out, left_out
        return more

    def expire(self) -> None:
        """Cancel the block."""
        self.expired = True
        if self._task is not None:
            self._task.cancel()


class _SharedTimer:
    """The timer of one event loop, set for the earliest deadline that was open when it was set.

    It holds neither the loop nor a handle, which does: a closed loop is not kept.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = ref(loop)
        self._open: dict[Deadline, None] = {}
        self._due: float | None = None

    def add(self, deadline: Deadline, loop: asyncio.AbstractEventLoop) -> None:
        self._open[deadline] = None
        if self._due is None or deadline.at < self._due:
            self._set(deadline.at, loop)

    def remove(self, deadline: Deadline) -> None:
        self._open.pop(deadline, None)

    def _set(self, due: float, loop: asyncio.AbstractEventLoop) -> None:
        self._due = due
        loop.call_at(due, self._tick, due)

    def _tick(self, due: float) -> None:
        if due != self._due:  # an earlier deadline came, and set the timer again
            return
        self._due, loop = None, asyncio.get_running_loop()
        now = max(loop.time(), due)  # a loop may call a little too early
        for deadline in [each for each in self._open if each.at <= now]:
            deadline.at += deadline.lag()
            if deadline.at <= now:
                self.remove(deadline)
                deadline.expire()
        if self._open:
            self._set(min(each.at for each in self._open), loop)


class _OfThread(threading.local):
    timer: _SharedTimer | None = None
    """The timer of the event loop that ran last in this thread."""


_of_thread = _OfThread()


def _timer_of(loop: asyncio.AbstractEventLoop) -> _SharedTimer:
    timer = _of_thread.timer
    if timer is None or timer.loop() is not loop:
        timer = _of_thread.timer = _SharedTimer(loop)
    return timer
