"""Leases: one holder for each lane, the lane that has been ready longest first, and waits without polling."""

from __future__ import annotations

import asyncio

import pytest

from gateway.store.base import Store
from gateway.store.errors import Fenced
from gateway.store.types import Control
from gateway.testing.store_contract.helpers import arrive, event, later, near, part, seqs, take, transaction


class LanesContract:
    async def test_nothing_is_ready_in_an_empty_store(self, store: Store) -> None:
        assert await store.lease("w", ["turn", "action", "out"]) is None
        assert await store.lease("w", ["turn"], wait_seconds=0.02) is None

    async def test_the_lane_that_was_ready_first_is_taken_first(self, store: Store) -> None:
        for name in ("z", "a", "m"):
            await arrive(store, name)
        await arrive(store, "z")
        assert [(await take(store)).lane for _ in range(3)] == ["z", "a", "m"]
        assert await store.lease("w", ["turn"]) is None

    async def test_a_lane_that_has_more_work_queues_up_again(self, store: Store) -> None:
        b = near(store, "b", "a")
        await store.accept([event("a"), event("a"), event(b)])
        lease = await take(store)
        assert lease.lane == "a"
        await store.commit(transaction(store, of=lease, finish="done", consume=seqs(lease.events)[:1]))
        assert [(await take(store)).lane for _ in range(2)] == [b, "a"]

    async def test_only_the_kinds_asked_for_are_taken(self, store: Store) -> None:
        await arrive(store)
        await store.commit(transaction(store, parts=[part("p")], actions=["act"]))
        assert (await take(store, "action")).lane == "act"
        assert (await take(store, "out")).lane == "c"
        assert await store.lease("w", ["action", "out"]) is None
        lease = await store.lease("me", ["out", "turn"])
        assert lease is not None
        assert (lease.kind, lease.lane, lease.worker, lease.partition) == ("turn", "c", "me", store.partition("c"))

    async def test_one_lane_can_be_asked_for(self, store: Store) -> None:
        await arrive(store, "a")
        await arrive(store, "b")
        assert (await take(store, only="b")).lane == "b"
        assert await store.lease("w", ["turn"], only="b") is None
        assert await store.lease("w", ["turn"], only="nobody") is None

    async def test_a_held_lane_is_not_taken_and_others_are(self, store: Store) -> None:
        await arrive(store, "a")
        await take(store)
        await arrive(store, "a")
        await arrive(store, "b")
        assert (await take(store)).lane == "b"
        assert await store.lease("w", ["turn"]) is None

    async def test_many_workers_take_each_lane_once(self, store: Store) -> None:
        await store.accept([event(f"c{n}") for n in range(20)])
        leases = await asyncio.gather(*(store.lease(f"w{n}", ["turn"]) for n in range(50)))
        assert sorted(lease.lane for lease in leases if lease) == sorted(f"c{n}" for n in range(20))

    async def test_many_waiting_workers_take_each_lane_once(self, store: Store) -> None:
        waiting = [asyncio.create_task(store.lease(f"w{n}", ["turn"], wait_seconds=0.5)) for n in range(50)]
        await asyncio.gather(*(arrive(store, f"c{n}") for n in range(20)))
        leases = await asyncio.gather(*waiting)
        assert sorted(lease.lane for lease in leases if lease) == sorted(f"c{n}" for n in range(20))

    async def test_fences_always_grow(self, store: Store) -> None:
        fences = []
        for _ in range(5):
            await arrive(store)
            lease = await take(store)
            fences.append(lease.fence)
            await store.commit(transaction(store, of=lease, finish="done", consume=seqs(lease.events)))
        assert fences == sorted(set(fences))

    async def test_finish_done_resets_tries_and_steps(self, store: Store) -> None:
        await arrive(store)
        lease = await take(store)
        await store.commit(transaction(store, of=lease, finish="failed", steps=["s"]))
        lease = await take(store)
        assert (lease.tries, lease.died, lease.steps, lease.events[0].tries) == (1, False, ("s",), 1)
        await store.commit(transaction(store, of=lease, finish="done"))
        lease = await take(store)
        assert (lease.tries, lease.died, lease.steps, lease.events[0].tries) == (0, False, (), 1)

    async def test_failures_in_a_row_count_for_the_lane_and_its_events(self, store: Store) -> None:
        await arrive(store)
        for tries in range(3):
            lease = await take(store)
            assert (lease.tries, lease.events[0].tries) == (tries, tries)
            await store.commit(transaction(store, of=lease, finish="failed"))
        lease = await take(store)
        await arrive(store)
        await store.commit(transaction(store, of=lease, finish="failed"))
        assert [waiting.tries for waiting in (await take(store)).events] == [4, 0]

    async def test_finish_ends_the_lease(self, store: Store) -> None:
        await arrive(store)
        for outcome in ("failed", "done"):
            lease = await take(store)
            await store.commit(transaction(store, of=lease, finish=outcome))
            with pytest.raises(Fenced):
                await store.renew(lease)
            with pytest.raises(Fenced):
                await store.commit(transaction(store, of=lease))

    async def test_a_lane_rests_until_it_is_due(self, store: Store) -> None:
        await arrive(store)
        lease = await take(store)
        await store.commit(transaction(store, of=lease, finish="failed", due=await later(store, 60)))
        assert await store.lease("w", ["turn"]) is None
        assert await store.lease("w", ["turn"], only="c") is None
        assert ((await store.stats()).ready, (await store.stats()).parked) == (0, 1)
        await arrive(store)
        assert await store.lease("w", ["turn"]) is None, "new work does not wake it"
        store.offset_seconds = 61
        assert len((await take(store)).events) == 2

    async def test_a_lane_rests_though_its_work_comes_later(self, store: Store) -> None:
        await arrive(store)
        lease = await take(store)
        due = await later(store, 60)
        await store.commit(transaction(store, of=lease, finish="done", due=due, consume=seqs(lease.events)))
        assert (await store.stats()).parked == 0
        await arrive(store)
        assert (await store.stats()).parked == 1
        assert await store.lease("w", ["turn"]) is None
        store.offset_seconds = 61
        await take(store)

    async def test_a_lane_that_collects_waits_for_more_of_the_same(self, store: Store) -> None:
        await arrive(store, collects=True)
        lease = await take(store)
        assert [found.collects for found in lease.events] == [True]
        until = await later(store, 60)
        await store.commit(transaction(store, of=lease, finish="done", collect_until=until))
        await arrive(store, collects=True)
        await arrive(store, wakes=False)
        assert await store.lease("w", ["turn"], only="c") is None
        assert ((await store.stats()).ready, (await store.stats()).parked) == (0, 1)
        store.offset_seconds = 61
        lease = await take(store)
        assert (len(lease.events), lease.tries, lease.died) == (3, 0, False)

    async def test_ordinary_event_ends_the_collect_wait(self, store: Store) -> None:
        await arrive(store, collects=True)
        waiting = asyncio.create_task(take(store, wait_seconds=20, only="c"))
        lease = await waiting
        waiting = asyncio.create_task(take(store, wait_seconds=20))
        until = await later(store, 3600)
        await store.commit(transaction(store, of=lease, finish="done", collect_until=until))
        await arrive(store)
        assert len((await asyncio.wait_for(waiting, 5)).events) == 2

    async def test_earlier_ordinary_event_allows_no_collect_wait(self, store: Store) -> None:
        await arrive(store, collects=True)
        lease = await take(store)
        await arrive(store)
        until = await later(store, 3600)
        await store.commit(transaction(store, of=lease, finish="done", collect_until=until))
        assert len((await take(store)).events) == 2

    async def test_what_loses_its_pointer_ends_the_wait(self, store: Store) -> None:
        await arrive(store, collects=True)
        lease = await take(store)
        await arrive(store, decides=True, collects=True)
        until = await later(store, 3600)
        await store.commit(transaction(store, of=lease, finish="done", collect_until=until))
        assert await store.lease("w", ["turn"]) is None
        await store.commit(transaction(store, drop_pointers=seqs(await store.pending_decisions())))
        assert len((await take(store)).events) == 2

    async def test_ordinary_event_does_not_end_a_retry_rest(self, store: Store) -> None:
        await arrive(store, collects=True)
        lease = await take(store)
        due, until = await later(store, 60), await later(store, 120)
        await store.commit(transaction(store, of=lease, finish="failed", due=due, collect_until=until))
        await arrive(store)
        assert await store.lease("w", ["turn"]) is None
        store.offset_seconds = 61
        await take(store)

    async def test_who_waits_is_given_the_lane_when_it_falls_due(self, store: Store) -> None:
        await arrive(store)
        lease = await take(store)
        await store.commit(transaction(store, of=lease, finish="failed", due=await later(store, 0.05)))
        await asyncio.wait_for(take(store, wait_seconds=20), 2)

    async def test_conversation_has_work_until_turn_and_outbox_are_done(self, store: Store) -> None:
        assert not await store.has_work("c")
        await store.accept([event(decides=True), event("d")])
        assert not await store.has_work("c"), "what has a pointer is decided, and starts no turn"
        await store.commit(transaction(store, drop_pointers=seqs(await store.pending_decisions())))
        assert await store.has_work("c")
        lease = await take(store, only="c")
        assert await store.has_work("c")
        done = transaction(store, of=lease, finish="done", consume=seqs(lease.events), parts=[part("p")])
        await store.commit(done)
        assert await store.has_work("c")
        out = await take(store, "out")
        assert await store.has_work("c")
        await store.commit(transaction(store, of=out, finish="done", sent=["p"]))
        assert not await store.has_work("c")

    async def test_a_turn_is_held_until_its_lease_ends_or_lapses(self, store: Store) -> None:
        await arrive(store)
        assert not await store.is_held("c")
        lease = await take(store)
        assert await store.is_held("c")
        assert not await store.is_held("another")
        await store.commit(transaction(store, of=lease, finish="failed"))
        assert not await store.is_held("c")
        await store.commit(transaction(store, parts=[part("p")]))
        await take(store, "out")
        assert not await store.is_held("c"), "its outbox is"
        await take(store, lease_seconds=0.0)
        assert not await store.is_held("c"), "it has lapsed"

    async def test_renew_keeps_a_lease(self, store: Store) -> None:
        await arrive(store)
        lease = await take(store, lease_seconds=0.05)
        assert await store.renew(lease, lease_seconds=60) == Control()
        assert await store.lease("w", ["turn"], wait_seconds=0.1) is None

    async def test_the_holder_hears_the_signals_since_it_began(self, store: Store) -> None:
        await arrive(store)
        await store.commit(transaction(store, signals=[("c", "nobody hears this")]))
        lease = await take(store)
        assert await store.renew(lease) == Control()
        await store.commit(transaction(store, signals=[("c", {"stop": 1}), (near(store, "d"), "not mine")]))
        await store.commit(transaction(store, signals=[("c", "again")]))
        assert await store.renew(lease) == Control(({"stop": 1}, "again"))
        assert await store.renew(lease) == Control(({"stop": 1}, "again")), "a lost answer loses no signal"
        await store.commit(transaction(store, of=lease, finish="failed"))
        assert await store.renew(await take(store)) == Control()

    async def test_a_caller_who_gave_up_waiting_takes_nothing(self, store: Store) -> None:
        for _ in range(5):
            waiting = asyncio.create_task(store.lease("w", ["turn"], wait_seconds=20))
            await store.ping()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await arrive(store)
        lease = await take(store)
        assert (lease.tries, lease.died) == (0, False)

    @pytest.mark.parametrize("yields", range(0, 100, 5))
    async def test_a_caller_cancelled_at_any_moment_holds_nothing(self, store: Store, yields: int) -> None:
        await arrive(store)
        await take(store, lease_seconds=0.001)
        while (await store.stats()).leased:
            pass
        asked = asyncio.create_task(store.lease("w", ["turn"], lease_seconds=60))
        for _ in range(yields):
            await asyncio.sleep(0)
        if asked.cancel():
            await asyncio.gather(asked, return_exceptions=True)
            lease = await take(store, wait_seconds=0)
            assert (lease.tries, lease.died) == (1, True), "told what the cancelled one would have been told"
        else:
            assert await asked is not None
