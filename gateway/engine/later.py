"""Work beside a piece of work, for the case that it takes long: most are over before, and then cost no task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

__all__ = ["Later"]


class Later:
    """Begins when it has waited for so long, or when it is told to; until it is ended."""

    def __init__(self, seconds: float, work: Callable[[], Coroutine[None, None, None]], name: str) -> None:
        # Let go of with the end: whoever keeps this may be what works, and such a pair waits for the garbage collector.
        self._work: Callable[[], Coroutine[None, None, None]] | None = work
        self._name = name
        self._timer = asyncio.get_running_loop().call_later(seconds, self.begin)
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Do not wait any longer."""
        self._timer.cancel()
        if self._work is not None:
            self._task, self._work = asyncio.create_task(self._work(), name=self._name), None

    def end(self) -> None:
        """Do not begin any more; what has begun is cancelled."""
        self._work = None
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    async def ended(self) -> None:
        """End it, and return when nothing of it runs any more."""
        self.end()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
