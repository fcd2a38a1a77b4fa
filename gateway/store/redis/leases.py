"""Leases of a Redis store: waiting for lanes, and taking lanes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from gateway.store.clock_steps import elapsed_seconds
from gateway.store.codec import span
from gateway.store.errors import StoreError
from gateway.store.redis import scripts
from gateway.store.redis.client import Value
from gateway.store.redis.connection import Server
from gateway.store.redis.keys import PARTITIONS, to_bytes
from gateway.store.redis.notifications import EVERYTHING, Subscription
from gateway.store.redis.wire import lane_arguments, prefetch_arguments, read_lease, ready_indexes
from gateway.store.types import Kind, Lease, Prefetch

T = TypeVar("T")

_GIVE_BACK_SECONDS: Final = 1.0
"""The longest wait of a cancelled caller for giving the lease back."""


class LaneQuery(NamedTuple):
    """The lanes wanted by a caller."""

    kinds: tuple[Kind, ...]
    only: str | None
    pool: str


class _Request(NamedTuple):
    """A request for a lease."""

    worker: str
    query: LaneQuery
    prefetch: Prefetch
    lease_seconds: float


class ReadyLanes:
    """The partitions with ready lanes of a query: the result of the last look, and the notifications since then."""

    def __init__(self, subscription: Subscription, partitions: Sequence[str]) -> None:
        self.subscription, self.partitions = subscription, partitions
        self._ready: dict[str, int] = {}
        """Partition -> the moment from which the first lane has been ready, in microseconds of the server's clock."""
        self._look_at = 0.0

    def saw(self, partition: str, since: int, wait: int) -> None:
        """Record the result of a look at a partition.

        `since`: the moment from which the first lane has been ready (-1: none is). `wait`: microseconds until time
        makes a lane ready (-1: none will be). A notification during the look is kept: the notified work may be newer
        than the result.
        """
        if since >= 0:
            self._ready[partition] = since
        if wait >= 0:
            soon = time.monotonic() + wait / 1_000_000
            if soon < self._look_at:
                self._look_at = soon
                self.subscription.wake()  # the waiter would wait too long

    def begin(self, look_again_seconds: float) -> None:
        """Forget the last look: all partitions are looked at now."""
        self._ready.clear()
        self._look_at = time.monotonic() + look_again_seconds

    def take_notifications(self, now: int) -> None:
        """Record the notified partitions. `now` is a moment of the server's clock after the notifications."""
        places = self.subscription.take()
        if places is None:
            self._look_at = 0.0
        else:
            here = time.monotonic()  # read once: a pause between two partitions would change their order
            for place, at in places.items():
                self._ready.setdefault(place, now - int((here - at) * 1_000_000))

    @property
    def is_old(self) -> bool:
        """True if only another look can find the ready lanes."""
        return time.monotonic() >= self._look_at

    def claim(self) -> str | None:
        """Return the partition with the longest-ready lane, or None. Other callers get other partitions."""
        first = min(self._ready, key=lambda partition: self._ready[partition], default=None)
        if first is not None:
            del self._ready[first]
        return first

    @property
    def patience(self) -> float:
        """Seconds until the next look."""
        return max(0.0, self._look_at - time.monotonic())


class Leases:
    """Leases for the callers of this process."""

    def __init__(self, server: Server, partition: Callable[[str], str], look_again_seconds: float) -> None:
        self._server = server
        self._look_again_seconds = look_again_seconds
        self._partition = partition
        self._queues: WeakValueDictionary[LaneQuery, asyncio.Lock] = WeakValueDictionary()
        self._ready: dict[LaneQuery, ReadyLanes] = {}
        """By query without `only`. Few queries exist, and the callers wait again and again."""

    async def take(
        self, worker: str, query: LaneQuery, prefetch: Prefetch, wait_seconds: float, lease_seconds: float
    ) -> Lease | None:
        """Lease the longest-ready lane, or return None after the wait.

        Waiting callers without `only` share the `ReadyLanes` of the query. Other callers look alone.
        """
        request = _Request(worker, query, prefetch, lease_seconds)
        notifications = self._server.notifications
        if query.only is None and wait_seconds > 0:
            ready = self._ready.get(query)
            if ready is None:
                ready = self._ready[query] = ReadyLanes(notifications.subscribe(_topics(query)), PARTITIONS)
            return await self._wait(request, ready, wait_seconds)
        with notifications.subscribed(_topics(query)) as subscription:
            ready = ReadyLanes(subscription, self._places(query))
            if wait_seconds > 0:
                return await self._wait(request, ready, wait_seconds)
            return await self.kept(self._look(request, ready), _identity)

    def _places(self, query: LaneQuery) -> Sequence[str]:
        if query.only is not None and "action" not in query.kinds:  # the id of an action does not tell its partition
            return [self._partition(query.only)]
        return PARTITIONS

    async def _wait(self, request: _Request, ready: ReadyLanes, wait_seconds: float) -> Lease | None:
        queue = self._queues.setdefault(request.query, asyncio.Lock())
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                while True:
                    # One of the callers with the same query looks and listens. With a partition, it goes on alone.
                    async with queue:
                        partition = await self._next_partition(request, ready)
                    lease = await self.kept(self._take(partition, request, ready), _identity)
                    if lease is not None:
                        return lease
        return None

    async def _next_partition(self, request: _Request, ready: ReadyLanes) -> str:
        """Wait until a lane is ready, and return the partition."""
        while True:
            await self._look_around(request, ready)
            if (partition := ready.claim()) is not None:
                return partition
            with suppress(TimeoutError):
                async with asyncio.timeout(ready.patience):
                    await ready.subscription.wait()

    async def _look(self, request: _Request, ready: ReadyLanes) -> Lease | None:
        """Lease the lane ready longest at this moment, or return None."""
        await self._look_around(request, ready)
        while (partition := ready.claim()) is not None:
            lease = await self._take(partition, request, ready)
            if lease is not None:
                return lease
        return None

    async def _look_around(self, request: _Request, ready: ReadyLanes) -> None:
        """Take the notifications, and look into all partitions if these do not suffice."""
        ready.take_notifications(self._server.carried())
        if ready.is_old:
            ready.begin(min(self._look_again_seconds, request.lease_seconds))
            try:
                looks = await self._server.run(scripts.PEEK, ready.partitions, *lane_arguments(*request.query))
            except BaseException:
                ready.subscription.notify(None)
                raise
            for partition, (since, wait) in zip(ready.partitions, looks, strict=True):
                ready.saw(partition, since, wait)

    async def _take(self, partition: str, request: _Request, ready: ReadyLanes) -> Lease | None:
        """Lease the longest-ready lane of this partition, or return None."""
        sure_until = elapsed_seconds() + request.lease_seconds
        try:
            [(since, wait, shown)] = await self._server.run(scripts.LEASE, [partition], *_arguments(request))
        except BaseException:
            ready.subscription.notify(None)  # the outcome is unknown: the next waiter looks anew
            raise
        ready.saw(partition, since, wait)
        if since >= 0:
            ready.subscription.notify(partition)  # for a waiter that knew of no ready lane
        if shown is None:
            return None
        self._server.seen(shown[0])
        lease = read_lease(request.worker, partition, shown, request.prefetch, sure_until)
        self._notify_others(ready, lease, request.query)
        return lease

    def _notify_others(self, ready: ReadyLanes, lease: Lease, query: LaneQuery) -> None:
        """Notify the waiters of other queries for this lane, because the lapse of the lease is unknown there."""
        for theirs, others in self._ready.items():
            of_the_pool = lease.kind != "out" or query.only is not None or theirs.pool == query.pool
            if others is not ready and lease.kind in theirs.kinds and of_the_pool:
                others.subscription.notify(lease.partition)

    async def kept(self, taking: Coroutine[Any, Any, T], lease_in: Callable[[T], Lease | None]) -> T:
        """Run a leasing call, and return the result. A cancelled caller holds no lease.

        `lease_in` returns the lease in the result.
        """
        took = asyncio.ensure_future(taking)
        try:
            return await asyncio.shield(took)
        except asyncio.CancelledError:
            giving_back = asyncio.ensure_future(self._server.to_its_end(self._give_back(took, lease_in)))
            giving_back.add_done_callback(asyncio.Future.exception)
            await asyncio.wait([giving_back], timeout=_GIVE_BACK_SECONDS)
            raise

    async def _give_back(self, took: asyncio.Future[T], lease_in: Callable[[T], Lease | None]) -> None:
        """Give the lease back before the lapse. If the call fails, the lease lapses."""
        with suppress(StoreError):
            lease = lease_in(await took)
            if lease is not None:
                held = lease.kind, to_bytes(lease.lane), to_bytes(lease.worker), lease.fence
                await self._server.run(scripts.GIVE_BACK, [lease.partition], *held)


def _identity(lease: Lease | None) -> Lease | None:
    return lease


def _arguments(request: _Request) -> list[Value]:
    """Return the arguments of lease.lua."""
    return [
        to_bytes(request.worker),
        span(request.lease_seconds),
        *lane_arguments(*request.query),
        len(shown := prefetch_arguments(request.prefetch)),
        *shown,
    ]


def _topics(query: LaneQuery) -> list[bytes]:
    """Return the topics of notifications for the query. A named outbox may be of any pool."""
    if query.only is not None and "out" in query.kinds:
        return [EVERYTHING]
    return [index for _, index in ready_indexes(query.kinds, query.pool)]
