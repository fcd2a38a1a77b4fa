"""The event for ending a turn or a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Stopped(Exception):
    """The turn is to end, and the awaited work was cancelled."""


class Stopping(asyncio.Event):
    """An asyncio.Event with callbacks. Work that must stop registers a callback instead of a waiting task."""

    def __init__(self) -> None:
        super().__init__()
        self._then: list[Callable[[], object]] = []

    def set(self) -> None:
        """Set the event, and call back once."""
        super().set()
        then, self._then = self._then, []
        for each in then:
            each()

    def call(self, callback: Callable[[], object]) -> None:
        """Call back when the event is set, until `no_longer_call`."""
        self._then.append(callback)

    def no_longer_call(self, callback: Callable[[], object]) -> None:
        """Forget a callback. An already called callback is skipped."""
        if callback in self._then:
            self._then.remove(callback)

    async def unless_set(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work`, and cancel it when the event is set.

        The caller goes on even if the work swallows the cancellation. Raises Stopped.
        """
        here = asyncio.current_task()
        if here is None:
            raise RuntimeError("only a task can be stopped")
        if self.is_set():
            work.close()
            raise Stopped
        cancelled_before, stopped = here.cancelling(), False

        def stop() -> None:
            nonlocal stopped
            stopped = True
            here.cancel()

        self.call(stop)
        try:
            return await work
        finally:
            self.no_longer_call(stop)
            if stopped:
                here.uncancel()
            if here.cancelling() > cancelled_before:
                raise asyncio.CancelledError from None
            if stopped:
                raise Stopped from None


def is_cancelled() -> bool:
    """Return True if the caller is being cancelled."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
