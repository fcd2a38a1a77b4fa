"""The clock, the counts, timers, opening and closing."""

from __future__ import annotations

import asyncio
from datetime import UTC, timedelta

import pytest

from gateway.store.base import Store
from gateway.store.errors import StoreUnavailable
from gateway.store.transaction import Timer
from gateway.store.types import Dead, Stats
from gateway.testing.store_contract.helpers import arrive, event, later, near, part, seqs, take, transaction

EMPTY = Stats(
    waiting=0, pointed=0, ready=0, leased=0, parked=0, parts=0, timers=0, dead=0, oldest_waiting_seconds=0.0
)  # fmt: skip


class ServiceContract:
    async def test_the_clock_is_in_utc_and_never_goes_backwards(self, store: Store) -> None:
        first = await store.now()
        assert first.tzinfo is UTC
        store.offset_seconds = 3600
        ahead = await store.now()
        assert ahead - first >= timedelta(hours=1)
        store.offset_seconds = 0
        assert await store.now() >= ahead
        assert (await store.commit(transaction(store))).at >= ahead

    async def test_stats_follow_the_changes_of_the_store(self, store: Store) -> None:
        assert await store.stats() == EMPTY
        a = near(store, "a")
        await store.accept([event(a), event("b", decides=True), event("d", wakes=False)])
        await store.commit(
            transaction(
                store,
                parts=[part("p", a), part("q", a)],
                actions=["act"],
                timers=[
                    Timer(timer_id=name, due=await later(store, 60), incoming=event())
                    for name in ("t", "expiry/a", "expiry/b/c", "undelivered/a")
                ],
                dead=[Dead(dead_id="d", conversation="c", reason="r")],
            )
        )
        stats = await store.stats()
        assert (stats.waiting, stats.pointed, stats.parts, stats.timers, stats.dead) == (2, 1, 2, 4, 1)
        assert stats.timer_kinds == {"expiry": 2, "undelivered": 1}
        assert (stats.ready, stats.leased, stats.parked) == (3, 0, 0)
        lease = await take(store)
        out = await take(store, "out")
        stats = await store.stats()
        assert (stats.ready, stats.leased, stats.parked) == (1, 2, 0)
        await store.commit(transaction(store, of=out, finish="failed", due=await later(store, 60)))
        stats = await store.stats()
        assert (stats.ready, stats.leased, stats.parked) == (1, 1, 1)
        await store.commit(transaction(store, of=lease, finish="done", consume=seqs(lease.events)))
        await store.commit(transaction(store, of=await take(store, "action"), finish="done"))
        stats = await store.stats()
        assert (stats.ready, stats.leased, stats.parked) == (0, 0, 1)
        store.offset_seconds = 61
        stats = await store.stats()
        assert (stats.ready, stats.leased, stats.parked) == (1, 0, 0)
        assert stats.oldest_waiting_seconds == pytest.approx(61, abs=5)

    async def test_a_lapsed_lease_counts_as_ready(self, store: Store) -> None:
        await arrive(store)
        await take(store, lease_seconds=0.02)
        while (stats := await store.stats()).leased:
            pass
        assert (stats.ready, stats.leased) == (1, 0)

    async def test_an_open_store_answers_and_a_closed_one_says_so(self, store: Store) -> None:
        await store.ping()
        waiting = asyncio.create_task(store.lease("w", ["turn"], wait_seconds=20))
        await store.ping()
        await store.close()
        await store.close()
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(waiting, 5)
        with pytest.raises(StoreUnavailable):
            await store.ping()
        with pytest.raises(StoreUnavailable):
            await store.accept([event()])

    async def test_calls_begun_before_close_are_completed(self, store: Store) -> None:
        accepted = [asyncio.create_task(arrive(store)) for _ in range(20)]
        await asyncio.sleep(0)
        await store.close()
        await asyncio.gather(*accepted)

    async def test_a_conversation_has_a_partition_of_two_digits(self, store: Store) -> None:
        for conversation in ("", "c", "telegram:1:2", "🎉"):
            assert store.partition(conversation).isdigit()
            assert len(store.partition(conversation)) == 2

    async def test_an_empty_store_has_room(self, store: Store) -> None:
        assert await store.has_headroom()


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

    async def test_run_timers_returns_none_without_timers(self, store: Store) -> None:
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

    async def test_concurrent_run_timers_accept_each_timer_once(self, store: Store) -> None:
        timers = [Timer(timer_id=f"t{n}", due=await store.now(), incoming=event()) for n in range(20)]
        await store.commit(transaction(store, timers=timers))
        await asyncio.gather(*(store.run_timers() for _ in range(20)))
        assert (await store.stats()).waiting == 20

    async def test_timer_with_an_event_seen_before_adds_no_event(self, store: Store) -> None:
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
