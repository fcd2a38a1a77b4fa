"""The locks of tools across the processes of one store: the ``lock=`` of a tool, held while the tool runs."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final

from gateway.engine.record_leases import RecordLease
from gateway.store.base import Store
from gateway.store.errors import StoreError
from gateway.stored import keys
from gateway.tools import NothingDone

log = logging.getLogger("askfirst.tools")

_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 0.5


class ToolLocks:
    """The tool locks of this process in the store. A lock of a dead process is free once the lease ends."""

    def __init__(self, store: Store, worker: str, lease_seconds: Callable[[], float]) -> None:
        self._store, self._worker, self._lease_seconds = store, worker, lease_seconds
        self._numbers = count(1)

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[HeldLock]:
        """Wait for the lock of this name, and hold the lock for the block.

        A lock left to a call (`leave_to`) is held until the call ends. Raises NothingDone when the store does not
        answer before the lock is held.
        """
        # The name has values of a person's call, so the record's name is its hash.
        key = keys.key(self._store, hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest(), keys.tool_lock)
        owner = f"{self._worker}/{next(self._numbers)}"
        lease = RecordLease(self._store, key, owner, lease_seconds=self._lease_seconds())
        try:
            await _taken(lease, name)
        except BaseException:  # it may have been taken all the same
            await lease.leave()
            raise
        held = HeldLock(name, lease)
        try:
            yield held
        finally:
            await held.release()


class HeldLock:
    """A held lock. A task renews the lease."""

    def __init__(self, name: str, lease: RecordLease) -> None:
        self._name, self._lease = name, lease
        self._keeping = asyncio.create_task(self._keep())
        self._ending: asyncio.Task[None] | None = None
        self._is_left = False

    def leave_to(self, call: Future[Any]) -> None:
        """Hold the lock until this call ends, as long as this process lives."""
        self._is_left, loop = True, asyncio.get_running_loop()

        def end() -> None:
            self._ending = asyncio.create_task(self._end())

        def ended(_: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed: the lease ends by itself
                loop.call_soon_threadsafe(end)

        call.add_done_callback(ended)

    async def release(self) -> None:
        """Release the lock, unless left to a call."""
        if not self._is_left:
            await self._end()

    async def _end(self) -> None:
        self._keeping.cancel()
        await asyncio.wait([self._keeping])
        await self._lease.leave()

    async def _keep(self) -> None:
        await self._lease.keep()
        log.error(
            "the lock %r was lost while a call holds it: another process may make such a call at the same time",
            self._name,
        )


async def _taken(lease: RecordLease, name: str) -> None:
    pause = _FIRST_PAUSE_SECONDS
    try:
        while not await lease.take():
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
    except StoreError as error:
        raise NothingDone(f"nothing was done: the store did not answer for the lock {name!r}") from error
