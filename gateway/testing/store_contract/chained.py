"""Chained leases: the commit that ends a turn may lease the outbox that it fills."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from gateway.store.base import Store
from gateway.store.errors import Conflict, Fenced
from gateway.store.transaction import Chained, Put, Transaction
from gateway.store.types import Lease, Prefetch, Record
from gateway.testing.store_contract.helpers import arrive, event, later, near, part, seqs, take, transaction

PREFETCH = Prefetch(records=("open",), log="said", last=2)


def ends(store: Store, turn: Lease, *, lease_seconds: float = 60.0, **changes: Any) -> Transaction:
    """Return a transaction that ends a turn, with the outbox of its conversation chained."""
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

    async def test_nothing_is_taken_that_another_holds(self, store: Store) -> None:
        turn = await begun(store)
        await store.commit(transaction(store, parts=[part("old")]))
        held = await take(store, "out", lease_seconds=60)
        assert (await store.commit(ends(store, turn, parts=[part("new")]))).lease is None
        await store.commit(transaction(store, of=held, sent=["old"], finish="done"))
        assert [each.part_id for each in (await take(store, "out")).parts] == ["new"]

    async def test_nothing_is_taken_that_is_not_due(self, store: Store) -> None:
        turn = await begun(store)
        await store.commit(transaction(store, parts=[part("old")]))
        rest = transaction(store, of=await take(store, "out"), finish="failed", due=await later(store, 60))
        await store.commit(rest)
        assert (await store.commit(ends(store, turn, parts=[part("new")]))).lease is None

    async def test_nothing_is_taken_where_nothing_waits(self, store: Store) -> None:
        assert (await store.commit(ends(store, await begun(store)))).lease is None

    async def test_what_is_refused_takes_nothing(self, store: Store) -> None:
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

    async def test_nothing_is_given_back_that_was_never_taken(self, store: Store) -> None:
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

    async def test_who_waits_is_told_of_the_parts_of_others(self, store: Store) -> None:
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
    async def test_a_caller_who_is_cancelled_holds_nothing(self, store: Store, yields: int) -> None:
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
