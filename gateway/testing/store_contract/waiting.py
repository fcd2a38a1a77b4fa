"""Waiting for a lease: a waiter is given a lane as soon as one is ready, for any cause of that.

A store may also look again from time to time, for events that it missed. The tests of that store prevent this here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from gateway.store.base import Store
from gateway.store.transaction import Timer
from gateway.store.types import Dead, Kind, Lease, QueuedPart
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

PATIENCE = 5.0


@asynccontextmanager
async def waiting(store: Store, kind: Kind, **options: Any) -> AsyncIterator[asyncio.Task[Lease | None]]:
    """Yield a task that waits for a lease and has looked once. After the block it has the lease."""
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
    """Start a waiter for each of these lanes, all with the same query. After the block, each has one of the lanes."""
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
    async def test_who_waits_hears_of_what_arrives(self, store: Store) -> None:
        async with waiting(store, "turn"):
            await arrive(store)

    async def test_who_waits_hears_of_what_a_transaction_accepts(self, store: Store) -> None:
        async with waiting(store, "turn", only="c"):
            await store.commit(transaction(store, accept=[event()]))

    async def test_who_waits_hears_of_what_loses_its_pointer(self, store: Store) -> None:
        await arrive(store, decides=True)
        async with waiting(store, "turn"):
            await store.commit(transaction(store, drop_pointers=seqs(await store.pending_decisions())))

    async def test_who_waits_hears_of_what_a_timer_brings(self, store: Store) -> None:
        timer = Timer(timer_id="t", due=await later(store, -1), incoming=event())
        await store.commit(transaction(store, timers=[timer]))
        async with waiting(store, "turn"):
            await store.run_timers()

    @pytest.mark.parametrize("options", [{"pool": "slow"}, {"only": "c"}, {"only": "c", "pool": "fast"}])
    async def test_who_waits_hears_of_parts(self, store: Store, options: dict[str, str]) -> None:
        async with waiting(store, "out", **options) as asked:
            await store.commit(transaction(store, parts=[replace(part("d", near(store, "d")), pool="fast")]))
            await store.stats()
            assert not asked.done()
            await store.commit(transaction(store, parts=[pooled()]))

    async def test_who_waits_hears_of_an_action(self, store: Store) -> None:
        async with waiting(store, "action"):
            await store.commit(transaction(store, actions=["act"]))

    @pytest.mark.parametrize("kind", ["turn", "out"])
    async def test_waiting_lease_hears_of_a_replayed_dead_letter(self, store: Store, kind: Kind) -> None:
        held: dict[str, Any] = {"incoming": event()} if kind == "turn" else {"part": pooled(pool="")}
        await store.commit(transaction(store, dead=[Dead(dead_id="l", conversation="c", reason="r", **held)]))
        async with waiting(store, kind):
            await store.replay("l")

    @pytest.mark.parametrize("kind", ["turn", "out", "action"])
    async def test_who_waits_hears_of_a_lane_that_is_given_back(self, store: Store, kind: Kind) -> None:
        await arrive(store)
        await store.commit(transaction(store, parts=[pooled()], actions=["act"]))
        held = await take(store, kind, pool="slow", lease_seconds=60)
        async with waiting(store, kind, pool="slow"):
            await store.commit(transaction(store, of=held, finish="failed"))

    async def test_who_waits_hears_of_what_ends_the_wait_for_more(self, store: Store) -> None:
        await arrive(store, collects=True)
        until = await later(store, 3600)
        await store.commit(transaction(store, of=await take(store), finish="done", collect_until=until))
        async with waiting(store, "turn"):
            await arrive(store)

    async def test_who_waits_hears_of_the_clock_that_was_moved(self, store: Store) -> None:
        await arrive(store)
        rest = transaction(store, of=await take(store), finish="failed", due=await later(store, 3600))
        await store.commit(rest)
        async with waiting(store, "turn"):
            store.offset_seconds = 3601

    @pytest.mark.parametrize("kind", ["turn", "out", "action"])
    async def test_several_waiting_leases_hear_of_one_transaction(self, store: Store, kind: Kind) -> None:
        lanes = ["c", near(store, "d"), near(store, "e")]
        async with several(store, kind, lanes):
            await store.commit(transaction(store, **makes_ready(kind, *lanes)))

    @pytest.mark.parametrize("kind", ["turn", "out", "action"])
    async def test_several_waiting_leases_hear_of_different_partitions(self, store: Store, kind: Kind) -> None:
        lanes = apart(store)
        async with several(store, kind, lanes):
            made = [transaction(store, conversation=lane, **makes_ready(kind, lane)) for lane in lanes]
            await asyncio.gather(*(store.commit(each) for each in made))

    async def test_several_who_wait_each_hear_of_what_arrives_together(self, store: Store) -> None:
        lanes = [*apart(store), near(store, "d"), near(store, "e")]
        async with several(store, "turn", lanes):
            assert all(await store.accept([event(lane) for lane in lanes]))

    @pytest.mark.parametrize("kind", ["turn", "out", "action"])
    async def test_several_waiting_leases_hear_of_lanes_given_back(self, store: Store, kind: Kind) -> None:
        lanes = ["c", near(store, "d"), near(store, "e")]
        await store.commit(transaction(store, **makes_ready(kind, *lanes)))
        held = [await take(store, kind, lease_seconds=60) for _ in lanes]
        async with several(store, kind, lanes):
            await asyncio.gather(*(store.commit(transaction(store, of=lease, finish="failed")) for lease in held))

    @pytest.mark.parametrize("kind", ["turn", "out", "action"])
    async def test_of_several_who_wait_one_sees_a_lane_fall_due(self, store: Store, kind: Kind) -> None:
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
