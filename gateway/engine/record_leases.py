"""Leases that are records of the store with a time to live, for work that one process at a time may do.

A lease of a lane is tied to its events or actions. This one is for all other work, such as polling a channel or running
a tool under its lock. A process that dies loses it once the record ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Final

from gateway.store.base import Store
from gateway.store.errors import Conflict, StoreError
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key

_BEATS: Final = 3
"""Renewals within the life of the lease."""
_LEAVES_WITHIN_SECONDS: Final = 1.0


class RecordLease:
    """One lease of one owner. The version of its record grows with each renewal and each owner."""

    def __init__(self, store: Store, key: Key, owner: str, *, lease_seconds: float) -> None:
        """`owner` is unique: two owners of one name would hold the lease together."""
        self._store, self._key, self._owner, self._seconds = store, key, owner, lease_seconds
        self.every_seconds = lease_seconds / _BEATS
        """The interval of the renewals."""

    async def take(self) -> bool:
        """Take the lease if no other owner holds it, and return whether it is held. Raises StoreError."""
        return await self._write(free=True)

    async def keep(self) -> None:
        """Renew the lease until it is lost or may have lapsed."""
        sure_until = time.monotonic() + self._seconds
        while time.monotonic() < sure_until:
            await asyncio.sleep(self.every_seconds)
            began = time.monotonic()
            with contextlib.suppress(StoreError, TimeoutError):  # the store may answer before the lease has lapsed
                async with asyncio.timeout(sure_until - began):
                    if not await self._write(free=False):
                        return
                sure_until = began + self._seconds

    async def leave(self) -> None:
        """Give the lease back, so that another owner takes it at once. A store that does not answer is left alone."""
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_LEAVES_WITHIN_SECONDS):
                record = (await self._store.get([self._key]))[self._key]
                if record.value == self._owner:
                    name = self._key.name
                    await self._store.commit(
                        Transaction(partition=self._key.partition, expect={name: record.version}, deletes=[name])
                    )

    async def _write(self, *, free: bool) -> bool:
        """Write the record. Return False if another owner holds it. Raises StoreError.

        `free`: the lease may also be taken while no owner holds it.
        """
        name = self._key.name
        record = (await self._store.get([self._key]))[self._key]
        if record.value != self._owner and not (free and record.value is None):
            return False
        lease = Put(self._owner, ttl_seconds=self._seconds)
        try:
            await self._store.commit(
                Transaction(partition=self._key.partition, expect={name: record.version}, puts={name: lease})
            )
        except Conflict:
            return False
        return True
