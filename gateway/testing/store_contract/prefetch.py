"""Prefetch: a lease has records and the end of a log, as of the moment of taking the lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from channels import Json
from gateway.store.base import Store
from gateway.store.codec import decode
from gateway.store.transaction import Put
from gateway.store.types import Key, Kind, Lease, Prefetch, Record
from gateway.testing.store_contract.helpers import makes_ready, take, transaction

KINDS: tuple[Kind, ...] = ("turn", "out", "action")
ODD = ["a/b//c", "/", "é 🎉", "x'; DROP TABLE lane; --", "{02}", "%s\r\n\x00", "open/c"]
PREFETCH = Prefetch(records=("open", "seal"), log="said", last=2)


@dataclass(frozen=True)
class AwaitedLease:
    """The lease of a waiting worker, set after the block."""

    asked: asyncio.Task[Lease | None]

    @property
    def lease(self) -> Lease:
        lease = self.asked.result()
        assert lease is not None
        return lease


@asynccontextmanager
async def waiting(store: Store, kind: Kind, **options: Any) -> AsyncIterator[AwaitedLease]:
    asked = asyncio.create_task(
        store.lease("w", [kind], wait_seconds=3600, lease_seconds=60, prefetch=PREFETCH, **options)
    )
    for _ in range(20):
        await store.has_work("c")
    yield AwaitedLease(asked)
    async with asyncio.timeout(5):
        await asked


def shown(lease: Lease) -> dict[str, Record]:
    """Return the prefetched records by name. All records are of the lane's partition."""
    assert {key.partition for key in lease.prefetched.records} <= {lease.partition}
    return {key.name: record for key, record in lease.prefetched.records.items()}


def said(lease: Lease) -> list[Json]:
    return [decode(line) for line in lease.lines]


async def shows_its_own(store: Store, kind: Kind, lane: str) -> None:
    """Check that a lease of this lane, taken by name or not, has the records of this lane."""
    own = {f"open/{lane}": Put("own"), f"seal/{lane}": Put("sealed")}
    lines: list[tuple[str, Json]] = [(f"said/{lane}", "own"), ("said/c", "another's")]
    await store.commit(transaction(store, conversation=lane, puts=own, appends=lines, **makes_ready(kind, lane)))
    key = Key(store.partition(lane), f"open/{lane}")
    for only in (None, lane):
        lease = await take(store, kind, only=only, prefetch=PREFETCH)
        assert (lease.lane, lease.partition, said(lease)) == (lane, store.partition(lane), ["own"])
        assert shown(lease) == {f"open/{lane}": Record("own", 1), f"seal/{lane}": Record("sealed", 1)}
        assert lease.prefetched[key] == (await store.get([key]))[key]
        await store.commit(transaction(store, of=lease, finish="failed"))


class PrefetchContract:
    @pytest.mark.parametrize("kind", KINDS)
    async def test_lease_shows_the_prefetched_records_and_lines(self, store: Store, kind: Kind) -> None:
        value: Json = {"x": [1, None, "é"]}
        puts = {"open/c": Put(value), "seal/c": Put(None), "open": Put("bare"), "open/d": Put("another's")}
        lines: list[tuple[str, Json]] = [("said/c", "a"), ("said", "bare"), ("said/c", {"b": [None]}), ("said/c", "c")]
        await store.commit(transaction(store, puts=puts, appends=lines))
        await store.commit(transaction(store, puts={"open/c": Put(value)}, **makes_ready(kind, "c")))
        before = await store.now()
        lease = await take(store, kind, prefetch=PREFETCH)
        assert shown(lease) == {"open/c": Record(value, 2), "seal/c": Record(None, 1)}
        assert lease.prefetched[Key(lease.partition, "open/c")] == Record(value, 2)
        assert said(lease) == [{"b": [None]}, "c"]
        assert before <= lease.prefetched.now <= await store.now()

    @pytest.mark.parametrize("kind", KINDS)
    async def test_lease_without_a_prefetch_shows_no_records_or_lines(self, store: Store, kind: Kind) -> None:
        written = transaction(store, puts={"open/c": Put(1), "/c": Put(2)}, appends=[("said/c", 1), ("/c", 2)])
        await store.commit(written)
        await store.commit(transaction(store, **makes_ready(kind, "c")))
        before = await store.now()
        lease = await take(store, kind)
        assert (lease.prefetched.records, lease.lines) == ({}, ())
        assert before <= lease.prefetched.now <= await store.now()

    async def test_missing_records_are_shown_as_absent(self, store: Store) -> None:
        await store.commit(transaction(store, puts={"open/c": Put(1)}))
        await store.commit(transaction(store, deletes=["open/c"], **makes_ready("turn", "c")))
        lease = await take(store, prefetch=PREFETCH)
        assert (shown(lease), lease.lines) == ({"open/c": Record(), "seal/c": Record()}, ())

    async def test_a_record_that_has_ended_is_absent(self, store: Store) -> None:
        puts = {"open/c": Put(1, ttl_seconds=60), "seal/c": Put(2, ttl_seconds=62)}
        await store.commit(transaction(store, puts=puts, **makes_ready("turn", "c")))
        store.offset_seconds = 61
        assert shown(await take(store, prefetch=PREFETCH)) == {"open/c": Record(), "seal/c": Record(2, 1)}

    @pytest.mark.parametrize(("log", "last", "lines"), [("said", 9, [1, 2, 3]), ("said", 0, []), (None, 9, [])])
    async def test_as_many_lines_as_were_asked_for(
        self, store: Store, log: str | None, last: int, lines: list[Json]
    ) -> None:
        written: list[tuple[str, Json]] = [("said/c", number) for number in (1, 2, 3)]
        await store.commit(transaction(store, appends=written, **makes_ready("turn", "c")))
        assert said(await take(store, prefetch=Prefetch(log=log, last=last))) == lines

    @pytest.mark.parametrize("kind", KINDS)
    async def test_each_lease_shows_the_state_when_it_is_taken(self, store: Store, kind: Kind) -> None:
        await store.commit(transaction(store, **makes_ready(kind, "c")))
        before: Lease | None = None
        for number in range(1, 4):
            await store.commit(transaction(store, puts={"open/c": Put(number)}, appends=[("said/c", number)]))
            lease = await take(store, kind, prefetch=PREFETCH)
            assert shown(lease)["open/c"] == Record(number, number)
            assert said(lease) == list(range(max(1, number - 1), number + 1))
            assert before is None or before.prefetched.now < lease.prefetched.now
            last = transaction(store, of=lease, finish="failed", puts={"seal/c": Put(number)})
            await store.commit(last)
            assert shown(lease)["seal/c"].version == number - 1
            before = lease

    async def test_takeover_shows_writes_of_the_previous_holder(self, store: Store) -> None:
        await store.commit(transaction(store, **makes_ready("turn", "c")))
        gone = await take(store, prefetch=PREFETCH, lease_seconds=0.05)
        await store.commit(transaction(store, of=gone, puts={"open/c": Put("begun")}, appends=[("said/c", "begun")]))
        lease = await take(store, prefetch=PREFETCH)
        assert (lease.died, shown(lease)["open/c"], said(lease)) == (True, Record("begun", 1), ["begun"])

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("only", [None, "c"])
    async def test_lease_shows_writes_made_during_its_wait(self, store: Store, kind: Kind, only: str | None) -> None:
        await store.commit(transaction(store, puts={"open/c": Put("old"), "seal/c": Put("kept")}))
        async with waiting(store, kind, only=only) as answer:
            await store.commit(transaction(store, puts={"open/c": Put("new")}, appends=[("said/c", 1)]))
            before = await store.now()
            seal = transaction(store, deletes=["seal/c"], appends=[("said/c", 2)], **makes_ready(kind, "c"))
            await store.commit(seal)
        lease = answer.lease
        assert shown(lease) == {"open/c": Record("new", 2), "seal/c": Record()}
        assert (lease.lane, said(lease)) == ("c", [1, 2])
        assert before < lease.prefetched.now <= await store.now()

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("lane", ODD)
    async def test_each_lane_is_shown_its_own_records(self, store: Store, kind: Kind, lane: str) -> None:
        await shows_its_own(store, kind, lane)
