"""Timers: events that are accepted when they are due."""

from __future__ import annotations

import asyncio

import pytest

from gateway.store.base import Store
from gateway.store.transaction import Timer
from gateway.testing.store_contract.helpers import event, later, take, transaction


class TimersContract:
    async def test_due_timer_is_accepted_with_its_moment_as_stamp(self, store: Store) -> None:
        due = await later(store, 60)
        incoming = event("c", "t-1", body={"n": 1}, stamp=await store.now())
        await store.commit(transaction(store, timers=[Timer(timer_id="t", due=due, incoming=incoming)]))
        assert await store.run_timers() == pytest.approx(60, abs=5)
        assert ((await store.stats()).timers, (await store.stats()).waiting) == (1, 0)
        store.offset_seconds = 61
        assert await store.run_timers() is None
        assert [(waiting.stamp, waiting.body) for waiting in (await take(store)).events] == [(due, {"n": 1})]
        assert (await store.stats()).timers == 0

    async def test_without_timers_there_is_nothing_to_wait_for(self, store: Store) -> None:
        assert await store.run_timers() is None

    async def test_timers_are_moved_and_cancelled(self, store: Store) -> None:
        soon, late = await later(store, 10), await later(store, 100)
        timers = [Timer(timer_id=name, due=soon, incoming=event(name)) for name in ("moved", "cancelled", "kept")]
        await store.commit(transaction(store, timers=timers))
        moved = Timer(timer_id="moved", due=late, incoming=event("moved", body={"moved": True}))
        await store.commit(transaction(store, timers=[moved], cancel=["cancelled", "never set"]))
        store.offset_seconds = 11
        assert await store.run_timers() == pytest.approx(89, abs=5)
        assert (await take(store)).lane == "kept"
        assert await store.lease("w", ["turn"]) is None
        store.offset_seconds = 101
        assert await store.run_timers() is None
        assert (await take(store)).events[0].body == {"moved": True}

    async def test_timers_come_in_the_order_they_fall_due(self, store: Store) -> None:
        timers = [Timer(timer_id=f"t{n}", due=await later(store, n), incoming=event(body={"n": n})) for n in (3, 1, 2)]
        await store.commit(transaction(store, timers=timers))
        store.offset_seconds = 10
        await store.run_timers()
        assert [waiting.body["n"] for waiting in (await take(store)).events] == [1, 2, 3]

    async def test_many_who_tick_accept_a_timer_once(self, store: Store) -> None:
        timers = [Timer(timer_id=f"t{n}", due=await store.now(), incoming=event()) for n in range(20)]
        await store.commit(transaction(store, timers=timers))
        await asyncio.gather(*(store.run_timers() for _ in range(20)))
        assert (await store.stats()).waiting == 20

    async def test_a_timer_whose_event_was_seen_before_brings_nothing(self, store: Store) -> None:
        await store.accept([event("c", "same")])
        timer = Timer(timer_id="t", due=await store.now(), incoming=event("c", "same"))
        await store.commit(transaction(store, timers=[timer]))
        assert await store.run_timers() is None
        assert (await store.stats()).waiting == 1

    async def test_a_timer_may_bring_something_that_decides(self, store: Store) -> None:
        timer = Timer(timer_id="t", due=await store.now(), incoming=event("c", "expiry", decides=True, wakes=False))
        await store.commit(transaction(store, timers=[timer]))
        await store.run_timers()
        assert [waiting.stamp for waiting in await store.pending_decisions("c")] == [timer.due]
        assert await store.lease("w", ["turn"]) is None
