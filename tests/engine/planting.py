"""Writing values into a store that no gateway writes, as a person with the store and without the key could."""

from __future__ import annotations

import sqlite3
from typing import Any

from redis.asyncio import Redis

from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from gateway.store.sqlite.clock import Moment

__all__ = ["ODD", "plant"]

ODD = {
    "no JSON": b"{",
    "no text": b'{"kind":"\xff"}',
    "null": b"null",
    "number": b"7",
    "list": b"[]",
    "two values": b"{},{}",
    "nested": b"[" * 100_000 + b"]" * 100_000,
    "nested object": b'{"kind":"Message","a":' + b"[" * 600 + b"]" * 600 + b"}",
    "huge number": b'{"kind":' + b"9" * 5000 + b"}",
    "large number": b'{"kind":"Message","received":' + b"9" * 400 + b"}",
    "NaN": b'{"kind":"Message","a":"\\ud800","received":NaN}',
    "infinity": b'{"kind":"Message","a":"\\ud800","received":1e999}',
    "half a pair": b'{"kind":"Message","event_ids":["\\ud800"]}',
    "one name twice": b'{"kind":"Message","kind":"expiry"}',
    "list for a text": b'{"kind":[],"address":[],"mac":[],"action_id":{},"role":[],"body":[]}',
    "line breaks": b'{"kind":\n"Message"\n}',
    "long": b'{"kind":"Message","text":"' + b"x" * 1_000_000 + b'"}',
}
"""The odd values planted in place of a stored value."""

_STATEMENTS = {
    "event": "UPDATE event SET body = CAST(?1 AS TEXT) WHERE conversation = ?2",
    "stamp": "UPDATE event SET stamp = CAST(?1 AS TEXT) WHERE conversation = ?2",
    "part": "UPDATE part SET body = CAST(?1 AS TEXT) WHERE conversation = ?2",
    "step": "UPDATE step SET value = CAST(?1 AS TEXT) WHERE conversation = ?2",
    "dead": "UPDATE dead SET held = CAST(?1 AS TEXT) WHERE dead_id = ?2",
    "timer": "UPDATE timer SET incoming = CAST(?1 AS TEXT) WHERE timer_id = ?2",
    "record": "UPDATE record SET value = CAST(?1 AS TEXT) WHERE name = ?2",
    "log": "UPDATE log SET value = CAST(?1 AS TEXT) WHERE log = ?2",
    "spent": "UPDATE spent SET amounts = CAST(?1 AS TEXT) WHERE name = ?2",
}


async def plant(store: Store, conversation: str, kind: str, name: str, value: bytes) -> None:
    """Plant the value in all events, parts or steps of a conversation, or else in the named entry."""
    if isinstance(store, SqliteStore):

        def write(db: sqlite3.Connection, at: Moment) -> int:
            return db.execute(_STATEMENTS[kind], (value, name)).rowcount

        assert await store._writer.submit(write), f"there is no {kind} {name}"
        return
    assert isinstance(store, RedisStore)
    base = store._server.keys.base(store.partition(conversation))
    async with Redis.from_url(store._url, driver_info=None) as redis:
        assert await _in_redis(redis, base, kind, name, value), f"there is no {kind} {name}"


async def _in_redis(redis: Any, base: str, kind: str, name: str, value: bytes) -> int:
    match kind:
        case "event" | "part":
            waiting = await redis.zrange(f"{base}:{'mail' if kind == 'event' else 'out'}:{name}", 0, -1)
            return sum([1 - await redis.hset(f"{base}:{kind}:{one.decode()}", "body", value) for one in waiting])
        case "stamp":
            waiting = await redis.zrange(f"{base}:mail:{name}", 0, -1)
            return sum([1 - await redis.hset(f"{base}:event:{one.decode()}", "stamp", value) for one in waiting])
        case "step":
            steps = range(await redis.llen(f"{base}:steps:{name}"))
            return sum([await redis.lset(f"{base}:steps:{name}", place, value) for place in steps])
        case "log":
            lines = await redis.lrange(f"{base}:log:{name}", 0, -1)
            new = [line.partition(b" ")[0] + b" " + value for line in lines]
            return sum([await redis.lset(f"{base}:log:{name}", place, line) for place, line in enumerate(new)])
        case "timer":
            return 1 - int(await redis.hset(f"{base}:timer", name, value))
        case "spent":
            return 1 - int(await redis.hset(f"{base}:spent:{name}", "calls", value))
        case "dead":
            return 1 - int(await redis.hset(f"{base}:letter:{name}", "held", value))
    return 1 - int(await redis.hset(f"{base}:record:{name}", "value", value))
