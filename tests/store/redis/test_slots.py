"""A cluster's demands on scripts: each touches the keys of one slot, and the partitions lie on all nodes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot
from redis.exceptions import ResponseError

from gateway.store.base import Store
from gateway.store.redis import RedisStore, scripts
from gateway.store.redis.keys import PARTITIONS, Keys
from gateway.store.transaction import Chained, LogCut, Put, Timer, Transaction
from gateway.store.types import Cell, Dead, Forgotten, Incoming, Key, Prefetch, QueuedPart, Spending
from tests.store.redis_server import RedisServer

SLOTS = 16384
NAMES = [name for name in vars(scripts) if isinstance(getattr(scripts, name), scripts.Script)]
LAST = "PING"


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStore]:
    store = RedisStore(server.url, ack_seconds=5)
    await store.open()
    yield store
    await store.close()


@pytest.mark.parametrize("nodes", [2, 3, 4, 5, 8, 16])
def test_the_partitions_are_spread_evenly_over_the_nodes(nodes: int) -> None:
    slots = [key_slot(Keys("askfirst").base(partition).encode()) for partition in PARTITIONS]
    ranges = [round(SLOTS * node / nodes) for node in range(nodes + 1)]  # as `redis-cli --cluster create` gives them
    held = Counter(next(node for node in range(nodes) if slot < ranges[node + 1]) for slot in slots)
    assert len(held) == nodes
    assert max(held.values()) - min(held.values()) <= 1


async def test_every_script_touches_the_keys_of_one_slot(server: RedisServer, store: RedisStore) -> None:
    touched, called = await watched(server, everything(store))
    assert called == set(NAMES)
    for name, base, keys in touched:
        slots = {key_slot(key) for key in [base, *keys]}
        assert len(slots) == 1, f"{name} touches {keys} beside {base!r}"
    assert sum(len(keys) for _, _, keys in touched) > 300


async def watched(server: RedisServer, story: Any) -> tuple[list[tuple[str, bytes, list[bytes]]], set[str]]:
    """Return each run script with the given base and the touched keys, as seen by the server."""
    names = {getattr(scripts, name).sha: name for name in NAMES}
    runs: list[tuple[str, bytes, list[list[bytes]]]] = []
    async with Redis.from_url(server.url, driver_info=None) as redis:
        async with redis.monitor() as monitor:
            await story
            await server.command(LAST)
            async for line in monitor.listen():
                words = line["command"].encode().split(b" ")
                if words == [LAST.encode()]:
                    break
                if line["client_type"] == "lua":
                    runs[-1][2].append(words)
                elif words[0] == b"EVALSHA":
                    runs.append((names[words[1].decode()], words[3], []))
        touched = [
            (name, base, [key for words in lines for key in await keys_of(redis, words)]) for name, base, lines in runs
        ]
    return touched, {name for name, _, _ in runs}


async def keys_of(redis: Redis, words: list[bytes]) -> list[bytes]:
    if len(words) == 1:
        return []
    try:
        found: list[str] = await redis.execute_command("COMMAND GETKEYS", *words)  # type: ignore[no-untyped-call]
    except ResponseError as error:
        assert "no key arguments" in str(error)
        return []
    return [key.encode() for key in found]


async def everything(store: Store) -> None:
    """Make every call of a store; the names hold the braces of Redis's hash tags."""
    c, d = "}c{1}", "{d}"
    partition = store.partition(c)
    due = await store.now()
    event = Incoming(conversation=c, event_ids=("{id}", "id}"), body={"n": 1})
    ending = Put(1, ttl_seconds=0.001)
    await store.accept([Incoming(conversation=c, event_ids=("new",), body={}, refusable=True)])
    await store.accept([event, Incoming(conversation=c, event_ids=("p",), body={}, decides=True)])
    pointed = [(found.conversation, found.seq) for found in await store.pending_decisions(c)]
    await store.mailboxes()
    await store.mailbox(c)
    await store.drop_all("no such reason")
    lease = await store.lease("w", ["turn"], only=c)
    assert lease is not None
    await store.commit(
        Transaction(
            partition=partition,
            lease=lease,
            puts={"{r}": Put(1), "ends": ending},
            deletes=["gone"],
            appends=[("{log}", 1)],
            accept=[Incoming(conversation=c, event_ids=("in",), body={})],
            drop_pointers=pointed,
            replace=[(*pointed[0], {"n": 2})],
            parts=[QueuedPart(part_id="{part}", conversation=c, body={})],
            actions=["{act}"],
            steps=["s"],
            timers=[
                Timer(timer_id="{t}", due=due, incoming=Incoming(conversation=c, event_ids=("t",), body={})),
                Timer(timer_id="far", due=due, incoming=Incoming(conversation=d, event_ids=("f",), body={})),
                Timer(timer_id="x", due=due, incoming=event),
            ],
            cancel=["x"],
            signals=[(c, "stop")],
            spends=[Spending(name="{day}", amounts={"tokens": 1}, keep_seconds=0.001)],
            dead=[Dead(dead_id="{dead}", conversation=c, reason="r", incoming=event)],
        )
    )
    await store.renew(lease)
    events = [(found.conversation, found.seq) for found in lease.events]
    chain = Chained(kind="out", lane=c, prefetch=Prefetch(records=("{r}",), log="{log}", last=2), lease_seconds=60)
    ends = Transaction(partition=partition, lease=lease, consume=events, finish="failed", chain=chain)
    await store.commit(ends)
    await store.give_back(ends)
    action = await store.lease("w", ["action"], only="{act}")
    await store.commit(Transaction(partition=partition, lease=action, finish="done"))
    out = await store.lease("w", ["out"])
    assert out is not None
    await store.commit(Transaction(partition=partition, lease=out, sent=["{part}"], finish="done"))
    await store.commit(Transaction(partition=partition, parts=[QueuedPart(part_id="more", conversation=c, body={})]))
    await store.run_timers()
    await store.get([Key(partition, "{r}")])
    await store.scan("{")
    await store.spent(["{day}", "other"])
    await store.all_spent("{")
    await store.read(Key(partition, "{log}"))
    await store.logs("{", before=due)
    await store.commit(Transaction(partition=partition, cut=[LogCut(log="{log}")], appends=[("{log}", 2)]))
    await store.outbox(c)
    await store.has_work(c)
    await store.is_held(c)
    await store.acquire([Cell(name="{cell}", burst=1, period_seconds=1), Cell(name="other", burst=1, period_seconds=1)])
    await store.dead_letters()
    await store.replay("{dead}")
    await store.stats()
    await store.timers(c)
    await given_back(store)
    await store.forget(Forgotten(lanes=frozenset({"{d}"}), subjects=frozenset({"{log}", "{r}"})))


async def given_back(store: Store) -> None:
    """Cancel calls of `lease` on the way."""
    for yields in range(0, 100, 5):
        asked = asyncio.create_task(store.lease("w", ["turn", "out"]))
        for _ in range(yields):
            await asyncio.sleep(0)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
