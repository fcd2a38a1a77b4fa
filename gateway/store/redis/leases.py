"""Taking lanes, and waiting for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from gateway.store.codec import span
from gateway.store.errors import StoreError
from gateway.store.redis import scripts
from gateway.store.redis.client import Value
from gateway.store.redis.connection import Server
from gateway.store.redis.keys import PARTITIONS, to_bytes
from gateway.store.redis.notifications import EVERYTHING, Subscription
from gateway.store.redis.wire import lane_arguments, prefetch_arguments, read_lease, ready_indexes
from gateway.store.types import Kind, Lease, Prefetch

__all__ = ["Leases", "Wanted"]

T = TypeVar("T")

_LOOK_AGAIN_SECONDS: Final = 5.0
"""Who waits looks at least this often, or as often as a lease may lapse: what comes is heard of, what falls due or
lapses was seen coming by the look before, and no lease that was taken since lapses before the next."""
_GIVE_BACK_SECONDS: Final = 1.0
"""How long a caller who is cancelled is kept until what he was about to be given is given back."""


class Wanted(NamedTuple):
    """Which lane a caller asks for."""

    kinds: tuple[Kind, ...]
    only: str | None
    pool: str
    knows: int
    """Which forms the worker knows."""


class _Asked(NamedTuple):
    """What a caller asks for."""

    worker: str
    wanted: Wanted
    prefetch: Prefetch
    lease_seconds: float


class _Known:
    """What is known of the lanes that are wanted: what was seen in each partition, and what was heard of it since."""

    def __init__(self, heard: Subscription, partitions: Sequence[str]) -> None:
        self.heard, self.partitions = heard, partitions
        self._ready: dict[str, int] = {}
        """Partition -> since when its first lane has been ready."""
        self._look_at = 0.0

    def saw(self, partition: str, since: int, wait: int) -> None:
        """That no lane is ready (-1) or one since then, and how long (microseconds) until time makes one ready.

        What was heard while somebody looked stays: it may have come after the look.
        """
        if since >= 0:
            self._ready[partition] = since
        if wait >= 0:
            soon = time.monotonic() + wait / 1_000_000
            if soon < self._look_at:
                self._look_at = soon
                self.heard.wake()  # who listens would wait longer

    def begin(self, look_again_seconds: float) -> None:
        """All partitions are looked at now."""
        self._ready.clear()
        self._look_at = time.monotonic() + look_again_seconds

    def hear(self, now: int) -> None:
        """Take note of what was heard since. `now` is by the server's clock: what was heard, was ready before it."""
        places = self.heard.take()
        if places is None:
            self._look_at = 0.0
        else:
            here = time.monotonic()  # read once, or a pause between two places would swap them
            for place, at in places.items():
                self._ready.setdefault(place, now - int((here - at) * 1_000_000))

    @property
    def is_old(self) -> bool:
        """Whether only another look tells what is ready."""
        return time.monotonic() >= self._look_at

    def claim(self) -> str | None:
        """Where the lane is that has been ready longest: who is told goes there, and others go elsewhere meanwhile."""
        first = min(self._ready, key=lambda partition: self._ready[partition], default=None)
        if first is not None:
            del self._ready[first]
        return first

    @property
    def patience(self) -> float:
        return max(0.0, self._look_at - time.monotonic())


class Leases:
    """Leases for the callers of this process."""

    def __init__(self, server: Server, partition: Callable[[str], str]) -> None:
        self._server = server
        self._partition = partition
        self._queues: WeakValueDictionary[Wanted, asyncio.Lock] = WeakValueDictionary()
        self._known: dict[Wanted, _Known] = {}
        """Of those who take any lane of a kind: there are few of them, and they wait again and again."""

    async def take(
        self, worker: str, wanted: Wanted, prefetch: Prefetch, wait_seconds: float, lease_seconds: float
    ) -> Lease | None:
        """The lane that has been ready longest, or None after the wait.

        Who waits goes by what was seen and heard; who does not, by a look of his own.
        """
        asked = _Asked(worker, wanted, prefetch, lease_seconds)
        news = self._server.notifications
        if wanted.only is None and wait_seconds > 0:
            known = self._known.get(wanted)
            if known is None:
                known = self._known[wanted] = _Known(news.follow(_topics(wanted)), PARTITIONS)
            return await self._wait(asked, known, wait_seconds)
        with news.following(_topics(wanted)) as heard:
            known = _Known(heard, self._places(wanted))
            if wait_seconds > 0:
                return await self._wait(asked, known, wait_seconds)
            return await self.kept(self._look(asked, known), _itself)

    def _places(self, wanted: Wanted) -> Sequence[str]:
        if wanted.only is not None and "action" not in wanted.kinds:  # an action's id does not say its partition
            return [self._partition(wanted.only)]
        return PARTITIONS

    async def _wait(self, asked: _Asked, known: _Known, wait_seconds: float) -> Lease | None:
        queue = self._queues.setdefault(asked.wanted, asyncio.Lock())
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_seconds):
                while True:
                    # Of many who wait here for the same, one looks and listens; where he was sent he goes alone.
                    async with queue:
                        partition = await self._found(asked, known)
                    lease = await self.kept(self._take(partition, asked, known), _itself)
                    if lease is not None:
                        return lease
        return None

    async def _found(self, asked: _Asked, known: _Known) -> str:
        """Where a lane is ready, as soon as there is one."""
        while True:
            await self._look_around(asked, known)
            if (partition := known.claim()) is not None:
                return partition
            with suppress(TimeoutError):
                async with asyncio.timeout(known.patience):
                    await known.heard.wait()

    async def _look(self, asked: _Asked, known: _Known) -> Lease | None:
        """The lane that has been ready longest this moment."""
        await self._look_around(asked, known)
        while (partition := known.claim()) is not None:
            lease = await self._take(partition, asked, known)
            if lease is not None:
                return lease
        return None

    async def _look_around(self, asked: _Asked, known: _Known) -> None:
        """Take note of what was heard, and look where that does not tell."""
        known.hear(self._server.carried())
        if known.is_old:
            known.begin(min(_LOOK_AGAIN_SECONDS, asked.lease_seconds))
            try:
                looks = await self._server.run(scripts.PEEK, known.partitions, *lane_arguments(*asked.wanted))
            except BaseException:
                known.heard.tell(None)
                raise
            for partition, (since, wait) in zip(known.partitions, looks, strict=True):
                known.saw(partition, since, wait)

    async def _take(self, partition: str, asked: _Asked, known: _Known) -> Lease | None:
        """The lane of this partition that has been ready longest."""
        sure_until = time.monotonic() + asked.lease_seconds
        try:
            [(since, wait, shown)] = await self._server.run(scripts.LEASE, [partition], *_told(asked))
        except BaseException:
            known.heard.tell(None)  # nobody knows what became of it: whoever goes by this looks anew
            raise
        known.saw(partition, since, wait)
        if since >= 0:
            known.heard.tell(partition)  # for who listens and knew of nothing
        if shown is None:
            return None
        self._server.seen(shown[0])
        lease = read_lease(asked.worker, partition, shown, asked.prefetch, sure_until)
        self._tell_others(known, lease, asked.wanted)
        return lease

    def _tell_others(self, known: _Known, lease: Lease, wanted: Wanted) -> None:
        """Who else might take this lane has not seen when it lapses."""
        for theirs, others in self._known.items():
            of_the_pool = lease.kind != "out" or wanted.only is not None or theirs.pool == wanted.pool
            if others is not known and lease.kind in theirs.kinds and of_the_pool:
                others.heard.tell(lease.partition)

    async def kept(self, taking: Coroutine[Any, Any, T], lease_in: Callable[[T], Lease | None]) -> T:
        """What is taken, with the lease in it. A caller who is cancelled holds nothing."""
        took = asyncio.ensure_future(taking)
        try:
            return await asyncio.shield(took)
        except asyncio.CancelledError:
            giving_back = asyncio.ensure_future(self._server.to_its_end(self._give_back(took, lease_in)))
            giving_back.add_done_callback(asyncio.Future.exception)
            await asyncio.wait([giving_back], timeout=_GIVE_BACK_SECONDS)
            raise

    async def _give_back(self, took: asyncio.Future[T], lease_in: Callable[[T], Lease | None]) -> None:
        """Others need not wait until it lapses; if this fails, it does."""
        with suppress(StoreError):
            lease = lease_in(await took)
            if lease is not None:
                whose = lease.kind, to_bytes(lease.lane), to_bytes(lease.worker), lease.fence
                await self._server.run(scripts.GIVE_BACK, [lease.partition], *whose)


def _itself(lease: Lease | None) -> Lease | None:
    return lease


def _told(asked: _Asked) -> list[Value]:
    """As lease.lua takes it."""
    return [
        to_bytes(asked.worker),
        span(asked.lease_seconds),
        *lane_arguments(*asked.wanted),
        len(shown := prefetch_arguments(asked.prefetch)),
        *shown,
    ]


def _topics(wanted: Wanted) -> list[bytes]:
    """What may make ready what is wanted. An outbox that is named may be of any pool."""
    if wanted.only is not None and "out" in wanted.kinds:
        return [EVERYTHING]
    return [index for _, index in ready_indexes(wanted.kinds, wanted.pool, wanted.knows)]
