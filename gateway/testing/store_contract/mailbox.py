"""Mailboxes, with each event stored once and in order, and the wait for a lease, ended by a ready lane.

A store may also look for missed events from time to time. The tests of such a store prevent this here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from gateway.store.base import Store
from gateway.store.errors import MailboxFull, Overloaded
from gateway.store.transaction import Timer
from gateway.store.types import FOLDED_AFTER_SECONDS, Dead, Kind, Lease, QueuedPart, Written
from gateway.testing.store_contract.helpers import (
    arrive,
    event,
    later,
    makes_ready,
    near,
    part,
    seqs,
    take,
    transaction,
)

MAX_WAITING = 300
IN_ONE = 30
"""The count of events in a full conversation."""


class MailboxContract:
    async def test_events_wait_in_the_order_they_were_accepted(self, store: Store) -> None:
        before = await store.now()
        await store.accept([event("c", body={"n": 1}), event("other"), event("c", body={"n": 2})])
        await arrive(store, body={"n": 3})
        lease = await take(store, only="c")
        assert [waiting.body["n"] for waiting in lease.events] == [1, 2, 3]
        assert [waiting.seq for waiting in lease.events] == sorted({waiting.seq for waiting in lease.events})
        stamps = [before, *(waiting.stamp for waiting in lease.events), await store.now()]
        assert stamps == sorted(stamps)

    @pytest.mark.parametrize("text", ["", "olá, 世界 🎉", "line\nline\x00\u2028", "half a \ud83d pair", '"{}\\'])
    async def test_a_body_comes_back_as_it_was(self, store: Store, text: str) -> None:
        body = {"text": text, text: [1, 1.5, True, None, {"deep": [text]}]}
        await arrive(store, body=body)
        assert (await take(store)).events[0].body == body

    async def test_a_body_that_is_text_already_is_as_any_other(self, store: Store) -> None:
        body = Written('{"text":"olá\\u2028","n":[1,null]}')
        later = Timer(timer_id="t", due=await store.now(), incoming=event(near(store, "later"), body=body))
        other = event(near(store, "committed"), body=body)
        await store.accept([event("c", body=body)])
        await store.commit(transaction(store, accept=[other], timers=[later]))
        await store.run_timers()
        for conversation in ("c", other.conversation, later.incoming.conversation):
            (waiting,) = (await take(store, only=conversation)).events
            assert waiting.body == {"text": "olá\u2028", "n": [1, None]}

    async def test_an_event_keeps_the_stamp_it_came_with(self, store: Store) -> None:
        first = await store.now()
        await arrive(store, stamp=first)
        assert (await take(store)).events[0].stamp == first

    async def test_a_twin_is_dropped_within_a_batch_and_across(self, store: Store) -> None:
        other = near(store, "other")
        assert await store.accept([event("c", "a"), event("c", "a"), event("c", "b")]) == [True, False, True]
        assert await store.accept([event("c", "b"), event(other, "a"), event("c", "d")]) == [False, False, True]
        assert len((await take(store, only="c")).events) == 3

    async def test_any_id_makes_a_twin_and_a_twin_brings_its_own(self, store: Store) -> None:
        assert await store.accept([event("c", "id-1", "place-1")]) == [True]
        assert await store.accept([event("c", "id-2", "place-1")]) == [False]
        assert await store.accept([event("c", "id-2")]) == [False]

    async def test_an_event_that_says_its_id_twice_is_not_its_own_twin(self, store: Store) -> None:
        assert await store.accept([event("c", "a", "a")]) == [True]

    async def test_events_without_ids_have_no_twins(self, store: Store) -> None:
        assert await store.accept([event(), event()]) == [True, True]

    async def test_of_many_at_once_one_is_accepted(self, store: Store) -> None:
        accepted = await asyncio.gather(*(store.accept([event("c", "same")]) for _ in range(64)))
        assert sorted(accepted) == [[False]] * 63 + [[True]]
        assert (await store.stats()).waiting == 1

    async def test_a_consumed_event_still_has_twins(self, store: Store) -> None:
        await store.accept([event("c", "a")])
        lease = await take(store)
        await store.commit(transaction(store, of=lease, finish="done", consume=seqs(lease.events)))
        assert await store.accept([event("c", "a")]) == [False]

    async def test_ids_are_forgotten_after_their_time(self, store: Store) -> None:
        await store.accept([event("c", "short", keep_seconds=60), event("c", "long", keep_seconds=3600)])
        store.offset_seconds = 59
        assert await store.accept([event("c", "short")]) == [False]
        store.offset_seconds = 61
        assert await store.accept([event("c", "short", keep_seconds=60), event("c", "long")]) == [True, False]
        assert await store.accept([event("c", "short")]) == [False]

    async def test_unwaking_event_waits_for_a_waking_event(self, store: Store) -> None:
        await arrive(store, wakes=False, body={"n": 1})
        assert (await store.stats()).ready == 0
        assert await store.lease("w", ["turn"]) is None
        await arrive(store, body={"n": 2})
        assert [waiting.body["n"] for waiting in (await take(store)).events] == [1, 2]

    async def test_notes_are_never_refused_and_count_towards_no_limit(self, store: Store) -> None:
        notes = [event("c", f"n{n}", wakes=False, refusable=True) for n in range(MAX_WAITING + 5)]
        assert all(await store.accept(notes))
        await store.accept([event(near(store, f"c{n}"), wakes=False) for n in range(MAX_WAITING)])
        stats = await store.stats()
        assert (stats.waiting, stats.oldest_waiting_seconds) == (0, 0.0)
        new = [event("c", f"e{n}", refusable=True) for n in range(IN_ONE)]
        assert all(await store.accept(new))
        with pytest.raises(MailboxFull):
            await store.accept([event("c", "new", refusable=True)])
        assert await store.accept([event(near(store, "c1"), "other", refusable=True)]) == [True]

    async def test_notes_alone_ready_their_conversation_once_they_are_old(self, store: Store) -> None:
        await arrive(store, wakes=False, body={"n": 1})
        store.offset_seconds = FOLDED_AFTER_SECONDS - 60
        await arrive(store, wakes=False, body={"n": 2})
        assert await store.lease("w", ["turn"]) is None
        assert not await store.has_work("c")
        waiting = asyncio.create_task(take(store, wait_seconds=20))
        await asyncio.sleep(0)
        store.offset_seconds = FOLDED_AFTER_SECONDS + 1
        lease = await waiting
        assert [found.body["n"] for found in lease.events] == [1, 2]
        await store.commit(transaction(store, of=lease, finish="done", consume=seqs(lease.events[:1])))
        assert await store.lease("w", ["turn"]) is None, "what it left is looked at again, later"
        store.offset_seconds += FOLDED_AFTER_SECONDS + 1
        assert [found.body["n"] for found in (await take(store)).events] == [2]

    async def test_waking_event_does_not_wait_for_notes(self, store: Store) -> None:
        await arrive(store, wakes=False)
        await arrive(store, collects=True)
        assert len((await take(store)).events) == 2

    async def test_unwaking_decision_without_its_pointer_is_a_note(self, store: Store) -> None:
        await arrive(store, decides=True, wakes=False)
        assert (await store.stats()).waiting == 1
        await store.commit(transaction(store, drop_pointers=seqs(await store.pending_decisions())))
        assert (await store.stats()).waiting == 0
        store.offset_seconds = FOLDED_AFTER_SECONDS + 1
        assert len((await take(store)).events) == 1
        assert (await store.stats()).waiting == 0

    async def test_later_note_about_the_same_replaces_the_earlier_one(self, store: Store) -> None:
        notes = [event("c", wakes=False, about=about, body={"n": n}) for n, about in enumerate("abaab")]
        await store.accept(notes[:2])
        await store.accept([event(near(store, "other"), wakes=False, about="a", body={"n": 8})])
        await store.accept(notes[2:])
        await arrive(store, body={"n": 9})
        lease = await take(store, only="c")
        assert [found.body["n"] for found in lease.events] == [3, 4, 9]
        await store.accept([event("c", wakes=False, about="a", body={"n": 10})])
        await store.accept([event("c", wakes=False, about="a", body={"n": 11})])
        await store.commit(transaction(store, of=lease, finish="done", consume=seqs(lease.events)))
        await arrive(store, body={"n": 12})
        assert [found.body["n"] for found in (await take(store, only="c")).events] == [11, 12], "what is held stays"

    async def test_fullest_mailboxes_come_first_counted_without_notes(self, store: Store) -> None:
        first = await store.now()
        await store.accept([event("a", stamp=first), event("b", decides=True), event("b"), event("c", wakes=False)])
        await store.accept([event("b") for _ in range(3)])
        found = await store.mailboxes()
        assert [(mailbox.conversation, mailbox.waiting) for mailbox in found] == [("b", 4 + 1), ("a", 1)]
        assert found[1].oldest == first
        assert [mailbox.conversation for mailbox in await store.mailboxes(1)] == ["b"]

    async def test_mailbox_shows_waiting_events_in_order(self, store: Store) -> None:
        kinds: list[dict[str, Any]] = [{}, {"wakes": False}, {"decides": True}]
        await store.accept([event("c", body={"n": n}, **kind) for n, kind in enumerate(kinds)])
        assert [(found.body["n"], found.pointed) for found in await store.mailbox("c")] == [
            (0, False),
            (1, False),
            (2, True),
        ]
        assert [found.body["n"] for found in await store.mailbox("c", limit=1)] == [0]
        assert await store.mailbox("other") == []

    async def test_a_lease_holds_at_most_a_hundred_events(self, store: Store) -> None:
        await store.accept([event("c", body={"n": n}) for n in range(130)])
        lease = await take(store)
        assert [waiting.body["n"] for waiting in lease.events] == list(range(100))
        await store.commit(transaction(store, of=lease, finish="done", consume=seqs(lease.events)))
        assert [waiting.body["n"] for waiting in (await take(store)).events] == list(range(100, 130))

    async def test_full_store_refuses_only_refusable_events(self, store: Store) -> None:
        full = [event(near(store, f"c{n}"), f"e{n}", refusable=True) for n in range(MAX_WAITING)]
        await store.accept(full)
        with pytest.raises(Overloaded) as refused:
            await store.accept([event("c", "press"), event("c", "new", refusable=True)])
        assert not isinstance(refused.value, MailboxFull)
        assert (await store.stats()).waiting == MAX_WAITING, "nothing of the batch was stored"
        assert await store.accept([event("c", "press")]) == [True], "not even its ids"
        assert await store.accept(full[1:2]) == [False], "a twin is not new"
        await store.commit(transaction(store, accept=[event("c", "inner", refusable=True)]))
        assert (await store.stats()).waiting == MAX_WAITING + 2

    async def test_refused_event_is_accepted_once_there_is_room(self, store: Store) -> None:
        other = near(store, "other")
        await store.accept([event("c") for _ in range(MAX_WAITING)])
        with pytest.raises(Overloaded):
            await store.accept([event(other, "new", refusable=True)])
        lease = await take(store)
        await store.commit(transaction(store, of=lease, consume=seqs(lease.events)))
        assert await store.accept([event(other, "new", refusable=True)]) == [True]

    async def test_full_conversation_refuses_only_its_own_new_messages(self, store: Store) -> None:
        beside = near(store, "beside")
        for number in range(IN_ONE):
            assert await store.accept([event("c", f"e{number}", refusable=True)]) == [True]
        with pytest.raises(MailboxFull, match=f"^{IN_ONE} events wait in c, "):
            await store.accept([event("c", "new", refusable=True)])
        assert await store.accept([event("c", "e1", refusable=True)]) == [False], "a twin is not new"
        assert await store.accept([event("c", "press", decides=True), event("c", "stop")]) == [True, True]
        await store.commit(transaction(store, accept=[event("c", "inner", refusable=True)]))
        for other in (beside, "other"):
            taken = await store.accept([event(other, f"{other} {number}", refusable=True) for number in range(IN_ONE)])
            assert all(taken)
            with pytest.raises(MailboxFull):
                await store.accept([event(other, f"{other} new", refusable=True)])
        assert (await store.stats()).waiting == 3 * IN_ONE + 3

    async def test_full_conversation_accepts_again_as_room_comes_back(self, store: Store) -> None:
        await store.accept([event("c") for _ in range(IN_ONE + 1)])
        lease = await take(store)
        for some in (lease.events[:1], lease.events[1:3]):
            with pytest.raises(MailboxFull):
                await store.accept([event("c", "new", refusable=True)])
            await store.commit(transaction(store, of=lease, consume=seqs(some)))
        assert (
            await store.accept([event("c", "new", refusable=True), event("c", "newer", refusable=True)]) == [True] * 2
        )
        with pytest.raises(MailboxFull):
            await store.accept([event("c", "newest", refusable=True)])

    @pytest.mark.parametrize("there", [0, 1, IN_ONE - 1])
    async def test_earlier_events_of_a_batch_count_as_waiting(self, store: Store, there: int) -> None:
        await store.accept([event(near(store, "beside")) for _ in range(IN_ONE)])
        await store.accept([event("c") for _ in range(there)])
        first = [event("c", f"e{number}", refusable=True) for number in range(IN_ONE - there)]
        twins, press = [event("c", "e0", refusable=True)], event("c", "press", decides=True)
        with pytest.raises(MailboxFull):
            await store.accept([*first, *twins, event("other", "o", refusable=True), event("c", "new", refusable=True)])
        with pytest.raises(MailboxFull):
            await store.accept([press, *first])
        assert (await store.stats()).waiting == IN_ONE + there, "nothing of a batch was stored"
        assert all(await store.accept([*first, press, event("other", "o", refusable=True)])), "not even its ids"
        with pytest.raises(MailboxFull):
            await store.accept([event("other", "p", refusable=True), event("c", "new", refusable=True)])
        assert await store.accept([event("other", "p", refusable=True)]) == [True]

    async def test_conversation_takes_as_many_at_once_as_it_has_room_for(self, store: Store) -> None:
        puts = [store.accept([event("c", f"e{n}", refusable=True)]) for n in range(2 * IN_ONE)]
        others = [store.accept([event(f"other {n}", f"o{n}", refusable=True)]) for n in range(2 * IN_ONE)]
        taken = await asyncio.gather(*puts, return_exceptions=True), await asyncio.gather(*others)
        assert Counter(map(type, taken[0])) == {list: IN_ONE, MailboxFull: IN_ONE}
        assert taken[1] == [[True]] * 2 * IN_ONE


PATIENCE = 5.0


@asynccontextmanager
async def waiting(store: Store, kind: Kind, **options: Any) -> AsyncIterator[asyncio.Task[Lease | None]]:
    """Yield a task, waiting for a lease after a first look. After the block the task has the lease."""
    asked = asyncio.create_task(store.lease("waits", [kind], wait_seconds=3600, lease_seconds=60, **options))
    for _ in range(20):
        await store.has_work("c")
    assert not asked.done()
    yield asked
    async with asyncio.timeout(PATIENCE):
        lease = await asked
    assert lease is not None
    assert (lease.kind, lease.worker) == (kind, "waits")


@asynccontextmanager
async def several(store: Store, kind: Kind, lanes: Sequence[str]) -> AsyncIterator[None]:
    """Start a waiter for each of these lanes, all with the same query. After the block, each waiter has a lane."""
    worker = [f"w{number}" for number in range(len(lanes))]
    asked = [asyncio.create_task(store.lease(name, [kind], wait_seconds=3600, lease_seconds=3600)) for name in worker]
    for _ in range(20):
        await store.has_work("c")
    assert not any(task.done() for task in asked)
    yield
    async with asyncio.timeout(PATIENCE):
        leases = await asyncio.gather(*asked)
    assert sorted(lease.lane for lease in leases if lease) == sorted(lanes)
    assert [lease.worker for lease in leases if lease] == worker


def apart(store: Store) -> list[str]:
    """Return three conversations, in different partitions if the store has several."""
    names = [f"c{number}" for number in range(100)]
    first = {store.partition(name): name for name in reversed(names)}
    return list(dict.fromkeys([*first.values(), *names]))[:3]


def pooled(part_id: str = "p", pool: str = "slow") -> QueuedPart:
    return replace(part(part_id), pool=pool)


class WaitingContract:
    async def test_lease_wait_ends_when_an_event_arrives(self, store: Store) -> None:
        async with waiting(store, "turn"):
            await arrive(store)

    async def test_lease_wait_ends_when_a_transaction_accepts_an_event(self, store: Store) -> None:
        async with waiting(store, "turn", only="c"):
            await store.commit(transaction(store, accept=[event()]))

    async def test_lease_wait_ends_when_an_event_loses_its_pointer(self, store: Store) -> None:
        await arrive(store, decides=True)
        async with waiting(store, "turn"):
            await store.commit(transaction(store, drop_pointers=seqs(await store.pending_decisions())))

    async def test_lease_wait_ends_when_a_timer_delivers_an_event(self, store: Store) -> None:
        timer = Timer(timer_id="t", due=await later(store, -1), incoming=event())
        await store.commit(transaction(store, timers=[timer]))
        async with waiting(store, "turn"):
            await store.run_timers()

    @pytest.mark.parametrize("options", [{"pool": "slow"}, {"only": "c"}, {"only": "c", "pool": "fast"}])
    async def test_lease_wait_ends_when_parts_are_queued(self, store: Store, options: dict[str, str]) -> None:
        async with waiting(store, "out", **options) as asked:
            await store.commit(transaction(store, parts=[replace(part("d", near(store, "d")), pool="fast")]))
            await store.stats()
            assert not asked.done()
            await store.commit(transaction(store, parts=[pooled()]))

    async def test_lease_wait_ends_when_an_action_is_added(self, store: Store) -> None:
        async with waiting(store, "action"):
            await store.commit(transaction(store, actions=["act"]))

    @pytest.mark.parametrize("kind", ["turn", "out"])
    async def test_waiting_lease_hears_of_a_replayed_dead_letter(self, store: Store, kind: Kind) -> None:
        held: dict[str, Any] = {"incoming": event()} if kind == "turn" else {"part": pooled(pool="")}
        await store.commit(transaction(store, dead=[Dead(dead_id="l", conversation="c", reason="r", **held)]))
        async with waiting(store, kind):
            await store.replay("l")

    @pytest.mark.parametrize("kind", ["turn", "memory", "out", "action"])
    async def test_lease_wait_ends_when_a_lane_is_given_back(self, store: Store, kind: Kind) -> None:
        await arrive(store)
        await arrive(store, "m", kind="memory")
        await store.commit(transaction(store, parts=[pooled()], actions=["act"]))
        held = await take(store, kind, pool="slow", lease_seconds=60)
        async with waiting(store, kind, pool="slow"):
            await store.commit(transaction(store, of=held, finish="failed"))

    async def test_lease_wait_ends_when_an_event_ends_collecting(self, store: Store) -> None:
        await arrive(store, collects=True)
        until = await later(store, 3600)
        await store.commit(transaction(store, of=await take(store), finish="done", collect_until=until))
        async with waiting(store, "turn"):
            await arrive(store)

    async def test_lease_wait_ends_when_the_clock_is_moved(self, store: Store) -> None:
        await arrive(store)
        rest = transaction(store, of=await take(store), finish="failed", due=await later(store, 3600))
        await store.commit(rest)
        async with waiting(store, "turn"):
            store.offset_seconds = 3601

    @pytest.mark.parametrize("kind", ["turn", "memory", "out", "action"])
    async def test_several_waiting_leases_hear_of_one_transaction(self, store: Store, kind: Kind) -> None:
        lanes = ["c", near(store, "d"), near(store, "e")]
        async with several(store, kind, lanes):
            await store.commit(transaction(store, **makes_ready(kind, *lanes)))

    @pytest.mark.parametrize("kind", ["turn", "memory", "out", "action"])
    async def test_several_waiting_leases_hear_of_different_partitions(self, store: Store, kind: Kind) -> None:
        lanes = apart(store)
        async with several(store, kind, lanes):
            made = [transaction(store, conversation=lane, **makes_ready(kind, lane)) for lane in lanes]
            await asyncio.gather(*(store.commit(each) for each in made))

    async def test_each_lease_wait_ends_when_events_arrive_together(self, store: Store) -> None:
        lanes = [*apart(store), near(store, "d"), near(store, "e")]
        async with several(store, "turn", lanes):
            assert all(await store.accept([event(lane) for lane in lanes]))

    @pytest.mark.parametrize("kind", ["turn", "memory", "out", "action"])
    async def test_several_waiting_leases_hear_of_lanes_given_back(self, store: Store, kind: Kind) -> None:
        lanes = ["c", near(store, "d"), near(store, "e")]
        await store.commit(transaction(store, **makes_ready(kind, *lanes)))
        held = [await take(store, kind, lease_seconds=60) for _ in lanes]
        async with several(store, kind, lanes):
            await asyncio.gather(*(store.commit(transaction(store, of=lease, finish="failed")) for lease in held))

    @pytest.mark.parametrize("kind", ["turn", "memory", "out", "action"])
    async def test_only_one_lease_wait_gets_a_lane_falling_due(self, store: Store, kind: Kind) -> None:
        await store.commit(transaction(store, **makes_ready(kind, "c")))
        held = await take(store, kind, lease_seconds=3600)
        asked = [asyncio.create_task(store.lease("w", [kind], wait_seconds=3600, lease_seconds=3600)) for _ in range(3)]
        for _ in range(20):
            await store.has_work("c")
        await store.commit(transaction(store, of=held, finish="failed", due=await later(store, 0.2)))
        given, others = await asyncio.wait(asked, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        assert [lease.lane for task in given if (lease := task.result())] == ["c"]

    @pytest.mark.parametrize("yields", range(0, 60, 3))
    async def test_waiting_lease_gets_the_lane_of_a_cancelled_caller(self, store: Store, yields: int) -> None:
        first = asyncio.create_task(store.lease("w", ["turn"], wait_seconds=3600, lease_seconds=60))
        await store.stats()
        second = asyncio.create_task(store.lease("w", ["turn", "out"], wait_seconds=3600, lease_seconds=60))
        await store.stats()
        arriving = asyncio.create_task(arrive(store))
        for _ in range(yields):
            await asyncio.sleep(0)
        if first.cancel():
            await asyncio.gather(first, arriving, return_exceptions=True)
            async with asyncio.timeout(PATIENCE):
                assert await second is not None
        else:
            assert first.result() is not None
            second.cancel()
            await asyncio.gather(second, arriving, return_exceptions=True)
