"""Counts: amounts are added with a commit or not at all, and summed over partitions and processes."""

from __future__ import annotations

import asyncio

import pytest

from gateway.store.base import Store
from gateway.store.errors import Conflict, Fenced
from gateway.store.transaction import Transaction
from gateway.store.types import Spending
from gateway.testing.store_contract.helpers import event, transaction

DAY = 86_400.0


def spending(name: str = "day/ana", keep_seconds: float = DAY, **amounts: int) -> Spending:
    return Spending(name=name, amounts=amounts, keep_seconds=keep_seconds)


class SpendingContract:
    async def test_amounts_are_added_without_a_limit(self, store: Store) -> None:
        assert await store.spent(["day/ana", "day/bob"]) == [{}, {}]
        for _ in range(3):
            spends = [spending(tokens=2**40, cost=1), spending("day/bob", cost=5)]
            await store.commit(transaction(store, spends=spends))
        assert await store.spent(["day/bob", "day/ana"]) == [{"cost": 15}, {"tokens": 3 * 2**40, "cost": 3}]
        assert await store.spent([]) == []

    async def test_one_transaction_may_add_to_a_count_twice(self, store: Store) -> None:
        await store.commit(transaction(store, spends=[spending(tokens=1), spending(tokens=2, cost=4)]))
        assert await store.spent(["day/ana"]) == [{"tokens": 3, "cost": 4}]

    async def test_partitions_count_together(self, store: Store) -> None:
        conversations = [f"c {number}" for number in range(40)]
        for conversation in conversations:
            await store.commit(Transaction(partition=store.partition(conversation), spends=[spending(tokens=1)]))
        assert await store.spent(["day/ana"]) == [{"tokens": 40}]
        assert await store.all_spent("day/") == {"day/ana": {"tokens": 40}}

    async def test_commits_at_once_lose_no_addition(self, store: Store) -> None:
        adding = (store.commit(transaction(store, spends=[spending(tokens=n)])) for n in range(50))
        await asyncio.gather(*adding)
        assert await store.spent(["day/ana"]) == [{"tokens": sum(range(50))}]

    async def test_refused_commit_adds_nothing(self, store: Store) -> None:
        wrong = transaction(store, spends=[spending(tokens=1)])
        wrong.expect = {"record": 7}
        with pytest.raises(Conflict):
            await store.commit(wrong)
        assert await store.spent(["day/ana"]) == [{}]

    async def test_lost_lease_adds_nothing(self, store: Store) -> None:
        await store.accept([event("c", "e1")])
        lost = await store.lease("one", ["turn"], lease_seconds=0.0)
        assert lost is not None and await store.lease("two", ["turn"]) is not None
        with pytest.raises(Fenced):
            await store.commit(transaction(store, of=lost, steps=[{}], spends=[spending(tokens=1)]))
        assert await store.spent(["day/ana"]) == [{}]

    async def test_count_ends_after_its_time_and_begins_anew(self, store: Store) -> None:
        await store.commit(transaction(store, spends=[spending(tokens=1, cost=1)]))
        store.offset_seconds += DAY - 60
        await store.commit(transaction(store, spends=[spending(tokens=1)]))
        store.offset_seconds += DAY - 60
        assert await store.spent(["day/ana"]) == [{"tokens": 2, "cost": 1}], "the last addition counts"
        store.offset_seconds += 120
        assert await store.spent(["day/ana"]) == [{}]
        assert await store.all_spent("") == {}
        await store.commit(transaction(store, spends=[spending(tokens=5)]))
        assert await store.spent(["day/ana"]) == [{"tokens": 5}]

    async def test_ended_counts_go_and_others_stay(self, store: Store) -> None:
        await store.commit(transaction(store, spends=[spending(tokens=1), spending("day/bob", 2 * DAY, tokens=1)]))
        store.offset_seconds += DAY + 1
        await store.run_timers()
        assert await store.all_spent("") == {"day/bob": {"tokens": 1}}

    async def test_all_counts_are_listed_by_prefix(self, store: Store) -> None:
        names = [f"day/{number:04}" for number in range(1_100)]
        await store.commit(transaction(store, spends=[spending(name, tokens=1) for name in [*names, "month/é", "da"]]))
        assert sorted(await store.all_spent("day/")) == names
        assert await store.all_spent("month/") == {"month/é": {"tokens": 1}}
        assert len(await store.all_spent("")) == 1_102
