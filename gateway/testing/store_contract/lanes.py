"""Leases: a single holder for each lane, the longest-ready lane first, hand-overs, and lost leases."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from gateway.store.base import Store
from gateway.store.errors import Conflict, Fenced
from gateway.store.types import KINDS, Control, Incoming, Waiting
from gateway.testing.store_contract.helpers import arrive, event, later, near, part, seqs, take, transaction


class LanesContract:
    async def test_empty_store_has_no_ready_lane(self, store: Store) -> None:
        assert await store.lease("w", [*KINDS]) is None
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

    async def test_event_losing_its_pointer_ends_collecting(self, store: Store) -> None:
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

    async def test_lease_wait_ends_when_a_lane_falls_due(self, store: Store) -> None:
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

    async def test_cancelled_lease_wait_takes_no_lane(self, store: Store) -> None:
        for _ in range(5):
            waiting = asyncio.create_task(store.lease("w", ["turn"], wait_seconds=20))
            await store.ping()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        await arrive(store)
        lease = await take(store)
        assert (lease.tries, lease.died) == (0, False)

    @pytest.mark.parametrize("yields", range(0, 100, 5))
    async def test_lease_call_cancelled_at_any_moment_holds_no_lane(self, store: Store, yields: int) -> None:
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


SHORT = 0.02
"""Seconds of a short lease, for a lapse within a test."""


class TakeoverContract:
    async def test_a_lapsed_lease_is_taken_over_and_told_of(self, store: Store) -> None:
        await store.accept([event(body={"n": 1}), event(body={"n": 2})])
        dead = await take(store, lease_seconds=SHORT)
        await arrive(store, body={"n": 3})
        lease = await take(store, wait_seconds=5)
        assert (lease.tries, lease.died, lease.fence > dead.fence) == (1, True, True)
        assert [waiting.tries for waiting in lease.events] == [1, 1, 0]

    async def test_lapsed_lease_is_taken_over_before_later_work(self, store: Store) -> None:
        await arrive(store, "a")
        await take(store, lease_seconds=SHORT)
        await arrive(store, "b")
        assert (await take(store, only="a", wait_seconds=5)).died
        assert not (await take(store)).died

    async def test_zombie_can_neither_renew_nor_commit(self, store: Store) -> None:
        await arrive(store)
        zombie = await take(store, lease_seconds=SHORT)
        lease = await take(store, wait_seconds=5)
        with pytest.raises(Fenced):
            await store.renew(zombie)
        with pytest.raises(Fenced):
            await store.commit(
                transaction(store, of=zombie, finish="done", consume=seqs(zombie.events), appends=[("log", 1)])
            )
        await store.commit(transaction(store, of=lease, finish="done", consume=seqs(lease.events)))
        with pytest.raises(Fenced):
            await store.commit(transaction(store, of=zombie))

    async def test_lapsed_lease_can_be_renewed_before_a_takeover(self, store: Store) -> None:
        await arrive(store)
        lease = await take(store, lease_seconds=SHORT)
        while (await store.stats()).leased:
            pass
        assert (await store.stats()).ready == 1
        await store.renew(lease, lease_seconds=60)
        assert ((await store.stats()).ready, (await store.stats()).leased) == (0, 1)
        await store.commit(transaction(store, of=lease, finish="done", consume=seqs(lease.events)))

    async def test_checkpoints_survive_death_and_failure(self, store: Store) -> None:
        await arrive(store)
        first = await take(store)
        await store.commit(transaction(store, of=first, steps=["one", {"two": 2}]))
        await store.commit(transaction(store, of=first, steps=[None]))
        await store.renew(first, lease_seconds=SHORT)
        second = await take(store, wait_seconds=5)
        assert second.steps == ("one", {"two": 2}, None)
        await store.commit(transaction(store, of=second, finish="failed", steps=["four"], due=await later(store, 60)))
        store.offset_seconds = 61
        third = await take(store)
        assert (third.steps, third.tries, third.died) == (("one", {"two": 2}, None, "four"), 2, False)
        await store.commit(transaction(store, of=third, finish="done"))
        assert (await take(store)).steps == ()

    async def test_a_checkpoint_is_its_conversations_own(self, store: Store) -> None:
        await arrive(store, "a")
        await arrive(store, "b")
        await store.commit(transaction(store, of=await take(store, only="a"), steps=["a"]))
        assert (await take(store, only="b")).steps == ()

    async def test_death_of_a_holder_is_reported_until_a_finish(self, store: Store) -> None:
        await store.commit(transaction(store, actions=["act"], parts=[part("p")]))
        for kind in ("action", "out"):
            await take(store, kind, lease_seconds=SHORT)
            lease = await take(store, kind, lease_seconds=SHORT, wait_seconds=5)
            assert (lease.died, lease.tries) == (True, 1)
            lease = await take(store, kind, wait_seconds=5)
            assert (lease.died, lease.tries) == (True, 2)
            await store.commit(transaction(store, of=lease, finish="failed"))
            lease = await take(store, kind)
            assert (lease.died, lease.tries) == (False, 3)

    @pytest.mark.parametrize("how", ["taken over", "failed"])
    async def test_turn_signals_outlive_failure_or_takeover_of_the_outbox(self, store: Store, how: str) -> None:
        await arrive(store)
        turn = await take(store)
        await store.commit(transaction(store, parts=[part("p")]))
        out = await take(store, "out", lease_seconds=0.05 if how == "taken over" else 60)
        await store.commit(transaction(store, signals=[("c", "stop")]))
        match how:
            case "taken over":
                assert (await take(store, "out", wait_seconds=15)).died
            case _:
                await store.commit(transaction(store, of=out, finish="failed"))
        assert (await store.renew(turn)).signals == ("stop",)

    async def test_signals_of_the_dead_are_not_the_next_ones(self, store: Store) -> None:
        await arrive(store)
        lease = await take(store)
        await store.commit(transaction(store, signals=[("c", "stop")]))
        await store.renew(lease, lease_seconds=SHORT)
        assert (await store.renew(await take(store, wait_seconds=5))).signals == ()

    async def test_death_after_all_events_were_consumed_readies_no_lane(self, store: Store) -> None:
        await arrive(store)
        lease = await take(store)
        await store.commit(transaction(store, of=lease, consume=seqs(lease.events), steps=["half way"]))
        await store.renew(lease, lease_seconds=SHORT)
        assert await store.lease("w", ["turn"], wait_seconds=SHORT * 3) is None
        assert (await store.stats()).ready == 0
        await arrive(store)
        lease = await take(store)
        assert (lease.died, lease.tries, lease.steps) == (True, 1, ("half way",))


_NAMES = tuple(f"to {number}" for number in range(24))
"""Conversations of several partitions, in a store with several partitions."""


async def _handed(store: Store, conversation: str, *event_ids: str, **options: object) -> Incoming:
    """Return an event received five seconds ago."""
    stamp = await later(store, -5)
    return event(conversation, *event_ids, stamp=stamp, **options)


async def _arrived(store: Store, conversation: str) -> list[Waiting]:
    await store.run_timers()
    return await store.mailbox(conversation)


class HandoverContract:
    async def test_a_handed_event_arrives_with_its_first_stamp(self, store: Store) -> None:
        events = [await _handed(store, name, f"vote {name}", body={"to": name}) for name in _NAMES]
        await store.commit(transaction(store, conversation="from", hand_over=events))
        for handed in events:
            [waiting] = await _arrived(store, handed.conversation)
            assert (waiting.stamp, waiting.body) == (handed.stamp, {"to": handed.conversation})
        assert (await store.stats()).timers == 0

    async def test_a_handed_event_makes_its_conversation_ready(self, store: Store) -> None:
        await store.commit(transaction(store, hand_over=[await _handed(store, name, name) for name in _NAMES]))
        await store.run_timers()
        leased = [(await take(store)).lane for _ in _NAMES]
        assert sorted(leased) == sorted(_NAMES)

    async def test_a_handed_event_may_decide(self, store: Store) -> None:
        votes = [await _handed(store, name, name, decides=True, wakes=False) for name in _NAMES]
        await store.commit(transaction(store, hand_over=votes))
        await store.run_timers()
        assert len(await store.pending_decisions()) == len(_NAMES)

    async def test_an_event_that_is_handed_again_is_a_twin(self, store: Store) -> None:
        for name in _NAMES[:4]:
            handed = await _handed(store, name, f"vote {name}")
            for _ in range(3):
                await store.commit(transaction(store, hand_over=[replace(handed)]))
            assert len(await _arrived(store, name)) == 1
            assert await store.accept([event(name, f"vote {name}")]) == [False]

    async def test_many_that_relay_bring_an_event_once(self, store: Store) -> None:
        async def hand(number: int) -> None:
            handed = [await _handed(store, name, f"{number} {name}") for name in _NAMES[:4]]
            await store.commit(transaction(store, conversation=f"from {number}", hand_over=handed))
            await store.run_timers()

        await asyncio.gather(*map(hand, range(10)))
        for name in _NAMES[:4]:
            assert len(await _arrived(store, name)) == 10

    async def test_failed_commit_hands_over_no_event(self, store: Store) -> None:
        handed = [await _handed(store, name, name) for name in _NAMES]
        with pytest.raises(Conflict):
            await store.commit(transaction(store, expect={"absent": 1}, hand_over=handed))
        for name in _NAMES:
            assert await _arrived(store, name) == []

    async def test_a_full_mailbox_refuses_no_handed_event(self, store: Store) -> None:
        for number in range(40):
            await store.accept([event(_NAMES[0], f"waits {number}")])
        await store.commit(transaction(store, conversation="from", hand_over=[await _handed(store, _NAMES[0], "vote")]))
        assert len(await _arrived(store, _NAMES[0])) == 41

    async def test_a_handed_event_needs_ids_and_a_stamp(self, store: Store) -> None:
        now = await store.now()
        for wrong in (
            event("c", stamp=now),
            event("c", "vote"),
            event("c", "vote", stamp=now, refusable=True),
        ):
            with pytest.raises(ValueError, match="handed over"):
                await store.commit(transaction(store, hand_over=[wrong]))

    async def test_a_handed_event_keeps_its_order_by_stamp(self, store: Store) -> None:
        """Events handed over in one commit to the same conversation arrive in the order of stamps."""
        first, now = await later(store, -60), await store.now()
        stamps = [first + timedelta(seconds=number) for number in range(5)]
        assert stamps[-1] < now
        handed = [event(_NAMES[1], f"vote {n}", stamp=stamp, body={"n": n}) for n, stamp in enumerate(stamps)]
        await store.commit(transaction(store, conversation="from", hand_over=handed))
        assert [waiting.body["n"] for waiting in await _arrived(store, _NAMES[1])] == [0, 1, 2, 3, 4]
