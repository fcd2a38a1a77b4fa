"""A store in which an older release let notes pile up until nothing more was taken: it heals by itself."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from redis.asyncio import Redis

from gateway.store.base import Store
from gateway.store.errors import Overloaded
from gateway.store.redis import RedisStore
from gateway.store.redis.keys import Keys
from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite.schema import _MIGRATIONS
from gateway.store.types import FOLDED_AFTER_SECONDS, Incoming
from gateway.testing.store_contract.helpers import event, seqs, transaction

MOST = 60


async def check(store: Store) -> None:
    """New messages are taken, and each note's conversation comes to a turn."""
    stats = await store.stats()
    assert (stats.waiting, stats.oldest_waiting_seconds) == (0, 0.0)
    assert await store.accept([event("new", "new", refusable=True)]) == [True]
    store.offset_seconds = FOLDED_AFTER_SECONDS + 1
    folded = []
    while (lease := await store.lease("w", ["turn"])) is not None:
        folded.append(lease.lane)
        await store.commit(transaction(store, of=lease, finish="done", consume=seqs(lease.events)))
    assert sorted(folded) == sorted(["new", *(f"c{number}" for number in range(MOST))])


async def test_file_full_of_notes_heals_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "askfirst.db"
    with closing(sqlite3.connect(path)) as db:
        for number, script in enumerate(_MIGRATIONS[:4], start=1):
            db.executescript(f"{script}; PRAGMA application_id = {0x41534B46}; PRAGMA user_version = {number};")
        rows = [(f"c{number}", 0) for number in range(MOST)]
        db.executemany("INSERT INTO event (conversation, stamp, body, pointed, wakes) VALUES (?, ?, '{}', 0, 0)", rows)
        db.commit()
    store = SqliteStore(path, max_waiting=MOST)
    await store.open()
    await check(store)
    await store.close()


async def test_redis_full_of_notes_heals_by_itself(redis_url: str, prefix: str) -> None:
    """Notes are among what counts, and nothing makes their conversations ready."""
    store = RedisStore(redis_url, prefix=prefix, max_waiting=MOST, ack_seconds=5)
    await store.open()
    await store.accept([Incoming(conversation=f"c{n}", event_ids=(), body={}, wakes=False) for n in range(MOST)])
    async with Redis.from_url(redis_url, driver_info=None, decode_responses=True) as redis:
        for conversation in (f"c{n}" for n in range(MOST)):
            base = Keys(prefix).base(store.partition(conversation))
            (seq,) = await redis.zrange(f"{base}:mail:{conversation}", 0, -1)
            await redis.eval("return redis.call('ZADD', KEYS[1], 1, ARGV[1])", 1, f"{base}:stamps", str(seq))
            await redis.zrem(f"{base}:free:turn", conversation)
            await redis.delete(f"{base}:lane:turn:{conversation}")
    with pytest.raises(Overloaded):
        await store.accept([event("new", "new", refusable=True)])
    await store.run_timers()
    await check(store)
    await store.close()
