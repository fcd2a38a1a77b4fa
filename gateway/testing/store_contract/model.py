"""Random histories of one conversation's lanes, against a model of plain lists that shares no code with any store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.store.base import Conflict, Fenced, Lease, Store
from gateway.testing.store_contract.helpers import event, later, many_histories, part, seqs, transaction

__all__ = ["ModelContract"]

Step = tuple[str, Any]
Way = Literal["turn", "out"]
KINDS: Sequence[Way] = ("turn", "out")

numbers = st.integers(0, 3)
kinds = st.sampled_from(KINDS)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("accept"), st.tuples(st.booleans(), st.booleans(), st.booleans(), st.integers(0, 9))),
        st.tuples(st.just("queue"), numbers),
        st.tuples(st.just("lease"), kinds),
        st.tuples(st.just("work"), st.tuples(kinds, numbers, st.booleans())),
        st.tuples(st.just("finish"), st.tuples(kinds, st.sampled_from(["done", "failed"]), numbers)),
        st.tuples(st.just("collect"), numbers),
        st.tuples(st.just("die"), kinds),
        st.tuples(st.just("zombie"), kinds),
        st.tuples(st.just("unpoint"), numbers),
        st.tuples(st.just("forget"), numbers),
    ),
    max_size=40,
)


@dataclass
class Item:
    """An event or a part."""

    name: Any
    wakes: bool = True
    pointed: bool = False
    collects: bool = False
    tries: int = 0

    @property
    def urgent(self) -> bool:
        return self.wakes and not self.pointed and not self.collects


@dataclass
class Lane:
    """What a store must know of one lane."""

    items: list[Item] = field(default_factory=list)
    held: Lease | None = None
    gone: Lease | None = None
    """The last lease that was lost or ended."""
    handed: list[Item] = field(default_factory=list)
    """What the lease held is answerable for."""
    tries: int = 0
    steps: list[str] = field(default_factory=list)
    dead: bool = False
    collecting: bool = False
    """Ready only once it has something that does not collect: its moment is a day away."""

    @property
    def ready(self) -> bool:
        free = self.held is None or self.dead
        return free and not self.collecting and any(item.wakes and not item.pointed for item in self.items)

    def put(self, item: Item) -> None:
        self.items.append(item)
        self.collecting = self.collecting and not item.urgent

    def blame(self) -> None:
        for item in self.handed:
            item.tries += 1


class History:
    """One conversation in the store, and what it should be."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        self.lanes: dict[Way, Lane] = {"turn": Lane(), "out": Lane()}
        self.seen: set[str] = set()
        self.numbers = count()

    async def accept(self, step: tuple[bool, bool, bool, int]) -> None:
        decides, wakes, collects, number = step
        event_id, body = f"{self.name}:{number}", next(self.numbers)
        fresh = event_id not in self.seen
        arriving = event(self.name, event_id, body={"n": body}, decides=decides, wakes=wakes, collects=collects)
        assert await self.store.accept([arriving]) == [fresh]
        self.seen.add(event_id)
        if fresh:
            self.lanes["turn"].put(Item(body, wakes, decides, collects))

    async def queue(self, many: int) -> None:
        names = [f"{self.name}:{next(self.numbers)}" for _ in range(many)]
        parts = [part(name, self.name) for name in names]
        await self.store.commit(transaction(self.store, conversation=self.name, parts=parts))
        self.lanes["out"].items += map(Item, names)

    async def lease(self, kind: Way) -> None:
        lane = self.lanes[kind]
        patience = 5.0 if lane.ready else 0.0  # one that died may need a moment to lapse
        lease = await self.store.lease("w", [kind], only=self.name, wait_seconds=patience, lease_seconds=60)
        assert (lease is not None) == lane.ready
        if lease is None:
            return
        if lane.dead:
            lane.tries += 1
            lane.blame()
        assert (lease.tries, lease.died) == (lane.tries, lane.dead)
        if kind == "turn":
            assert [(found.body["n"], found.pointed, found.collects, found.tries) for found in lease.events] == [
                (item.name, item.pointed, item.collects, item.tries) for item in lane.items
            ]
            assert lease.steps == tuple(lane.steps)
        else:
            assert [(found.part_id, found.tries) for found in lease.parts] == [
                (item.name, item.tries) for item in lane.items
            ][:20]
        if lane.gone is not None or lane.held is not None:
            assert lease.fence > (lane.held or lane.gone).fence  # type: ignore[union-attr]
        lane.gone, lane.held, lane.dead = lane.held or lane.gone, lease, False
        lane.handed = lane.items[:] if kind == "turn" else lane.items[:1]

    def deal(self, kind: Way, lease: Lease, many: int) -> dict[str, Any]:
        """The first few of what the lease holds are dealt with."""
        lane = self.lanes[kind]
        if kind == "turn":
            there = {item.name for item in lane.items}
            events = [found for found in lease.events if found.body["n"] in there][:many]
            gone = {found.body["n"] for found in events}
            changes: dict[str, Any] = {"consume": seqs(events)}
        else:
            gone = {queued.part_id for queued in lease.parts[:many]}
            changes = {"sent": sorted(gone)}
        lane.items = [item for item in lane.items if item.name not in gone]
        return changes

    async def work(self, step: tuple[Way, int, bool]) -> None:
        kind, many, checkpoint = step
        lane = self.lanes[kind]
        if (lease := lane.held) is None:
            return
        changes = self.deal(kind, lease, many)
        if checkpoint and kind == "turn":
            changes["steps"] = [f"step {next(self.numbers)}"]
            lane.steps += changes["steps"]
        await self.store.commit(transaction(self.store, of=lease, **changes))

    async def finish(self, step: tuple[Way, Literal["done", "failed"], int]) -> None:
        kind, outcome, many = step
        lane = self.lanes[kind]
        if (lease := lane.held) is None:
            return
        changes = self.deal(kind, lease, many)
        await self.store.commit(transaction(self.store, of=lease, finish=outcome, **changes))
        if outcome == "failed" or kind == "out":
            lane.blame()
        lane.tries = 0 if outcome == "done" else lane.tries + 1
        lane.steps = [] if outcome == "done" else lane.steps
        lane.held, lane.gone, lane.dead = None, lease, False

    async def collect(self, many: int) -> None:
        lane = self.lanes["turn"]
        if (lease := lane.held) is None:
            return
        changes = self.deal("turn", lease, many)
        until = await later(self.store, 86400)
        await self.store.commit(transaction(self.store, of=lease, finish="done", collect_until=until, **changes))
        lane.tries, lane.steps = 0, []
        lane.held, lane.gone, lane.dead = None, lease, False
        waits = [item for item in lane.items if item.wakes and not item.pointed]
        lane.collecting = bool(waits) and all(item.collects for item in waits)

    async def die(self, kind: Way) -> None:
        lane = self.lanes[kind]
        if lane.held is not None:
            await self.store.renew(lane.held, lease_seconds=0.001)
            lane.dead = True

    async def zombie(self, kind: Way) -> None:
        lane = self.lanes[kind]
        if lane.gone is not None:
            with pytest.raises(Fenced):
                await self.store.renew(lane.gone)
            with pytest.raises(Fenced):
                await self.store.commit(transaction(self.store, of=lane.gone, finish="done"))

    async def unpoint(self, number: int) -> None:
        await self.decide(number, consume=False)

    async def forget(self, number: int) -> None:
        await self.decide(number, consume=True)

    async def decide(self, number: int, *, consume: bool) -> None:
        lane = self.lanes["turn"]
        expected = [item for item in lane.items if item.pointed]
        found = await self.store.pointed(self.name)
        assert [waiting.body["n"] for waiting in found] == [item.name for item in expected]
        if number >= len(expected):
            return
        chosen = seqs([found[number]])
        changes: dict[str, Any] = {"consume": chosen} if consume else {"unpoint": chosen}
        await self.store.commit(transaction(self.store, conversation=self.name, **changes))
        with pytest.raises(Conflict):
            await self.store.commit(transaction(self.store, conversation=self.name, **changes))
        expected[number].pointed = False
        if consume:
            lane.items.remove(expected[number])
        elif expected[number].wakes:
            lane.collecting = False

    async def clear(self) -> None:
        """Leave nothing behind, and check that nothing is."""
        for kind in KINDS:
            await self.die(kind)
        await self.store.commit(
            transaction(self.store, conversation=self.name, consume=seqs(await self.everything()), sent=self.queued())
        )
        stats = await self.store.stats()
        assert (stats.waiting, stats.pointed, stats.parts, stats.ready) == (0, 0, 0, 0)

    def queued(self) -> list[str]:
        return [item.name for item in self.lanes["out"].items]

    async def everything(self) -> Any:
        self.lanes["turn"].put(Item("last"))
        assert await self.store.accept([event(self.name, body={"n": "last"})]) == [True]
        await self.lease("turn") if self.lanes["turn"].ready else None
        lease = self.lanes["turn"].held
        assert lease is not None
        return lease.events


class ModelContract:
    @many_histories
    @given(steps=STEPS)
    async def test_any_history_goes_as_the_model_says(self, store: Store, steps: Sequence[Step]) -> None:
        history = History(store, f"history {await store.now()}")
        for name, argument in steps:
            await getattr(history, name)(argument)
        await history.clear()
