"""Outboxes, with parts sent in order, a lane for each conversation: in chains with a turn, and as dead letters."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gateway.store.base import Store
from gateway.store.errors import Conflict, Fenced
from gateway.store.transaction import Chained, Put, Transaction
from gateway.store.types import Dead, Lease, Prefetch, QueuedPart, Record
from gateway.testing.store_contract.helpers import arrive, event, later, near, part, seqs, take, transaction


class OutboxContract:
    async def test_parts_wait_in_order(self, store: Store) -> None:
        before = await store.now()
        other = near(store, "other")
        await store.commit(transaction(store, parts=[part("b", text="1"), part("x", other), part("a", text="2")]))
        waiting = await store.outbox("c")
        assert [(queued.part_id, queued.body, queued.tries) for queued in waiting] == [
            ("b", {"text": "1"}, 0),
            ("a", {"text": "2"}, 0),
        ]
        after = await store.now()
        assert all(queued.stamp is not None and before <= queued.stamp <= after for queued in waiting)
        assert (await take(store, "out", only="c")).parts == tuple(waiting)
        assert await store.outbox("nobody") == []

    async def test_a_lease_holds_at_most_twenty_parts(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[part(f"p{n}") for n in range(25)]))
        lease = await take(store, "out")
        assert [queued.part_id for queued in lease.parts] == [f"p{n}" for n in range(20)]
        sent = [queued.part_id for queued in lease.parts]
        await store.commit(transaction(store, of=lease, sent=sent, finish="done"))
        lease = await take(store, "out")
        assert [queued.part_id for queued in lease.parts] == [f"p{n}" for n in range(20, 25)]

    async def test_sent_part_is_gone_and_a_second_sent_is_no_error(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[part("a"), part("b")]))
        lease = await take(store, "out")
        await store.commit(transaction(store, of=lease, sent=["a"]))
        await store.commit(transaction(store, of=lease, sent=["a", "never there"]))
        assert [queued.part_id for queued in await store.outbox("c")] == ["b"]
        await store.commit(transaction(store, of=lease, sent=["b"], finish="done"))
        assert await store.lease("w", ["out"]) is None
        assert (await store.stats()).parts == 0

    async def test_a_part_that_waits_is_not_queued_twice(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[part("a", text="first")]))
        await store.commit(transaction(store, parts=[part("a", text="again"), part("b")]))
        assert [(queued.part_id, queued.body) for queued in await store.outbox("c")] == [
            ("a", {"text": "first"}),
            ("b", {}),
        ]

    async def test_part_queued_and_sent_in_one_commit_is_not_kept(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[part("a")], sent=["a"]))
        assert await store.outbox("c") == []
        assert await store.lease("w", ["out"]) is None

    async def test_first_part_counts_leases_ended_without_its_receipt(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[part("a"), part("b")]))

        async def tries() -> list[tuple[str, int]]:
            return [(queued.part_id, queued.tries) for queued in await store.outbox("c")]

        await store.commit(transaction(store, of=await take(store, "out"), finish="failed"))
        assert await tries() == [("a", 1), ("b", 0)]
        parked = transaction(store, of=await take(store, "out"), finish="done", due=await later(store, 5))
        await store.commit(parked)
        assert await tries() == [("a", 2), ("b", 0)]
        store.offset_seconds = 6
        await take(store, "out", lease_seconds=0.02)
        lease = await take(store, "out", wait_seconds=5)
        assert [(queued.part_id, queued.tries) for queued in lease.parts] == [("a", 3), ("b", 0)]
        await store.commit(transaction(store, of=lease, sent=["a"], finish="done"))
        assert await tries() == [("b", 0)]

    async def test_a_part_sent_before_the_lease_died_blames_no_other(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[part("a"), part("b")]))
        lease = await take(store, "out")
        await store.commit(transaction(store, of=lease, sent=["a"]))
        await store.renew(lease, lease_seconds=0.02)
        lease = await take(store, "out", wait_seconds=5)
        assert [(queued.part_id, queued.tries) for queued in lease.parts] == [("b", 0)]

    async def test_parts_queued_while_the_outbox_is_held_are_sent_after_it(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[part("a")]))
        lease = await take(store, "out")
        await store.commit(transaction(store, parts=[part("b")]))
        assert await store.lease("w", ["out"]) is None
        await store.commit(transaction(store, of=lease, sent=["a"], finish="done"))
        assert [queued.part_id for queued in (await take(store, "out")).parts] == ["b"]

    async def test_a_lease_is_of_one_pool_unless_it_names_its_outbox(self, store: Store) -> None:
        other = near(store, "other")
        await store.commit(
            transaction(
                store, parts=[pooled("a", "c", "slow"), pooled("b", other, "fast"), part("x", near(store, "d"))]
            )
        )
        assert await store.lease("w", ["out"], pool="nobody's") is None
        lease = await take(store, "out", pool="fast")
        assert [queued.part_id for queued in lease.parts] == ["b"]
        assert await store.lease("w", ["out"], pool="fast") is None
        assert (await take(store, "out")).lane == near(store, "d")
        lease = await take(store, "out", only="c")
        assert [queued.part_id for queued in lease.parts] == ["a"]

    async def test_an_outbox_stays_in_its_pool(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[pooled("a", "c", "slow"), pooled("b", "c", "slow")]))
        lease = await take(store, "out", pool="slow")
        await store.commit(transaction(store, of=lease, sent=["a"], finish="failed", due=await later(store, 60)))
        assert (await store.stats()).parked == 1
        store.offset_seconds += 61
        lease = await take(store, "out", pool="slow", lease_seconds=0.001)
        lease = await take(store, "out", pool="slow")
        assert (lease.died, [queued.part_id for queued in lease.parts]) == (True, ["b"])
        assert (await store.stats()).leased == 1
        letter = Dead(dead_id="l", conversation="c", reason="r", part=lease.parts[0])
        await store.commit(transaction(store, of=lease, sent=["b"], dead=[letter], finish="done"))
        assert await store.replay("l")
        assert (await take(store, "out", pool="slow")).parts[0].body == {}

    async def test_wait_for_one_outbox_of_any_pool_ends_when_it_is_due(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[pooled("a", "c", "slow")]))
        lease = await take(store, "out", pool="slow")
        await store.commit(transaction(store, of=lease, finish="failed", due=await later(store, 0.05)))
        await asyncio.wait_for(take(store, "out", only="c", wait_seconds=20), 5)

    async def test_wait_for_a_pool_ends_at_a_part_of_the_pool(self, store: Store) -> None:
        waits = asyncio.create_task(take(store, "out", pool="slow", wait_seconds=10.0))
        await asyncio.sleep(0)
        await store.commit(transaction(store, parts=[pooled("b", near(store, "other"), "fast")]))
        await store.commit(transaction(store, parts=[pooled("a", "c", "slow")]))
        assert (await waits).parts[0].part_id == "a"


def pooled(part_id: str, conversation: str, pool: str) -> QueuedPart:
    return replace(part(part_id, conversation), pool=pool)


PREFETCH = Prefetch(records=("open",), log="said", last=2)


def ends(store: Store, turn: Lease, *, lease_seconds: float = 60.0, **changes: Any) -> Transaction:
    """Return a transaction for ending a turn, with the outbox of the turn's conversation chained."""
    chain = Chained(kind="out", lane=turn.lane, prefetch=PREFETCH, lease_seconds=lease_seconds)
    return transaction(store, of=turn, consume=seqs(turn.events), finish="done", chain=chain, **changes)


async def begun(store: Store) -> Lease:
    await arrive(store)
    return await take(store, lease_seconds=60)


class ChainedContract:
    async def test_the_end_of_a_turn_takes_the_outbox_it_fills(self, store: Store) -> None:
        turn = await begun(store)
        queued = [replace(part("p"), pool="slow"), replace(part("q"), pool="slow")]
        _, lease = await store.commit(
            ends(store, turn, parts=queued, puts={"open/c": Put(1)}, appends=[("said/c", "a"), ("said/c", "b")])
        )
        assert lease is not None
        assert (lease.kind, lease.lane, lease.partition) == ("out", "c", turn.partition)
        assert [(each.part_id, each.pool) for each in lease.parts] == [("p", "slow"), ("q", "slow")]
        assert (lease.tries, lease.died) == (0, False)
        assert list(lease.prefetched.records.values()) == [Record(1, 1)], "as of its own commit"
        assert lease.lines == ('"a"', '"b"')
        assert await store.lease("another", ["turn", "out"], pool="slow") is None
        await store.renew(lease, lease_seconds=60)
        await store.commit(transaction(store, of=lease, sent=["p", "q"], finish="done"))
        assert (await store.stats()).parts == 0

    async def test_chained_outbox_sends_older_parts_first(self, store: Store) -> None:
        turn = await begun(store)
        await store.commit(transaction(store, parts=[part("old")]))
        _, lease = await store.commit(ends(store, turn, parts=[part("new")]))
        assert lease is not None
        assert [each.part_id for each in lease.parts] == ["old", "new"]

    async def test_chained_lane_is_not_leased_while_another_holds_it(self, store: Store) -> None:
        turn = await begun(store)
        await store.commit(transaction(store, parts=[part("old")]))
        held = await take(store, "out", lease_seconds=60)
        assert (await store.commit(ends(store, turn, parts=[part("new")]))).lease is None
        await store.commit(transaction(store, of=held, sent=["old"], finish="done"))
        assert [each.part_id for each in (await take(store, "out")).parts] == ["new"]

    async def test_chained_lane_is_not_leased_before_it_is_due(self, store: Store) -> None:
        turn = await begun(store)
        await store.commit(transaction(store, parts=[part("old")]))
        rest = transaction(store, of=await take(store, "out"), finish="failed", due=await later(store, 60))
        await store.commit(rest)
        assert (await store.commit(ends(store, turn, parts=[part("new")]))).lease is None

    async def test_chained_lane_without_parts_is_not_leased(self, store: Store) -> None:
        assert (await store.commit(ends(store, await begun(store)))).lease is None

    async def test_refused_commit_leases_no_chained_lane(self, store: Store) -> None:
        turn = await begun(store)
        with pytest.raises(Conflict):
            await store.commit(ends(store, turn, parts=[part("p")], expect={"r": 7}))
        await store.commit(transaction(store, of=turn, finish="failed"))
        with pytest.raises(Fenced):
            await store.commit(ends(store, turn, parts=[part("p")]))
        assert await store.lease("another", ["out"]) is None

    async def test_chain_without_a_finish_is_refused(self, store: Store) -> None:
        turn = await begun(store)
        with pytest.raises(ValueError, match="chain belongs to finish"):
            await store.commit(replace(ends(store, turn), finish=None))

    async def test_chain_of_the_same_kind_is_refused(self, store: Store) -> None:
        turn = await begun(store)
        again = Chained(kind="turn", lane="c", prefetch=PREFETCH, lease_seconds=60)
        with pytest.raises(ValueError, match="chain is of another kind"):
            await store.commit(replace(ends(store, turn), chain=again))

    async def test_chained_lease_with_a_lost_answer_is_given_back_whole(self, store: Store) -> None:
        turn = await begun(store)
        lost = ends(store, turn, parts=[part("p")], lease_seconds=3600)
        await store.commit(lost)
        waiting = asyncio.create_task(store.lease("another", ["out"], wait_seconds=3600, lease_seconds=3600))
        for _ in range(20):
            await store.has_work("c")
        await store.give_back(lost)
        async with asyncio.timeout(4):
            lease = await waiting
        assert lease is not None
        assert (lease.tries, lease.died, [each.tries for each in lease.parts]) == (0, False, [0])
        await store.give_back(lost)
        await store.renew(lease)

    async def test_give_back_of_a_lane_never_leased_has_no_effect(self, store: Store) -> None:
        turn = await begun(store)
        await store.give_back(ends(store, turn, parts=[part("p")]))
        await store.give_back(transaction(store, of=turn, finish="done"))
        await store.renew(turn)

    async def test_chained_lease_lapses_like_any_other(self, store: Store) -> None:
        turn = await begun(store)
        taken = (await store.commit(ends(store, turn, parts=[part("p")], lease_seconds=0.02))).lease
        lease = await take(store, "out", wait_seconds=5)
        assert taken is not None
        assert (lease.died, lease.tries) == (True, 1)
        assert lease.fence > taken.fence
        with pytest.raises(Fenced):
            await store.renew(taken)

    async def test_chained_lease_can_be_given_back(self, store: Store) -> None:
        turn = await begun(store)
        _, taken = await store.commit(ends(store, turn, parts=[part("p")]))
        await store.commit(transaction(store, of=taken, finish="done"))
        assert (await take(store, "out")).died is False

    async def test_lease_wait_ends_for_parts_outside_the_chained_lane(self, store: Store) -> None:
        turn = await begun(store)
        waiting = asyncio.create_task(store.lease("another", ["out"], wait_seconds=3600, lease_seconds=60))
        for _ in range(20):
            await store.has_work("c")
        _, taken = await store.commit(ends(store, turn, parts=[part("p"), part("q", near(store, "d"))]))
        assert taken is not None
        async with asyncio.timeout(4):
            lease = await waiting
        assert lease is not None
        assert (taken.lane, lease.lane) == ("c", near(store, "d"))

    async def test_a_turn_that_waits_behind_it_can_be_taken(self, store: Store) -> None:
        turn = await begun(store)
        await store.accept([event()])
        _, taken = await store.commit(ends(store, turn, parts=[part("p")]))
        assert taken is not None
        assert (await take(store)).lane == "c"

    @pytest.mark.parametrize("yields", [*range(12), 20, 40])
    async def test_cancelled_commit_keeps_no_chained_lease(self, store: Store, yields: int) -> None:
        turn = await begun(store)
        committing = asyncio.create_task(store.commit(ends(store, turn, parts=[part("p")], lease_seconds=3600)))
        for _ in range(yields):
            await asyncio.sleep(0)
        if not committing.cancel():
            return
        await asyncio.gather(committing, return_exceptions=True)
        sent = await store.outbox("c")  # none, if it was cancelled before it was asked
        lease = await store.lease("another", ["out"], wait_seconds=5.0 if sent else 0.0)
        assert (lease is not None) is bool(sent)


class DeadLettersContract:
    async def test_dead_letters_are_listed_as_they_were_put_aside(self, store: Store) -> None:
        stamped = event("c", "a", "b", body={"n": 1}, wakes=False, refusable=True, stamp=await store.now())
        letters = [
            Dead(dead_id="z", conversation="c", reason="model down", incoming=stamped),
            Dead(dead_id="a", conversation="c", reason="blocked", part=replace(part("p", text="x"), tries=3)),
            Dead(dead_id="m", conversation="?", reason="empty"),
        ]
        at, _ = await store.commit(transaction(store, dead=letters))
        listed = await store.dead_letters()
        assert listed == [
            replace(letter, stamp=at, seq=found.seq) for letter, found in zip(letters, listed, strict=True)
        ]
        assert (await store.stats()).dead == 3

    async def test_a_letter_of_the_same_id_replaces_the_other(self, store: Store) -> None:
        for reason in ("first", "second"):
            await store.commit(transaction(store, dead=[Dead(dead_id="d", conversation="c", reason=reason)]))
        assert [letter.reason for letter in await store.dead_letters()] == ["second"]

    async def test_event_is_replayed_at_the_end_though_its_id_is_known(self, store: Store) -> None:
        await store.accept([event("c", "a", body={"n": 1}), event("c", "b", body={"n": 2})])
        lease = await take(store)
        letter = Dead(dead_id="d", conversation="c", reason="r", incoming=event("c", "a", body={"n": 1}))
        await store.commit(transaction(store, of=lease, consume=seqs(lease.events)[:1], dead=[letter], finish="done"))
        assert await store.replay("d") is True
        assert await store.replay("d") is False
        assert [(found.body["n"], found.tries) for found in (await take(store)).events] == [(2, 0), (1, 0)]
        assert await store.accept([event("c", "a")]) == [False]
        assert await store.dead_letters() == []

    async def test_from_its_replay_on_an_event_is_known_for_as_long_again(self, store: Store) -> None:
        await store.accept([event("c", "a", keep_seconds=100)])
        letter = Dead(dead_id="d", conversation="c", reason="r", incoming=event("c", "a", keep_seconds=100))
        await store.commit(transaction(store, dead=[letter]))
        store.offset_seconds = 60
        await store.replay("d")
        store.offset_seconds = 120
        assert await store.accept([event("c", "a", keep_seconds=100)]) == [False]
        store.offset_seconds = 180
        assert await store.accept([event("c", "a", keep_seconds=100)]) == [True]

    async def test_a_replayed_event_that_decides_is_pointed_again(self, store: Store) -> None:
        letter = Dead(dead_id="d", conversation="c", reason="r", incoming=event("c", "a", decides=True))
        await store.commit(transaction(store, dead=[letter]))
        await store.replay("d")
        assert len(await store.pending_decisions("c")) == 1

    async def test_a_part_is_replayed_at_the_end_of_its_outbox(self, store: Store) -> None:
        letter = Dead(dead_id="d", conversation="c", reason="r", part=replace(part("a", text="x"), tries=9))
        await store.commit(transaction(store, parts=[part("b")], dead=[letter]))
        assert await store.replay("d") is True
        lease = await take(store, "out")
        assert [(queued.part_id, queued.tries) for queued in lease.parts] == [("b", 0), ("a", 0)]
        assert lease.parts[1].body == {"text": "x"}

    async def test_a_dropped_letter_is_gone(self, store: Store) -> None:
        await store.commit(transaction(store, dead=[Dead(dead_id="d", conversation="c", reason="r", incoming=event())]))
        assert [await store.drop("d"), await store.drop("d"), await store.replay("d")] == [True, False, False]
        assert ((await store.stats()).dead, (await store.stats()).waiting) == (0, 0)

    async def test_letters_are_shown_a_page_at_a_time(self, store: Store) -> None:
        for number in range(25):
            letter = Dead(dead_id=f"d{number}", conversation=f"c{number}", reason="r")
            await store.commit(transaction(store, conversation=f"c{number}", dead=[letter]))
        names, after = [], 0
        while page := await store.dead_letters(after=after, limit=10):
            assert len(page) <= 10
            names += [letter.dead_id for letter in page]
            after = page[-1].seq or 0
        assert names == [f"d{number}" for number in range(25)]
        assert [letter.dead_id for letter in await store.dead_letters()] == names
        assert await store.dead_letters(limit=0) == []

    async def test_letters_are_dropped_by_reason_or_all(self, store: Store) -> None:
        for number in range(12):
            letter = Dead(dead_id=f"d{number}", conversation=f"c{number}", reason=f"of {number % 3}%")
            await store.commit(transaction(store, conversation=f"c{number}", dead=[letter]))
        assert await store.drop_all("of 1%") == 4
        assert {letter.reason for letter in await store.dead_letters()} == {"of 0%", "of 2%"}
        assert await store.drop_all("nothing") == 0
        assert await store.drop_all() == 8
        assert (await store.stats()).dead == 0
