"""The steps and the state of a random history: the rules, the store, the model, and the held leases."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import pytest
from hypothesis import strategies as st

from gateway.store.base import Store
from gateway.store.clock_steps import elapsed_seconds
from gateway.store.errors import Conflict, StoreError, TooLate
from gateway.store.types import KINDS, MAILBOXES, Control, Kind, Lease
from gateway.testing.store_contract.helpers import later, transaction
from gateway.testing.store_contract.plain import BURST, Lane, LeaseQuery, Plain

PASSES = 60.0
"""Seconds of each step of time. Other moments are between two steps."""
SOON, LATER, KEPT = 30.0, 90.0, 100.0

Rest = Literal["due", "collect_until"] | None
Doom = Literal["expect", "not_after", "consume", "drop_pointers", "replace"]
Way = Literal["consume", "drop_pointers", "replace"]
SORTS: dict[str, dict[str, Any]] = {
    "message": {},
    "collects": {"collects": True},
    "decides": {"decides": True},
    "decides, collects": {"decides": True, "collects": True},
    "decides quietly": {"decides": True, "wakes": False},
    "quiet": {"wakes": False},
    "about": {"wakes": False, "about": "this"},
}

ab = st.sampled_from("ab")
few = st.integers(0, 3)
sorts = st.sampled_from(["message", "message", *SORTS])
moments = st.sampled_from([SOON, LATER])


def leases(*kinds: Kind) -> st.SearchStrategy[Any]:
    """Return a strategy for leases of all of these kinds or of a single kind."""
    return st.tuples(
        st.sampled_from([kinds, *((kind,) for kind in kinds)]),
        st.sampled_from([None, None, None, "a", "b"]),
        st.sampled_from("ab"),
        st.sampled_from([False, False, True]),
    )


Rules = dict[str, st.SearchStrategy[Any]]
HOLDING: Rules = {
    "work": st.tuples(few, few, st.booleans()),
    "finish": st.tuples(
        few,
        st.sampled_from(["done", "failed"]),
        st.sampled_from([0, 0, 1, 3]),
        st.sampled_from([None, None, None, "due", "collect_until"]),
        moments,
    ),
    "renew": st.tuples(few),
    "die": st.tuples(few),
    "zombie": st.tuples(few),
    "give_up": st.just(()),
    "pass_time": st.tuples(st.sampled_from([PASSES, PASSES, PASSES, 11 * PASSES])),
}
TURNS: Rules = HOLDING | {
    "accept": st.tuples(ab, sorts, st.integers(0, 5), st.booleans()),
    "decide": st.tuples(ab, few, st.sampled_from(["consume", "drop_pointers", "replace"])),
    "signal": st.tuples(ab, st.integers(1, 2)),
    "lease": leases("turn"),
}
OTHERS: Rules = HOLDING | {
    "queue": st.tuples(ab, few),
    "send": st.tuples(ab, few),
    "launch": st.tuples(ab),
    "remember": st.tuples(ab),
    "lease": leases("out", "action", "memory"),
}
KEEPING: Rules = {
    "accept": TURNS["accept"],
    "pass_time": st.tuples(st.sampled_from([PASSES, PASSES, PASSES, 11 * PASSES])),
    "put": st.tuples(ab, st.booleans()),
    "delete": st.tuples(ab),
    "append": st.tuples(ab),
    "cut": st.tuples(ab, st.none() | few, st.integers(0, 2), st.booleans()),
    "read": st.tuples(ab, few, st.sampled_from([None, 0, 1, 3])),
    "take": st.tuples(st.integers(1, BURST)),
    "set_timer": st.tuples(ab, sorts, moments),
    "cancel": st.tuples(ab),
    "bury": st.tuples(ab, st.booleans(), st.integers(0, 5)),
    "replay": st.tuples(ab),
    "drop": st.tuples(ab),
    "doom": st.tuples(st.sampled_from(["expect", "not_after", "consume", "drop_pointers", "replace"])),
    "check": st.just(()),
}
ALL: Rules = TURNS | OTHERS | KEEPING | {"lease": leases(*KINDS)}
Step = tuple[str, tuple[Any, ...]]


def histories(rules: Rules) -> st.SearchStrategy[list[Step]]:
    """Return a strategy for long histories. Hypothesis shrinks a failing history to the relevant steps."""
    often = (
        "accept",
        "accept",
        "queue",
        "launch",
        "lease",
        "lease",
        "lease",
        "lease",
        "append",
    )  # most steps need work
    names = [*rules, *(name for name in often if name in rules)]
    steps = st.one_of([st.tuples(st.just(name), rules[name]) for name in names])
    drawn = st.lists(st.none() | steps, min_size=30, max_size=50)
    return drawn.map(lambda steps: [step for step in steps if step is not None])


COLLECTING: Rules = {
    "accept": st.tuples(ab, st.sampled_from(list(SORTS)), st.integers(0, 99), st.just(False)),
    "decide": st.tuples(ab, few, st.just("drop_pointers")),
    "lease": leases("turn"),
    "finish": st.tuples(few, st.just("done"), st.sampled_from([0, 0, 1]), st.just("collect_until"), moments),
    "pass_time": st.tuples(st.sampled_from([PASSES, PASSES, PASSES, 11 * PASSES])),
}
POOLS: Rules = {name: OTHERS[name] for name in ("queue", "finish", "die")} | {"lease": leases("out")}
HISTORIES = st.one_of([histories(rules) for rules in (TURNS, OTHERS, KEEPING, COLLECTING, POOLS, ALL)])
"""Histories of a few rules with frequent interaction, and of all rules."""


@dataclass(frozen=True, slots=True)
class Waiter:
    """A worker waiting for a lease."""

    query: LeaseQuery
    lease: asyncio.Task[Lease | None]


class HistoryState:
    """The store and the model, with the commits and leases used by all steps."""

    def __init__(self, store: Store, name: str, patience: float) -> None:
        self.store = store
        self.name = name
        self.patience = patience
        self.began = store.offset_seconds
        self.plain = Plain(lanes=[Lane(kind, self.lane_name(kind, each), each) for kind in KINDS for each in "ab"])
        self.numbers = count()
        self.waiter: Waiter | None = None
        self.doomed: Doom | None = None

    def named(self, name: str) -> str:
        return f"{self.name}/{name}"

    def lane_name(self, kind: Kind, name: str) -> str:
        return self.named(f"{name} memory" if kind == "memory" else name)

    def lane(self, kind: Kind, name: str) -> Lane:
        return self.plain.lane(kind, self.lane_name(kind, name))

    def holders(self) -> list[tuple[Lane, Lease]]:
        return [(lane, lane.held) for lane in self.plain.lanes if lane.held is not None]

    async def held(self, number: int) -> tuple[Lane, Lease] | None:
        """Return a held or lapsed lease. If there is none, take a lease."""
        for query in (LeaseQuery(KINDS, pool=pool) for pool in "ab"):
            if not self.holders() and (ready := self.plain.first(query)):
                await self.taken(ready, await self.ask(query))
        found = self.holders()
        return found[number % len(found)] if found else None

    async def commit(self, name: str = "a", of: Lease | None = None, **changes: Any) -> None:
        """Commit these changes. After a step `doom`, first commit the changes with a refused change: no change
        stays."""
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
        """Check that the waiter is given a lane as soon as a lane is ready, and not before."""
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
        """Check the lease: its lane is in `ready`, and the state and the content match the lane."""
        assert lease is not None
        lane = self.plain.lane(lease.kind, lease.lane)
        assert lane in ready
        lane.take(lease)
        assert (lease.tries, lease.died) == (lane.tries, lane.died)
        assert [(found.body["n"], found.pointed, found.collects, found.tries) for found in lease.events] == [
            (item.name, item.pointed, item.collects, item.tries) for item in lane.items if lane.kind in MAILBOXES
        ]
        assert [(found.part_id, found.tries) for found in lease.parts] == [
            (item.name, item.tries) for item in lane.items if lane.kind == "out"
        ]
        assert lease.steps == tuple(lane.steps)
        assert lane.gone is None or lease.fence > lane.gone.fence
        assert lease.sure_until <= elapsed_seconds() + 60
        await self.listen(lane)

    async def listen(self, lane: Lane) -> None:
        """Check that a renewal returns the signals since the lease began."""
        if lane.held is not None and not lane.lapsed:
            assert await self.store.renew(lane.held, lease_seconds=60) == Control(tuple(lane.signals))

    async def lapse(self, left: int) -> None:
        """Wait until this many leases are held, or the waiter was given a lapsed lease."""
        async with asyncio.timeout(self.patience):
            while (await self.store.stats()).leased > left and not (self.waiter and self.waiter.lease.done()):
                pass
        # The moment of the lapse is not known here, so the store is not asked to foresee it.
        self.store.offset_seconds = self.began + self.plain.now
