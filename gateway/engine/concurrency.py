"""Concurrency within one process: worker pools, keyed limits, delayed and background tasks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

from gateway.logs import describe_error
from gateway.store.types import Kind, Lease
from gateway.timing import loop_lag

log = logging.getLogger("askfirst.engine")

_CANCELLED_SECONDS = 3.0
"""Time limit for cancelled work to release leases."""
_LATE_SECONDS = 0.05
"""Above this lag of the event loop, fewer workers begin."""
_FEWEST_AT_ONCE = 2
_YIELDED_SECONDS = 1.0
"""The longest wait of a worker with a lease. The lease is not renewed during the wait."""


class BackgroundTasks:
    """Background tasks, kept until the end. Failures are logged by type and place."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        """Start a task. `name` is for the log."""
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._ended)

    async def ended(self) -> None:
        """Wait for the end of all tasks, and of the tasks started by these tasks."""
        while self._running:
            await asyncio.wait(self._running)

    async def drain(self, grace_seconds: float) -> None:
        """Wait for the tasks for the grace time, then cancel the rest. A task ignoring the cancellation is left."""
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
    """Task with a delayed start: after the delay, or earlier by `begin`, unless `end` comes first.

    Most work is over before the delay, and then costs no task.
    """

    def __init__(self, seconds: float, work: Callable[[], Coroutine[None, None, None]], name: str) -> None:
        # Dropped at the end: the owner may be bound to its work, and the cycle would wait for the garbage collector.
        self._work: Callable[[], Coroutine[None, None, None]] | None = work
        self._name = name
        self._timer = asyncio.get_running_loop().call_later(seconds, self.begin)
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Start now."""
        self._timer.cancel()
        if self._work is not None:
            self._task, self._work = asyncio.create_task(self._work(), name=self._name), None

    def end(self) -> None:
        """Cancel the task, or the pending start."""
        self._work = None
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    async def ended(self) -> None:
        """Cancel the task, and wait for the end."""
        self.end()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


class KeyedLimit:
    """Keyed concurrency limit: at `most` this many workers run for the same key. None: no limit."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._taken: Counter[str] = Counter()

    def are_taken(self, name: str) -> bool:
        """Return True if the limit of this key is reached."""
        return self._most is not None and self._taken[name] >= self._most

    @contextlib.contextmanager
    def one(self, name: str) -> Iterator[None]:
        """Count a worker for this key while the block runs."""
        self._taken[name] += 1
        try:
            yield
        finally:
            self._taken[name] -= 1
            if not self._taken[name]:
                del self._taken[name]


class AdaptiveLimit:
    """Concurrency limit adapted to the lag of the event loop: halved at a late beat, else raised by 1."""

    def __init__(self, most: int) -> None:
        self._most = self._allowed = most
        self._seen_beat = 0.0

    async def room(self, running: Callable[[], int]) -> None:
        """Wait until fewer workers run than the limit allows. Without a measured lag there is no limit."""
        while (lag := loop_lag.current()) is not None:
            self._adapt(lag, running())
            if running() < self._allowed:
                return
            await lag.next_beat()

    def _adapt(self, lag: loop_lag.LoopLag, running: int) -> None:
        if lag.beat_at == self._seen_beat:
            return
        self._seen_beat = lag.beat_at
        if lag.seconds > _LATE_SECONDS:
            self._allowed = max(_FEWEST_AT_ONCE, min(self._allowed, running) // 2)
        else:
            self._allowed = min(self._most, self._allowed + 1)


class WorkerPool:
    """Worker pool: runs the work of at most `at_once` leases concurrently."""

    def __init__(
        self,
        tasks: BackgroundTasks,
        kind: Kind,
        at_once: int,
        run: Callable[[Lease], Awaitable[None]],
        *,
        yields: bool = False,
    ) -> None:
        """`yields`: fewer workers run while the event loop is late, since intake comes first."""
        self._tasks, self._kind, self._run = tasks, kind, run
        self._free, self._running = asyncio.Semaphore(at_once), 0
        self._limit = AdaptiveLimit(at_once) if yields else None
        self._ended_at = 0.0
        """The loop's time at the last end of work, or at a start after idleness."""

    @property
    def is_busy(self) -> bool:
        """True if all workers are busy."""
        return self._free.locked()

    def stuck_seconds(self) -> float:
        """Return the seconds since the last end of work; 0 while no work runs."""
        return asyncio.get_running_loop().time() - self._ended_at if self._running else 0.0

    async def take(self, take_lease: Callable[[], Awaitable[Lease | None]]) -> None:
        """Wait for a free worker, take a lease, and start the work. Raises the errors of `take_lease`."""
        await self._free.acquire()
        lease = None
        try:
            if self._limit is not None:
                await self._limit.room(lambda: self._running)
            lease = await take_lease()
        finally:
            if lease is None:
                self._free.release()
        if lease is not None:
            self._tasks.start(self._one(lease), self._kind)

    async def _one(self, lease: Lease) -> None:
        try:
            if self._limit is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_YIELDED_SECONDS):
                        await self._limit.room(lambda: self._running)
            time = asyncio.get_running_loop().time
            if not self._running:
                self._ended_at = time()
            self._running += 1
            try:
                await self._run(lease)
            finally:
                self._running, self._ended_at = self._running - 1, time()
        finally:
            self._free.release()
