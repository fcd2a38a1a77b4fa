"""Leases as records of the store with a time to live, for work of a single process at a time.

A lease of a lane is tied to the lane's events or actions. A record lease is for all other work, for example polling a
channel or running a tool under a lock. A dead process loses the lease once the record ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from gateway.store.base import Store
from gateway.store.clock_steps import elapsed_seconds
from gateway.store.errors import Conflict, StoreError
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Key

_BEATS: Final = 3
"""Renewals within the life of the lease."""
_LEAVES_WITHIN_SECONDS: Final = 1.0


class RecordLease:
    """A lease of an owner. The version of the record grows with each renewal and each owner."""

    def __init__(self, store: Store, key: Key, owner: str, *, lease_seconds: float) -> None:
        """`owner` is unique: two owners with the same name would hold the lease together."""
        self._store, self._key, self._owner, self._seconds = store, key, owner, lease_seconds
        self.every_seconds = lease_seconds / _BEATS
        """The interval of the renewals."""

    async def take(self) -> bool:
        """Take the lease if no other owner holds the lease. Return True if taken. Raises StoreError."""
        return await self._write(free=True)

    async def keep(self) -> None:
        """Renew the lease, until the lease is lost or may have lapsed."""
        sure_until = elapsed_seconds() + self._seconds
        while elapsed_seconds() < sure_until:
            await asyncio.sleep(self.every_seconds)
            began = elapsed_seconds()
            with contextlib.suppress(StoreError, TimeoutError):  # the store may answer before the lease has lapsed
                async with asyncio.timeout(sure_until - began):
                    if not await self._write(free=False):
                        return
                sure_until = began + self._seconds

    async def leave(self) -> None:
        """Release the lease, so another owner can take the lease at once.

        An unanswered call to the store is ignored.
        """
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_LEAVES_WITHIN_SECONDS):
                record = (await self._store.get([self._key]))[self._key]
                if record.value == self._owner:
                    name = self._key.name
                    await self._store.commit(
                        Transaction(partition=self._key.partition, expect={name: record.version}, deletes=[name])
                    )

    async def _write(self, *, free: bool) -> bool:
        """Write the record. Return False if another owner holds the lease. Raises StoreError.

        `free`: the lease may also be taken while no owner holds the lease.
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
