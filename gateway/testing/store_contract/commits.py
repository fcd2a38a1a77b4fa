"""Transactions: all writes or none, each independent of the others."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from typing import Any

import pytest

from gateway.store.base import Store
from gateway.store.errors import Conflict, Fenced, TooLate
from gateway.store.transaction import Put, Timer, Transaction
from gateway.store.types import Dead, Key
from gateway.testing.store_contract.helpers import arrive, event, later, near, part, seqs, take, transaction


class CommitsContract:
    async def test_one_commit_does_everything(self, store: Store) -> None:
        await store.accept([event(body={"n": 1}), event(decides=True, body={"n": 2})])
        lease = await take(store)
        before = await store.now()
        at, _ = await store.commit(await everything(store, of=lease, consume=seqs(lease.events)[:1]))
        assert before <= at <= await store.now()
        stats = await store.stats()
        assert (stats.waiting, stats.parts, stats.timers, stats.dead) == (2, 1, 1, 1)
        partition = store.partition("c")
        assert (await store.get([Key(partition, "record")]))[Key(partition, "record")].version == 1
        assert [entry.stamp for entry in await store.read(Key(partition, "log"))] == [at]

    async def test_failed_transaction_leaves_the_store_unchanged(self, store: Store) -> None:
        await store.accept([event(), event(decides=True)])
        zombie = await take(store, lease_seconds=0.02)
        lease = await take(store, wait_seconds=5)
        partition = store.partition("c")
        past = await store.now() - timedelta(seconds=1)
        before = await store.stats()
        failing: list[tuple[type[Exception], dict[str, Any]]] = [
            (Fenced, {"of": zombie}),
            (TooLate, {"of": lease, "not_after": past}),
            (Conflict, {"of": lease, "expect": {"record": 1}}),
            (Conflict, {"of": lease, "consume": [*seqs(lease.events)[:1], ("c", 10**9)]}),
            (Conflict, {"of": lease, "drop_pointers": [*seqs(lease.events)]}),
            (Conflict, {"of": lease, "replace": [("c", 10**9, {})]}),
            (ValueError, {"of": lease, "appends": [("log", math.nan)]}),
        ]
        for error, changes in failing:
            with pytest.raises(error):
                await store.commit(await everything(store, **changes))
        after = await store.stats()
        assert (after.waiting, after.pointed, after.leased, after.parts, after.timers, after.dead, after.ready) == (
            before.waiting, before.pointed, before.leased, 0, 0, 0, 0,
        )  # fmt: skip
        assert (await store.get([Key(partition, "record")]))[Key(partition, "record")].version == 0
        assert await store.read(Key(partition, "log")) == []
        assert await store.accept([event("c", "inner")]) == [True]
        assert (await store.renew(lease)).signals == ()

    async def test_one_of_many_writers_expecting_one_version_wins(self, store: Store) -> None:
        async def compete(n: int) -> bool:
            try:
                await store.commit(transaction(store, expect={"r": 0}, puts={"r": Put(n)}, appends=[("log", n)]))
            except Conflict:
                return False
            return True

        async def mind_its_own_business(n: int) -> bool:
            await store.commit(transaction(store, expect={f"r{n}": 0}, puts={f"r{n}": Put(n)}))
            return True

        won, fine = await asyncio.gather(
            asyncio.gather(*(compete(n) for n in range(64))),
            asyncio.gather(*(mind_its_own_business(n) for n in range(64))),
        )
        key = Key(store.partition("c"), "r")
        record = (await store.get([key]))[key]
        assert (sum(won), sum(fine), record.version) == (1, 64, 1)
        assert [entry.value for entry in await store.read(Key(key.partition, "log"))] == [won.index(True)]
        assert record.value == won.index(True)

    async def test_counting_together_loses_no_count(self, store: Store) -> None:
        key = Key(store.partition("c"), "count")

        async def count() -> None:
            while True:
                record = (await store.get([key]))[key]
                value = 0 if record.version == 0 else int(str(record.value))
                try:
                    await store.commit(
                        transaction(store, expect={key.name: record.version}, puts={key.name: Put(value + 1)})
                    )
                except Conflict:
                    continue
                return

        await asyncio.gather(*(count() for _ in range(16)))
        assert (await store.get([key]))[key].value == 16

    async def test_a_commit_in_time_is_one_up_to_the_moment(self, store: Store) -> None:
        until = await later(store, 60)
        await store.commit(transaction(store, not_after=until))
        store.offset_seconds = 61
        with pytest.raises(TooLate):
            await store.commit(transaction(store, not_after=until))

    async def test_a_lease_may_commit_many_times(self, store: Store) -> None:
        await arrive(store)
        lease = await take(store)
        for n in range(3):
            await store.commit(transaction(store, of=lease, appends=[("log", n)]))
        assert len(await store.read(Key(lease.partition, "log"))) == 3

    async def test_an_event_accepted_by_a_commit_is_like_any_other(self, store: Store) -> None:
        d = near(store, "d")
        await store.accept([event("c", "known")])
        await store.commit(
            transaction(store, accept=[event("c", "known"), event(d, "new", body={"n": 1}), event(d, decides=True)])
        )
        lease = await take(store, only=d)
        assert [(waiting.body, waiting.pointed) for waiting in lease.events] == [({"n": 1}, False), ({}, True)]
        assert await store.accept([event(d, "new")]) == [False]
        assert len((await take(store, only="c")).events) == 1

    async def test_contradictory_transaction_is_refused(self, store: Store) -> None:
        await store.commit(transaction(store, parts=[part("a")]))
        out = await take(store, "out")
        wrong = [
            transaction(store, finish="done"),
            transaction(store, steps=["s"]),
            transaction(store, of=out, due=await store.now()),
            transaction(store, of=out, steps=["s"]),
            transaction(store, of=out, finish="done", collect_until=await store.now()),
            Transaction(partition="no such partition"),
        ]
        for mistaken in wrong:
            with pytest.raises(ValueError):
                await store.commit(mistaken)

    async def test_cancelled_commit_does_not_disturb_other_commits(self, store: Store) -> None:
        commits = [
            asyncio.create_task(store.commit(transaction(store, appends=[("log", n)], puts={f"r{n}": Put(n)})))
            for n in range(40)
        ]
        await asyncio.sleep(0)
        for commit in commits[::2]:
            commit.cancel()
        done = await asyncio.gather(*commits, return_exceptions=True)
        assert not any(isinstance(result, BaseException) for result in done[1::2])
        await store.ping()
        entries = await store.read(Key(store.partition("c"), "log"))
        assert {entry.value for entry in entries} >= set(range(1, 40, 2))
        assert len(await store.scan("r")) == len(entries), "each did all or nothing"


async def everything(store: Store, **changes: Any) -> Transaction:
    """Return a transaction with a write of every kind."""
    return transaction(
        store,
        puts={"record": Put(1)},
        appends=[("log", 1), *changes.pop("appends", [])],
        accept=[event("c", "inner")],
        parts=[part("p")],
        actions=["act"],
        timers=[Timer(timer_id="t", due=await later(store, 60), incoming=event())],
        signals=[("c", "s")],
        dead=[Dead(dead_id="d", conversation="c", reason="no reason")],
        **changes,
    )
