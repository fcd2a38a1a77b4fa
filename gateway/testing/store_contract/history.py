"""The state of a random history: the store, its model, the leases that are held, and the worker that waits for one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest

from gateway.store.base import Store
from gateway.store.errors import Conflict, StoreError, TooLate
from gateway.store.types import Control, Kind, Lease
from gateway.testing.store_contract.helpers import later, transaction
from gateway.testing.store_contract.plain import Lane, LeaseQuery, Plain
from gateway.testing.store_contract.steps import KINDS, Doom


@dataclass(frozen=True, slots=True)
class Waiter:
    """A worker that waits for a lease."""

    query: LeaseQuery
    lease: asyncio.Task[Lease | None]


class HistoryState:
    """The store and its model, with the commits and leases that all steps use."""

    def __init__(self, store: Store, name: str, patience: float) -> None:
        self.store = store
        self.name = name
        self.patience = patience
        self.began = store.offset_seconds
        self.plain = Plain(lanes=[Lane(kind, f"{name}/{each}", each) for kind in KINDS for each in "ab"])
        self.numbers = count()
        self.waiter: Waiter | None = None
        self.doomed: Doom | None = None

    def named(self, name: str) -> str:
        return f"{self.name}/{name}"

    def lane(self, kind: Kind, name: str) -> Lane:
        return self.plain.lane(kind, self.named(name))

    def holders(self) -> list[tuple[Lane, Lease]]:
        return [(lane, lane.held) for lane in self.plain.lanes if lane.held is not None]

    async def held(self, number: int) -> tuple[Lane, Lease] | None:
        """Return one of the leases that are held or have lapsed. If there is none, take one."""
        for query in (LeaseQuery(KINDS, pool=pool) for pool in "ab"):
            if not self.holders() and (ready := self.plain.first(query)):
                await self.taken(ready, await self.ask(query))
        found = self.holders()
        return found[number % len(found)] if found else None

    async def commit(self, name: str = "a", of: Lease | None = None, **changes: Any) -> None:
        """Commit these changes. After a step `doom`, first commit them with one that is refused: none of them stays."""
        conversation = self.named(name)
        if self.doomed is not None:
            error, doom = await self.doom_of(self.doomed, of.lane if of else conversation)
            spoilt = {key: [*changes.get(key, []), *value] if isinstance(value, list) else value for key, value in doom}
            with pytest.raises(error):
                await self.store.commit(transaction(self.store, of=of, conversation=conversation, **(changes | spoilt)))
            self.doomed = None
        await self.store.commit(transaction(self.store, of=of, conversation=conversation, **changes))

    async def doom_of(self, doom: Doom, conversation: str) -> tuple[type[StoreError], list[tuple[str, Any]]]:
        match doom:
            case "expect":
                return Conflict, [("expect", {self.named("a"): self.plain.version("a") + 1})]
            case "not_after":
                return TooLate, [("not_after", await later(self.store, -1))]
            case "replace":
                return Conflict, [("replace", [(conversation, 0, {})])]
            case _:
                return Conflict, [(doom, [(conversation, 0)])]

    async def doom(self, doom: Doom) -> None:
        self.doomed = doom

    async def ask(self, query: LeaseQuery, wait_seconds: float = 0.0) -> Lease | None:
        return await self.store.lease(
            "w",
            query.kinds,
            only=query.only,
            pool=query.pool,
            wait_seconds=wait_seconds,
            lease_seconds=60,
        )

    async def serve_waiter(self) -> None:
        """Check that the waiter is given a lane as soon as one is ready, and not before."""
        if self.waiter is None:
            return
        if ready := self.plain.first(self.waiter.query):
            async with asyncio.timeout(self.patience):
                lease = await self.waiter.lease
            self.waiter = None
            await self.taken(ready, lease)
        else:
            assert not self.waiter.lease.done()

    async def give_up(self) -> None:
        if self.waiter is not None:
            self.waiter.lease.cancel()
            await asyncio.gather(self.waiter.lease, return_exceptions=True)
            self.waiter = None

    async def taken(self, ready: Sequence[Lane], lease: Lease | None) -> None:
        """Check that the lease is of one of these lanes, with its state and content."""
        assert lease is not None
        lane = self.plain.lane(lease.kind, lease.lane)
        assert lane in ready
        lane.take(lease)
        assert (lease.tries, lease.died) == (lane.tries, lane.died)
        assert [(found.body["n"], found.pointed, found.collects, found.tries) for found in lease.events] == [
            (item.name, item.pointed, item.collects, item.tries) for item in lane.items if lane.kind == "turn"
        ]
        assert [(found.part_id, found.tries) for found in lease.parts] == [
            (item.name, item.tries) for item in lane.items if lane.kind == "out"
        ]
        assert lease.steps == tuple(lane.steps)
        assert lane.gone is None or lease.fence > lane.gone.fence
        assert lease.sure_until <= time.monotonic() + 60
        await self.listen(lane)

    async def listen(self, lane: Lane) -> None:
        """Check that a renewal returns the signals since the lease began."""
        if lane.held is not None and not lane.lapsed:
            assert await self.store.renew(lane.held, lease_seconds=60) == Control(tuple(lane.signals))

    async def lapse(self, left: int) -> None:
        """Wait until this many leases are held, or the waiter was given one that lapsed."""
        async with asyncio.timeout(self.patience):
            while (await self.store.stats()).leased > left and not (self.waiter and self.waiter.lease.done()):
                pass
        # The moment of the lapse is not known here, so the store is not asked to foresee it.
        self.store.offset_seconds = self.began + self.plain.now
