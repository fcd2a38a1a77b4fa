"""Taking lanes, and waiting for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final
from weakref import WeakValueDictionary

from gateway.store.base import Kind, Lease, StoreUnavailable
from gateway.store.codec import span
from gateway.store.redis import scripts
from gateway.store.redis.arguments import lane_arguments, lease_arguments, read_lease, ways
from gateway.store.redis.keys import PARTITIONS, to_bytes
from gateway.store.redis.news import EVERYTHING
from gateway.store.redis.server import Server

__all__ = ["Leases", "Wanted"]

_LOOK_AGAIN_SECONDS: Final = 5.0
"""Who waits looks at least this often, in case news was lost: what comes is heard of, and what falls due or lapses was
seen coming by the look before."""
_GIVE_BACK_SECONDS: Final = 1.0
"""How long a caller who is cancelled is kept until what he was about to be given is given back."""

Wanted = tuple[tuple[Kind, ...], str | None, str, int]
"""The kinds, the one lane when only that will do, the pool, and which forms the worker knows."""


class Leases:
    """Leases for the callers of this process."""

    def __init__(self, server: Server, partition: Callable[[str], str]) -> None:
        self._server = server
        self._partition = partition
        self._queues: WeakValueDictionary[Wanted, asyncio.Lock] = WeakValueDictionary()

    async def take(self, worker: str, wanted: Wanted, wait_seconds: float, lease_seconds: float) -> Lease | None:
        """The lane that has been ready longest, or None after the wait."""
        lease, _ = await self._attempt(worker, wanted, lease_seconds)
        if lease is not None or wait_seconds <= 0:
            return lease
        queue = self._queues.setdefault(wanted, asyncio.Lock())
        with suppress(TimeoutError):
            # Of many who wait here for the same, one looks, and the next when that one was served.
            async with asyncio.timeout(wait_seconds), queue:
                with self._server.news.following(_topics(*wanted)) as heard:
                    while True:
                        heard.clear()
                        lease, patience = await self._attempt(worker, wanted, lease_seconds)
                        if lease is not None:
                            return lease
                        with suppress(TimeoutError):
                            async with asyncio.timeout(patience):
                                await heard.wait()
        return None

    async def _attempt(self, worker: str, wanted: Wanted, lease_seconds: float) -> tuple[Lease | None, float]:
        """A lease, or how long until it is worth to look again. A caller who is cancelled holds nothing."""
        looking = asyncio.ensure_future(self._look(worker, wanted, lease_seconds))
        try:
            return await asyncio.shield(looking)
        except asyncio.CancelledError:
            giving_back = asyncio.ensure_future(self._server.to_its_end(self._give_back(looking)))
            giving_back.add_done_callback(asyncio.Future.exception)
            await asyncio.wait([giving_back], timeout=_GIVE_BACK_SECONDS)
            raise

    async def _look(self, worker: str, wanted: Wanted, lease_seconds: float) -> tuple[Lease | None, float]:
        kinds, only, _, _ = wanted
        lanes = lane_arguments(*wanted)
        partitions: Sequence[str] = PARTITIONS
        if only is not None and "action" not in kinds:  # an action's id does not say its partition
            partitions = [self._partition(only)]
        while True:
            looks = await self._server.run(scripts.PEEK, partitions, *lanes)
            ready = sorted((since, p) for p, (since, _) in zip(partitions, looks, strict=True) if since >= 0)
            for _, partition in ready:
                sure_until = time.monotonic() + lease_seconds
                [shown] = await self._server.run(
                    scripts.LEASE, [partition], to_bytes(worker), span(lease_seconds), *lanes
                )
                if shown is not None:
                    self._server.seen(shown[0])
                    return read_lease(worker, partition, shown, sure_until), 0.0
            if not ready:
                waits = [wait / 1_000_000 for _, wait in looks if wait >= 0]
                return None, min([*waits, _LOOK_AGAIN_SECONDS])

    async def _give_back(self, looking: asyncio.Future[tuple[Lease | None, float]]) -> None:
        """Others need not wait until it lapses; if this fails, it does."""
        with suppress(StoreUnavailable):
            lease, _ = await looking
            if lease is not None:
                await self._server.run(scripts.GIVE_BACK, [lease.partition], *lease_arguments(lease))


def _topics(kinds: tuple[Kind, ...], only: str | None, pool: str, knows: int) -> list[bytes]:
    """What may make ready what is wanted. An outbox that is named may be of any pool."""
    if only is not None and "out" in kinds:
        return [EVERYTHING]
    return [way for _, way in ways(kinds, pool, knows)]
