"""Data in sixteen partitions behaves as in one store."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from itertools import count

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot

from gateway.store.errors import Overloaded
from gateway.store.redis import RedisStore
from gateway.store.redis.keys import PARTITIONS, Keys, partition_of
from gateway.store.transaction import Put, Timer, Transaction
from gateway.store.types import Dead, Incoming, Key, QueuedPart, Spending

MAX_WAITING = 5


@pytest.fixture
async def store(redis_url: str, prefix: str) -> AsyncIterator[RedisStore]:
    store = RedisStore(redis_url, prefix=prefix, max_waiting=MAX_WAITING, ack_seconds=5)
    await store.open()
    yield store
    await store.close()


def conversation(partition: str, number: int = 0) -> str:
    """Return a conversation of this partition."""
    found = [name for name in (f"c{n}" for n in range(1000)) if partition_of(name) == partition]
    return found[number]


def event(name: str, *ids: str, refusable: bool = False, decides: bool = False) -> Incoming:
    return Incoming(conversation=name, event_ids=ids, body={}, refusable=refusable, decides=decides)


# ───────────── placement ─────────────


def test_partitions_are_spread_evenly_over_the_cluster_slots() -> None:
    keys = Keys("askfirst")
    slots = [key_slot(keys.base(partition).encode()) for partition in PARTITIONS]
    assert list(PARTITIONS) == [f"{number:02}" for number in range(16)]
    assert [slot * 16 // 16384 for slot in slots] == list(range(16))


def test_all_keys_of_a_partition_share_a_slot() -> None:
    keys = Keys("any-prefix")
    for partition in PARTITIONS:
        base = keys.base(partition)
        names = [base, f"{base}:clock", f"{base}:mail:a conversation {{with braces}}"]
        assert len({key_slot(name.encode()) for name in names}) == 1
        assert key_slot(keys.log(partition, "}{")) == key_slot(base.encode())


def test_a_conversation_never_moves() -> None:
    assert [partition_of(name) for name in ("", "c", "telegram:1:2", "🎉")] == ["00", "15", "03", "07"]
    assert partition_of("half a \ud83d pair") in PARTITIONS


# ───────────── as one store ─────────────


async def test_longest_waiting_lane_of_all_partitions_is_taken_first(store: RedisStore) -> None:
    lanes = [conversation(partition) for partition in ("09", "02", "15", "00")]
    for lane in lanes:
        await store.accept([event(lane)])
    leases = [await store.lease("w", ["turn"]) for _ in lanes]
    assert [lease and lease.lane for lease in leases] == lanes
    assert await store.lease("w", ["turn"]) is None


async def test_an_action_is_found_by_its_id(store: RedisStore) -> None:
    await store.commit(Transaction(partition="11", actions=["act"]))
    lease = await store.lease("w", ["action"], only="act")
    assert lease is not None
    assert lease.partition == "11"


async def test_pointers_records_and_dead_letters_of_all_come_in_order(store: RedisStore) -> None:
    lanes = [conversation(partition) for partition in ("09", "02", "15")]
    for lane in lanes:
        await store.accept([event(lane, decides=True)])
        letter = Dead(dead_id=f"d-{lane}", conversation=lane, reason="r", incoming=event(lane))
        await store.commit(Transaction(partition=store.partition(lane), puts={f"r-{lane}": Put(lane)}, dead=[letter]))
    assert [found.conversation for found in await store.pending_decisions()] == lanes
    assert [found.conversation for found in await store.pending_decisions(limit=2)] == lanes[:2]
    assert [letter.conversation for letter in await store.dead_letters()] == lanes
    assert [(key.name, record.value) for key, record in await store.scan("r-")] == sorted((f"r-{x}", x) for x in lanes)
    snapshot = await store.get([Key(store.partition(lane), f"r-{lane}") for lane in lanes])
    assert [record.value for record in snapshot.records.values()] == lanes
    assert await store.replay(f"d-{lanes[2]}") is True
    assert [await store.drop(f"d-{lane}") for lane in lanes] == [True, True, False]
    stats = await store.stats()
    assert (stats.waiting, stats.pointed, stats.ready, stats.dead) == (4, 3, 1, 0)


async def test_a_batch_for_several_partitions_is_refused_as_one(store: RedisStore) -> None:
    full, empty = conversation("03"), conversation("04")
    await store.accept([event(full) for _ in range(MAX_WAITING)])
    with pytest.raises(Overloaded):
        await store.accept([event(empty, "a", refusable=True), event(full, "b", refusable=True)])
    assert (await store.stats()).waiting == MAX_WAITING
    assert await store.accept([event(empty, "a"), event(full, "b"), event(empty, "a")]) == [True, True, False]


async def test_waiting_events_are_bounded_over_all_partitions(store: RedisStore) -> None:
    for number in range(MAX_WAITING):
        await store.accept([event(conversation(f"{number:02}"), refusable=True)])
    with pytest.raises(Overloaded, match=f"{MAX_WAITING} events wait"):
        await store.accept([event(conversation("12"), "new", refusable=True)])
    assert await store.accept([event(conversation("12"), "press")]) == [True]
    assert (await store.stats()).waiting == MAX_WAITING + 1


async def test_bound_counts_events_accepted_by_other_processes(store: RedisStore, redis_url: str, prefix: str) -> None:
    other = RedisStore(redis_url, prefix=prefix, max_waiting=MAX_WAITING, ack_seconds=5)
    await other.open()
    assert await store.accept([event(conversation("12"), refusable=True)]) == [True]
    for number in range(MAX_WAITING - 1):
        await other.accept([event(conversation(f"{number:02}"), refusable=True)])
    with pytest.raises(Overloaded):
        await other.accept([event(conversation("13"), refusable=True)])
    async with asyncio.timeout(60):  # this store has counted before the events came
        others = count()
        while await taken(store, conversation("14", next(others))):
            await asyncio.sleep(0.05)
    while (lease := await other.lease("w", ["turn"])) is not None:
        seqs = [(found.conversation, found.seq) for found in lease.events]
        await other.commit(Transaction(partition=lease.partition, lease=lease, consume=seqs, finish="done"))
    async with asyncio.timeout(60):
        while not await taken(store, conversation("15")):
            await asyncio.sleep(0.05)
    await other.close()


async def taken(store: RedisStore, name: str) -> bool:
    """Return whether a new message is accepted."""
    try:
        return await store.accept([event(name, refusable=True)]) == [True]
    except Overloaded:
        return False


async def test_a_twin_is_a_twin_in_the_partition_of_its_conversation(store: RedisStore) -> None:
    here, beside, there = conversation("03"), conversation("03", 1), conversation("04")
    assert await store.accept([event(here, "a", "place"), event(there, "b"), event(beside, "a")]) == [True, True, False]
    assert await store.accept([event(beside, "c", "place"), event(here, "c"), event(there, "a")]) == [
        False,
        False,
        True,
    ]
    assert (await store.stats()).waiting == 3


async def test_events_accepted_at_the_same_time_stay_in_order(redis_url: str, prefix: str) -> None:
    store = RedisStore(redis_url, prefix=prefix, ack_seconds=5)
    await store.open()
    kinds = (True, False, True, False, False)
    accepting = [
        store.accept([Incoming(conversation="c", event_ids=(), body={"n": n}, refusable=kind)])
        for n, kind in enumerate(kinds)
    ]
    with pytest.raises(ValueError, match="JSON"):
        await asyncio.gather(store.accept([Incoming(conversation="c", event_ids=(), body={"n": math.nan})]))
    await asyncio.gather(*accepting)
    lease = await store.lease("w", ["turn"])
    assert lease is not None
    assert [found.body["n"] for found in lease.events] == [0, 1, 2, 3, 4]
    await store.close()


async def test_a_timer_may_be_for_another_partition_and_comes_once(store: RedisStore) -> None:
    here, there = conversation("03"), conversation("04")
    due = await store.now()
    timers = [Timer(timer_id=lane, due=due, incoming=event(lane)) for lane in (here, there)]
    await store.commit(Transaction(partition="03", timers=timers))
    store.offset_seconds = 1
    assert await store.run_timers() is None
    await store.commit(Transaction(partition="03", timers=timers[1:]))  # as if its end had been lost
    await store.run_timers()
    stats = await store.stats()
    assert (stats.waiting, stats.timers) == (2, 0)
    lease = await store.lease("w", ["turn"], only=there)
    assert lease is not None
    assert [found.stamp for found in lease.events] == [due]


async def test_a_transaction_touches_one_partition(store: RedisStore) -> None:
    here, there = conversation("03"), conversation("04")
    await store.accept([event(there)])
    lease = await store.lease("w", ["turn"])
    assert lease is not None
    seq = lease.events[0].seq
    for wrong in (
        Transaction(partition="03", lease=lease),
        Transaction(partition="03", consume=[(there, seq)]),
        Transaction(partition="03", drop_pointers=[(there, seq)]),
        Transaction(partition="03", replace=[(there, seq, {})]),
        Transaction(partition="03", accept=[event(here), event(there)]),
        Transaction(partition="03", parts=[QueuedPart(part_id="p", conversation=there, body={})]),
        Transaction(partition="03", signals=[(there, "stop")]),
        Transaction(partition="03", dead=[Dead(dead_id="d", conversation=here, reason="r", incoming=event(there))]),
    ):
        with pytest.raises(ValueError, match="of partition"):
            await store.commit(wrong)
    assert (await store.stats()).waiting == 1


async def test_expired_record_is_removed_and_its_version_kept_a_while(store: RedisStore, prefix: str) -> None:
    await store.commit(Transaction(partition="05", puts={"r": Put("a secret", ttl_seconds=10), "kept": Put(1)}))
    store.offset_seconds = 11
    await store.run_timers()
    assert [key.name for key, _ in await store.scan("")] == ["kept"]
    await store.commit(Transaction(partition="05", puts={"r": Put("new")}, expect={"r": 0}))
    assert (await store.get([Key("05", "r")]))[Key("05", "r")].version == 2


async def test_ended_count_leaves_the_server(store: RedisStore, prefix: str, redis_url: str) -> None:
    spends = [Spending(name="day", amounts={"n": 1}, keep_seconds=10)]
    await store.commit(Transaction(partition="05", spends=spends))
    async with Redis.from_url(redis_url) as redis:
        assert [key async for key in redis.scan_iter(f"{prefix}:*spent:day")] != []
        store.offset_seconds = 11
        await store.run_timers()
        assert [key async for key in redis.scan_iter(f"{prefix}:*spent*")] == []
