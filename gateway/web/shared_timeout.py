"""Timeout with one event-loop timer for all waiters of the same duration.

`asyncio.timeout` schedules a timer per use, which is nearly always cancelled. That cost as much as the verification and
parsing of a message.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from weakref import ref

__all__ = ["Deadline"]


class Deadline:
    """Context manager like `asyncio.timeout(seconds)`, entered with `with`. Raises TimeoutError when the block takes
    longer."""

    __slots__ = ("_cancelled_before", "_passed", "_seconds", "_task", "until")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._passed = False
        self._cancelled_before = 0
        self._task: asyncio.Task[object] | None = None
        self.until = 0.0
        """End of the timeout on the event loop's clock."""

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline is a task's")
        self._task, self._cancelled_before = task, task.cancelling()
        loop = asyncio.get_running_loop()
        self.until = loop.time() + self._seconds
        if _waiting.of() is not loop:
            _waiting.of, _waiting.equals = ref(loop), {}
        if (equals := _waiting.equals.get(self._seconds)) is None:
            equals = _waiting.equals[self._seconds] = deque()
        if not equals:
            loop.call_at(self.until, _look, equals)
        equals.append(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        # A task with another pending cancellation stays cancelled.
        if task and self._passed and task.uncancel() <= self._cancelled_before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    @property
    def over(self) -> bool:
        """True if the block has been left."""
        return self._task is None

    def end(self) -> None:
        """Cancel the block's task, unless the block has been left."""
        if self._task is not None:
            self._passed = True
            self._task.cancel()


class _Waiting(threading.local):
    """Per-thread queues of pending timeouts, one FIFO per duration, for the thread's most recent event loop."""

    def __init__(self) -> None:
        self.of: Callable[[], asyncio.AbstractEventLoop | None] = lambda: None
        self.equals: dict[float, deque[Deadline]] = {}


_waiting = _Waiting()


def _look(equals: deque[Deadline]) -> None:
    loop = asyncio.get_running_loop()
    now = loop.time()
    while equals and (equals[0].over or equals[0].until <= now):
        equals.popleft().end()
    if equals:
        loop.call_at(equals[0].until, _look, equals)
