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
from gateway.store.redis.news import EVERYTHING, Heard
from gateway.store.redis.server import Server

__all__ = ["Leases", "Wanted"]

_LOOK_AGAIN_SECONDS: Final = 5.0
"""Who waits looks at least this often, or as often as a lease may lapse: what comes is heard of, what falls due or
lapses was seen coming by the look before, and no lease that was taken since lapses before the next."""
_GIVE_BACK_SECONDS: Final = 1.0
"""How long a caller who is cancelled is kept until what he was about to be given is given back."""

Wanted = tuple[tuple[Kind, ...], str | None, str, int]
"""The kinds, the one lane when only that will do, the pool, and which forms the worker knows."""


class _Known:
    """What is known of the lanes that are wanted: what was seen in each partition, and what was heard of it since."""

    def __init__(self, heard: Heard, partitions: Sequence[str]) -> None:
        self.heard, self.partitions = heard, partitions
        self._ready: dict[str, int] = {}
        """Partition -> since when its first lane has been ready."""
        self._look_at = 0.0

    def saw(self, partition: str, since: int, wait: int) -> None:
        """That no lane is ready (-1) or one since then, and how long (microseconds) until time makes one ready."""
        self._ready.pop(partition, None)
        if since >= 0:
            self._ready[partition] = since
        if wait >= 0:
            self._look_at = min(self._look_at, time.monotonic() + wait / 1_000_000)

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
            for place, at in places.items():
                self._ready.setdefault(place, now - int((time.monotonic() - at) * 1_000_000))

    @property
    def is_old(self) -> bool:
        """Whether only another look tells what is ready."""
        return time.monotonic() >= self._look_at

    @property
    def first(self) -> str | None:
        """Where the lane is that has been ready longest."""
        return min(self._ready, key=lambda partition: self._ready[partition], default=None)

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

    async def take(self, worker: str, wanted: Wanted, wait_seconds: float, lease_seconds: float) -> Lease | None:
        """The lane that has been ready longest, or None after the wait.

        Who waits goes by what was seen and heard; who does not, by a look of his own.
        """
        _, only, _, _ = wanted
        news = self._server.news
        if only is None and wait_seconds > 0:
            known = self._known.get(wanted)
            if known is None:
                known = self._known[wanted] = _Known(news.follow(_topics(*wanted)), PARTITIONS)
            return await self._wait(worker, wanted, known, wait_seconds, lease_seconds)
        with news.following(_topics(*wanted)) as heard:
            known = _Known(heard, self._places(wanted))
            if wait_seconds > 0:
                return await self._wait(worker, wanted, known, wait_seconds, lease_seconds)
            return await self._attempt(worker, wanted, known, lease_seconds)

    def _places(self, wanted: Wanted) -> Sequence[str]:
        kinds, only, _, _ = wanted
        if only is not None and "action" not in kinds:  # an action's id does not say its partition
            return [self._partition(only)]
        return PARTITIONS

    async def _wait(
        self, worker: str, wanted: Wanted, known: _Known, wait_seconds: float, lease_seconds: float
    ) -> Lease | None:
        queue = self._queues.setdefault(wanted, asyncio.Lock())
        with suppress(TimeoutError):
            # Of many who wait here for the same, one looks, and the next when that one was served.
            async with asyncio.timeout(wait_seconds), queue:
                while True:
                    lease = await self._attempt(worker, wanted, known, lease_seconds)
                    if lease is not None:
                        return lease
                    with suppress(TimeoutError):
                        async with asyncio.timeout(known.patience):
                            await known.heard.wait()
        return None

    async def _attempt(self, worker: str, wanted: Wanted, known: _Known, lease_seconds: float) -> Lease | None:
        """A caller who is cancelled holds nothing."""
        looking = asyncio.ensure_future(self._look(worker, wanted, known, lease_seconds))
        try:
            return await asyncio.shield(looking)
        except asyncio.CancelledError:
            giving_back = asyncio.ensure_future(self._server.to_its_end(self._give_back(looking)))
            giving_back.add_done_callback(asyncio.Future.exception)
            await asyncio.wait([giving_back], timeout=_GIVE_BACK_SECONDS)
            raise

    async def _look(self, worker: str, wanted: Wanted, known: _Known, lease_seconds: float) -> Lease | None:
        lanes = lane_arguments(*wanted)
        try:
            known.hear(self._server.carried())
            if known.is_old:
                known.begin(min(_LOOK_AGAIN_SECONDS, lease_seconds))
                looks = await self._server.run(scripts.PEEK, known.partitions, *lanes)
                for partition, (since, wait) in zip(known.partitions, looks, strict=True):
                    known.saw(partition, since, wait)
            while known.first is not None:
                partition, sure_until = known.first, time.monotonic() + lease_seconds
                [(since, wait, shown)] = await self._server.run(
                    scripts.LEASE, [partition], to_bytes(worker), span(lease_seconds), *lanes
                )
                known.saw(partition, since, wait)
                if shown is not None:
                    self._server.seen(shown[0])
                    lease = read_lease(worker, partition, shown, sure_until)
                    self._tell_others(known, lease, wanted)
                    return lease
        except BaseException:
            known.heard.tell(None)  # nobody knows what became of it: whoever goes by this looks anew
            raise
        return None

    def _tell_others(self, known: _Known, lease: Lease, wanted: Wanted) -> None:
        """Who else might take this lane has not seen when it lapses."""
        _, only, pool, _ = wanted
        for (kinds, _, their_pool, _), others in self._known.items():
            concerned = lease.kind in kinds and (lease.kind != "out" or only is not None or their_pool == pool)
            if others is not known and concerned:
                others.heard.tell(lease.partition)

    async def _give_back(self, looking: asyncio.Future[Lease | None]) -> None:
        """Others need not wait until it lapses; if this fails, it does."""
        with suppress(StoreUnavailable):
            lease = await looking
            if lease is not None:
                await self._server.run(scripts.GIVE_BACK, [lease.partition], *lease_arguments(lease))


def _topics(kinds: tuple[Kind, ...], only: str | None, pool: str, knows: int) -> list[bytes]:
    """What may make ready what is wanted. An outbox that is named may be of any pool."""
    if only is not None and "out" in kinds:
        return [EVERYTHING]
    return [way for _, way in ways(kinds, pool, knows)]
