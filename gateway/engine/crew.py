"""Those who do one kind of work: so many at once, each on a lease of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

from gateway.engine.tasks import Tasks
from gateway.store.base import Kind, Lease

__all__ = ["Crew", "Shares"]


class Shares:
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


class Crew:
    """Does the work of every lease it takes, beside all else."""

    def __init__(self, tasks: Tasks, kind: Kind, at_once: int, run: Callable[[Lease], Awaitable[None]]) -> None:
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
