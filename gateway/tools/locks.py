"""Named locks: the ``lock=`` of a tool, held while the tool runs.

A lock of this module works within a process: enough while a single process owns the store. In a shared store, a `Hold`
also holds the lock of the same name among the processes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeAlias
from weakref import WeakValueDictionary


class _SharedLock(Protocol):
    def leave_to(self, call: Future[Any]) -> None: ...


Hold: TypeAlias = Callable[[str], AbstractAsyncContextManager[_SharedLock]]
"""Name -> the lock of this name among the processes of a store, held inside the block."""


class Lock:
    """A lock that its holder may leave to a call still running in a thread."""

    def __init__(self) -> None:
        self.free = asyncio.Lock()
        self.left_to: Future[Any] | None = None
        """The call that outlived the caller, and holds the lock until the end."""

    def leave_to(self, call: Future[Any]) -> None:
        """Hold the lock until this call ends, possibly forever."""
        self.left_to, loop = call, asyncio.get_running_loop()

        def ended(_: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed, and its locks are gone
                loop.call_soon_threadsafe(self._release)

        call.add_done_callback(ended)

    def _release(self) -> None:
        self.left_to = None
        self.free.release()


_locks: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], Lock] = WeakValueDictionary()
"""The locks by event loop and name, each kept while a task holds or awaits the lock."""


@asynccontextmanager
async def held(name: str) -> AsyncIterator[Lock]:
    """Hold the lock of this name. Calls of all tools with the same lock name exclude each other."""
    lock = _locks.setdefault((asyncio.get_running_loop(), name), Lock())
    await lock.free.acquire()
    try:
        yield lock
    finally:
        if lock.left_to is None:
            lock.free.release()


def outlasted(name: str) -> bool:
    """Return True if a call that outlived the caller holds the lock of this name, possibly forever."""
    lock = _locks.get((asyncio.get_running_loop(), name))
    return lock is not None and lock.left_to is not None
