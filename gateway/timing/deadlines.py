"""A time limit for a block of code. All limits of an event loop share one timer.

`asyncio.timeout` creates and cancels a timer for each block: a large part of the cost of a short call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self
from weakref import ref

from gateway.timing import loop_lag

MOST_MORE_SECONDS: Final = 2.0
"""The most seconds a deadline with `answered` may be put off.

Slack waits three seconds for an acknowledgement (https://docs.slack.dev/apis/events-api).
"""


class Deadline:
    """A context manager: cancel the block after some seconds, then raise TimeoutError, like `asyncio.timeout`.

    None sets no limit. A deadline is used once, inside a task. With `answered`, the deadline limits the silence of
    another side: the lag of this event loop does not count, nor the time before the last answer. `answered` returns the
    time of the last answer by the loop's clock. The deadline is put off by two seconds at most.
    """

    __slots__ = ("_answered", "_cancelling", "_latest", "_lost", "_seconds", "_task", "_timer", "at", "expired")

    def __init__(self, seconds: float | None, *, answered: Callable[[], float] | None = None) -> None:
        self._seconds, self._answered = seconds, answered
        self._lost = self._latest = 0.0
        self._task: asyncio.Task[object] | None = None
        self._timer: _SharedTimer | None = None
        self._cancelling = 0
        self.at = 0.0
        """The cancellation time of the block, by the event loop's clock."""
        self.expired = False
        """True if the block was cancelled by this deadline."""

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
        self._latest = self.at + MOST_MORE_SECONDS
        if self._answered is not None:
            self._lost = _lost_seconds()
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

    def put_off(self) -> None:
        """Put off a deadline with `answered` by the lag of the loop, or until `seconds` after the last answer."""
        if self._answered is None or self._seconds is None:
            return
        lost = _lost_seconds()
        late, self._lost = lost - self._lost, lost
        self.at = min(self._latest, max(self.at + late, self._answered() + self._seconds))

    def expire(self) -> None:
        """Cancel the block."""
        self.expired = True
        if self._task is not None:
            self._task.cancel()


def _lost_seconds() -> float:
    lag = loop_lag.current()
    return 0.0 if lag is None else lag.lost_seconds


class _SharedTimer:
    """The timer of one event loop, set for the earliest open deadline at the time of setting.

    Holds neither the loop nor a timer handle, because a handle would keep a closed loop alive.
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
            deadline.put_off()
            if deadline.at <= now:
                self.remove(deadline)
                deadline.expire()
        if self._open:
            self._set(min(each.at for each in self._open), loop)


class _OfThread(threading.local):
    timer: _SharedTimer | None = None
    """The timer of the last event loop in this thread."""


_of_thread = _OfThread()


def _timer_of(loop: asyncio.AbstractEventLoop) -> _SharedTimer:
    timer = _of_thread.timer
    if timer is None or timer.loop() is not loop:
        timer = _of_thread.timer = _SharedTimer(loop)
    return timer


def milliseconds_since(began: float) -> float:
    """Return the milliseconds since `began`, a time of the event loop's clock."""
    return (asyncio.get_running_loop().time() - began) * 1000
