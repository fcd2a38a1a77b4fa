"""Concurrency within one process: worker pools, keyed limits, delayed and background tasks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

from gateway.observe import describe_error
from gateway.store.base import Kind, Lease

__all__ = ["BackgroundTasks", "DelayedTask", "KeyedLimit", "WorkerPool"]

log = logging.getLogger("askfirst.engine")

_CANCELLED_SECONDS = 3.0
"""How long work that was cancelled may take for what it has to hand back."""


class BackgroundTasks:
    """Background work of this process: kept until it ends, its failures logged by their type and place."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def ended(self) -> None:
        """Returns when what runs, and what it starts, has ended."""
        while self._running:
            await asyncio.wait(self._running)

    async def drain(self, grace_seconds: float) -> None:
        """Let it end for so long; then cancel it. What does not let itself be cancelled is left."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await self.ended()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CANCELLED_SECONDS):
                while self._running:
                    for task in self._running:
                        task.cancel()
                    await asyncio.wait(self._running)
        for task in self._running:
            log.warning("%s was cancelled and does not end: it is left", task.get_name())
        self._running.clear()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed: %s", task.get_name(), describe_error(error))


class DelayedTask:
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


class KeyedLimit:
    """How many of those who work at once are at one thing: at `most` so many, that there is room for others."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._taken: Counter[str] = Counter()

    def are_taken(self, name: str) -> bool:
        """Whether nobody more may begin with this."""
        return self._most is not None and self._taken[name] >= self._most

    @contextlib.contextmanager
    def one(self, name: str) -> Iterator[None]:
        """Somebody is at this."""
        self._taken[name] += 1
        try:
            yield
        finally:
            self._taken[name] -= 1
            if not self._taken[name]:
                del self._taken[name]


class WorkerPool:
    """Does the work of every lease it takes, beside all else."""

    def __init__(
        self, tasks: BackgroundTasks, kind: Kind, at_once: int, run: Callable[[Lease], Awaitable[None]]
    ) -> None:
        self._tasks, self._kind, self._run = tasks, kind, run
        self._free = asyncio.Semaphore(at_once)

    @property
    def is_busy(self) -> bool:
        """Whether who takes a lease now would wait for somebody to be free."""
        return self._free.locked()

    async def take(self, asked: Callable[[], Awaitable[Lease | None]]) -> None:
        """As soon as somebody is free, ask for a lease and have its work begun. Raises what asking raises."""
        await self._free.acquire()
        lease = None
        try:
            lease = await asked()
        finally:
            if lease is None:
                self._free.release()
        if lease is not None:
            self._tasks.start(self._one(lease), self._kind)

    async def _one(self, lease: Lease) -> None:
        try:
            await self._run(lease)
        finally:
            self._free.release()
