"""Records with versions and expiry, the cells of rates, and counts of usage."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.store.base import Store
from gateway.store.errors import Conflict, Fenced
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Cell, Key, Record, Spending
from gateway.testing.store_contract.helpers import event, many_histories, transaction

if TYPE_CHECKING:
    from collections.abc import Sequence


async def one(store: Store, name: str) -> Record:
    key = Key(store.partition("c"), name)
    return (await store.get([key]))[key]


class RecordsContract:
    async def test_records_are_read_together(self, store: Store) -> None:
        at, _ = await store.commit(transaction(store, puts={"a": Put({"x": [1, None]}), "b": Put(None)}))
        partition = store.partition("c")
        keys = [Key(partition, "a"), Key(partition, "b"), Key(partition, "c"), Key("zz", "a")]
        snapshot = await store.get(keys)
        assert [snapshot[key] for key in keys] == [Record({"x": [1, None]}, 1), Record(None, 1), Record(), Record()]
        assert at <= snapshot.now <= await store.now()

    async def test_versions_count_the_writes(self, store: Store) -> None:
        for version in range(3):
            assert (await one(store, "a")).version == version
            await store.commit(transaction(store, expect={"a": version}, puts={"a": Put(version)}))
        for stale in (0, 2, 4):
            with pytest.raises(Conflict):
                await store.commit(transaction(store, expect={"a": stale}))
        assert await one(store, "a") == Record(2, 3)

    async def test_record_written_again_never_has_an_old_version(self, store: Store) -> None:
        await store.commit(transaction(store, puts={"a": Put("old"), "b": Put("old", ttl_seconds=10)}))
        await store.commit(transaction(store, deletes=["a"]))
        store.offset_seconds = 11
        for name in ("a", "b"):
            assert await one(store, name) == Record()
            await store.commit(transaction(store, expect={name: 0}, puts={name: Put("new")}))
            assert await one(store, name) == Record("new", 2)
            with pytest.raises(Conflict):
                await store.commit(transaction(store, expect={name: 1}))

    async def test_deleting_an_absent_record_is_no_error(self, store: Store) -> None:
        await store.commit(transaction(store, deletes=["nothing"], expect={"nothing": 0}))
        assert await one(store, "nothing") == Record()

    async def test_a_record_ends_at_its_time(self, store: Store) -> None:
        await store.commit(transaction(store, puts={"a": Put(1, ttl_seconds=60), "b": Put(2)}))
        store.offset_seconds = 59
        assert await one(store, "a") == Record(1, 1)
        store.offset_seconds = 61
        assert (await one(store, "a"), await one(store, "b")) == (Record(), Record(2, 1))
        assert [key.name for key, _ in await store.scan("")] == ["b"]

    async def test_a_write_sets_the_time_anew(self, store: Store) -> None:
        await store.commit(transaction(store, puts={"a": Put(1, ttl_seconds=60), "b": Put(1, ttl_seconds=60)}))
        store.offset_seconds = 50
        await store.commit(transaction(store, puts={"a": Put(2, ttl_seconds=60), "b": Put(2)}))
        store.offset_seconds = 100
        assert (await one(store, "a")).value == 2
        store.offset_seconds = 10_000
        assert ((await one(store, "a")).version, (await one(store, "b")).value) == (0, 2)

    async def test_a_write_can_keep_the_end(self, store: Store) -> None:
        await store.commit(transaction(store, puts={"a": Put(1, ttl_seconds=60), "b": Put(1)}))
        store.offset_seconds = 50
        again = {"a": Put(2, ttl_seconds=600, keeps_end=True), "b": Put(2, ttl_seconds=1, keeps_end=True)}
        await store.commit(transaction(store, puts=again, expect={"a": 1, "b": 1}))
        assert (await one(store, "a"), await one(store, "b")) == (Record(2, 2), Record(2, 2))
        store.offset_seconds = 61
        assert (await one(store, "a"), (await one(store, "b")).value) == (Record(), 2)

    async def test_a_scan_goes_by_the_beginning_of_the_name_in_order(self, store: Store) -> None:
        names = ["a", "a:", "a:1", "a:2", "a:é", "a:🎉", "a;", "ab", "b", "a:%_'*[", "A:1"]
        await store.commit(transaction(store, puts={name: Put(name) for name in names}))
        found = await store.scan("a:")
        assert [key.name for key, _ in found] == sorted(name for name in names if name.startswith("a:"))
        assert all((key.partition, record) == (store.partition("c"), Record(key.name, 1)) for key, record in found)
        assert len(await store.scan("")) == len(names)
        assert await store.scan("a:%") == [(Key(store.partition("c"), "a:%_'*["), Record("a:%_'*[", 1))]
        assert await store.scan("a_") == []

    async def test_record_name_with_sql_is_stored_as_it_is(self, store: Store) -> None:
        name = "x'; DROP TABLE record; --"
        await store.commit(transaction(store, puts={name: Put(1)}))
        assert (await one(store, name)).value == 1


STEPS = st.lists(st.tuples(st.floats(0, 30), st.sampled_from([0.5, 1.0, 2.0])), min_size=1, max_size=25)


class CellsContract:
    async def test_a_burst_is_free_and_then_the_pace_holds(self, store: Store) -> None:
        cell = Cell(name="bot", burst=3, period_seconds=300)
        assert [await store.acquire([cell]) for _ in range(3)] == [0, 0, 0]
        wait = await store.acquire([cell])
        assert wait == pytest.approx(100, abs=5)
        assert await store.acquire([cell]) <= wait, "asking takes nothing"
        store.offset_seconds = wait
        assert await store.acquire([cell]) == 0
        assert await store.acquire([cell]) == pytest.approx(100, abs=5)

    async def test_cells_are_taken_all_or_none(self, store: Store) -> None:
        one, many = Cell(name="chat", burst=1, period_seconds=100), Cell(name="bot", burst=2, period_seconds=1000)
        assert await store.acquire([one, many]) == 0
        assert await store.acquire([many, one]) == pytest.approx(100, abs=5), "the longest wait of those that are full"
        assert await store.acquire([many]) == 0, "nothing was taken from it"
        assert await store.acquire([one, many]) == pytest.approx(500, abs=5)

    async def test_of_many_at_once_no_more_pass_than_may(self, store: Store) -> None:
        waits = await asyncio.gather(
            *(store.acquire([Cell(name="x", burst=10, period_seconds=1000)]) for _ in range(64))
        )
        assert waits.count(0) == 10
        assert all(wait > 0 for wait in waits if wait != 0)

    async def test_cost_counts_as_that_many_calls(self, store: Store) -> None:
        cell = Cell(name="tokens", burst=100, period_seconds=1000, cost=60)
        assert await store.acquire([cell]) == 0
        assert await store.acquire([cell]) == pytest.approx(200, abs=5)

    async def test_a_cost_that_never_fits_is_a_mistake(self, store: Store) -> None:
        with pytest.raises(ValueError, match="tokens"):
            await store.acquire([Cell(name="tokens", burst=1, period_seconds=1, cost=2)])

    async def test_acquire_of_no_cells_returns_zero(self, store: Store) -> None:
        assert await store.acquire([]) == 0

    @many_histories
    @given(steps=STEPS)
    async def test_the_rate_holds_over_every_stretch(self, store: Store, steps: Sequence[tuple[float, float]]) -> None:
        """In any period at most a burst and its refill are taken, and the returned wait suffices."""
        store.offset_seconds += 1000  # refilled since the last history
        burst, period = 4.0, 40.0
        taken: list[tuple[float, float]] = []
        for pause, cost in steps:
            store.offset_seconds += pause
            cell = Cell(name="one", burst=burst, period_seconds=period, cost=cost)
            wait = await store.acquire([cell])
            if wait > 0:
                assert wait <= cost * period / burst + 1e-6, "no longer than it takes to refill the cost"
                store.offset_seconds += wait
                assert await store.acquire([cell]) == 0
            taken.append(((await store.now()).timestamp(), cost))
        for first in range(len(taken)):
            for last in range(first, len(taken)):
                stretch = taken[last][0] - taken[first][0]
                assert sum(cost for _, cost in taken[first : last + 1]) <= burst + (stretch + 0.1) * burst / period


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

    async def test_refused_commit_adds_no_spending(self, store: Store) -> None:
        wrong = transaction(store, spends=[spending(tokens=1)])
        wrong.expect = {"record": 7}
        with pytest.raises(Conflict):
            await store.commit(wrong)
        assert await store.spent(["day/ana"]) == [{}]

    async def test_lost_lease_adds_no_spending(self, store: Store) -> None:
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
