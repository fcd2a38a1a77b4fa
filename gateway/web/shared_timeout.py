"""A deadline for many that may all wait equally long, with one timer for all of them.

`asyncio.timeout` sets a timer of the event loop's for each, which nearly always is cancelled again. It took as long as
to prove and to read a message.
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
    """As `asyncio.timeout(seconds)`, to be entered with `with`: TimeoutError is raised for what takes longer."""

    __slots__ = ("_cancelled_before", "_passed", "_seconds", "_task", "until")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._passed = False
        self._cancelled_before = 0
        self._task: asyncio.Task[object] | None = None
        self.until = 0.0
        """On the event loop's clock."""

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
        # Who was cancelled by somebody else as well stays cancelled.
        if task and self._passed and task.uncancel() <= self._cancelled_before and kind is asyncio.CancelledError:
            raise TimeoutError from error

    @property
    def over(self) -> bool:
        """Whether nobody waits any more."""
        return self._task is None

    def end(self) -> None:
        """It is time: whoever still waits, waits no longer."""
        if self._task is not None:
            self._passed = True
            self._task.cancel()


class _Waiting(threading.local):
    """Those of the event loop that was last in this thread, by how long they wait: the first to begin ends first."""

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
