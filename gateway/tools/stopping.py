"""The event that ends a turn or a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Stopping"]


class Stopping(asyncio.Event):
    """An event that also calls back when it is set, so that what it ends needs no task that waits for it."""

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
        """Forget a callback. Nothing happens if it was called already."""
        if callback in self._then:
            self._then.remove(callback)
