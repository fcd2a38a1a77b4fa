"""What only the shared store has: a server, which may be wrong, slow, full, a replica, or gone."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from channels import AskfirstError
from gateway.app import home_of, open_store
from gateway.settings import Settings
from gateway.store.base import (
    Incoming,
    Key,
    Overloaded,
    Put,
    QueuedPart,
    Store,
    StoreRefused,
    StoreUnavailable,
    Transaction,
)
from gateway.store.redis import RedisStore
from gateway.store.redis.startup import judge
from tests.store.redis_server import RedisServer

GOOD = {"redis_version": "7.0.0", "maxmemory_policy": "noeviction", "aof_enabled": 1}


@pytest.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStore]:
    store = RedisStore(server.url)
    await store.open()
    yield store
    await store.close()


def message(name: str = "c", text: str = "", refusable: bool = False) -> Incoming:
    return Incoming(conversation=name, event_ids=(), body={"text": text}, refusable=refusable)


async def eventually_accepts(store: Store) -> None:
    """A server that comes back is used again."""
    while True:
        try:
            await store.accept([message()])
            return
        except StoreUnavailable:
            await asyncio.sleep(0)


# ───────────── at the start ─────────────


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"redis_version": "6.2.14"}, r"6\.2\.14 is too old: 7\.0"),
        ({"maxmemory_policy": "allkeys-lru"}, "Set maxmemory-policy to noeviction"),
        ({"cluster_enabled": 1}, "runs as a cluster"),
    ],
)
def test_a_server_that_cannot_keep_what_it_is_given_is_refused(wrong: Mapping[str, object], told: str) -> None:
    judge(GOOD)
    judge({**GOOD, "redis_version": "10.0.1"})
    with pytest.raises(StoreRefused, match=told):
        judge({**GOOD, **wrong})


async def test_a_server_that_throws_keys_away_is_refused(server: RedisServer) -> None:
    await server.command("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
    with pytest.raises(StoreRefused, match="volatile-ttl"):
        await RedisStore(server.url).open()
    assert await server.command("DBSIZE") == 0


async def test_a_server_that_forgets_at_its_end_is_warned_of(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    for keeps, warnings in (("yes", 0), ("no", 1)):
        await server.command("CONFIG", "SET", "appendonly", keeps)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            store = RedisStore(server.url)
            await store.open()
            await store.close()
        assert len(caplog.records) == warnings
    assert "Set appendonly to yes" in caplog.text


async def test_what_a_newer_release_wrote_is_refused(server: RedisServer) -> None:
    await server.command("SET", "askfirst:format", 2)
    with pytest.raises(StoreRefused, match=r"format 2.*newer release"):
        await RedisStore(server.url).open()


async def test_a_wrong_password_is_told_and_not_shown(server: RedisServer) -> None:
    await server.command("CONFIG", "SET", "requirepass", "right")
    url = server.url.replace("//", "//:very-secret@")
    with pytest.raises(StoreUnavailable, match="user or password") as caught:
        await RedisStore(url).open()
    assert "very-secret" not in str(caught.value)
    store = RedisStore(server.url.replace("//", "//:right@"))
    await store.open()
    await store.close()


@pytest.mark.parametrize("url", ["redis://:very-secret@host:no-number", "redis://:very-secret@[::1"])
async def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(StoreRefused, match="ASKFIRST_STORE") as caught:
        await RedisStore(url).open()
    assert "very-secret" not in str(caught.value)


async def test_a_server_that_is_not_there_is_told_at_once_and_may_come_later(server: RedisServer) -> None:
    await server.kill()
    store = RedisStore(server.url)
    with pytest.raises(StoreUnavailable, match="cannot be used now"):
        await asyncio.wait_for(store.open(), 2)
    await server.start()
    await store.open()
    await store.ping()
    await store.close()


async def test_it_is_asked_for_by_its_url(server: RedisServer) -> None:
    assert isinstance(open_store("rediss://host"), RedisStore)
    store = open_store(server.url)
    await store.open()
    await store.ping()
    await store.close()


def test_what_every_instance_needs_alike_is_not_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AskfirstError, match="ASKFIRST_SECRET and ASKFIRST_ARTIFACTS"):
        home_of(Settings(), "redis://127.0.0.1:6379/0")
    assert list(tmp_path.iterdir()) == []


# ───────────── on the way ─────────────


async def test_scripts_that_were_flushed_are_loaded_again(store: RedisStore, server: RedisServer) -> None:
    for _ in range(2):
        await server.command("SCRIPT", "FLUSH")
        assert await store.accept([message()]) == [True]
        await server.command("SCRIPT", "FLUSH")
        assert (await store.stats()).waiting > 0
    await server.command("SCRIPT", "FLUSH")
    assert await store.lease("w", ["turn"]) is not None


async def test_a_platform_is_not_kept_waiting_by_a_frozen_server(store: RedisStore, server: RedisServer) -> None:
    await store.accept([message()])
    server.freeze()
    began = time.monotonic()
    answers = await asyncio.gather(
        *(store.accept([message()]) for _ in range(100)), *(store.ping() for _ in range(100)), return_exceptions=True
    )
    took = time.monotonic() - began
    server.thaw()
    assert {type(answer) for answer in answers} == {StoreUnavailable}
    assert took < 1.5, "Slack waits 3 seconds; all gave up together"
    await asyncio.wait_for(eventually_accepts(store), 5)


async def test_five_hundred_at_once_find_connections(store: RedisStore) -> None:
    keys = [Key("00", f"r{n}") for n in range(500)]
    await asyncio.gather(
        *(store.commit(Transaction(partition="00", puts={key.name: Put(1)})) for key in keys),
        *(store.get([key]) for key in keys),
    )
    assert len(await store.scan("r")) == 500


async def test_a_replica_takes_no_writes_and_is_used_again_when_it_is_promoted(
    store: RedisStore, server: RedisServer
) -> None:
    await store.accept([message()])
    await server.command("REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(StoreUnavailable, match="replica"):
        await store.accept([message()])
    with pytest.raises(StoreUnavailable, match="replica"):
        await store.commit(Transaction(partition="00", puts={"r": Put(1)}))
    await server.command("REPLICAOF", "NO", "ONE")
    await asyncio.wait_for(eventually_accepts(store), 5)


async def test_a_full_server_takes_decisions_and_lets_work_end_and_refuses_what_is_new(
    store: RedisStore, server: RedisServer
) -> None:
    await store.accept([message("before")])
    part = QueuedPart(part_id="p", conversation="before", body={})
    partition = store.partition("before")
    await store.commit(Transaction(partition=partition, parts=[part]))
    await server.command("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(Overloaded, match="no memory"):
        await store.accept([message(refusable=True)])
    with pytest.raises(StoreUnavailable, match="raise maxmemory"):
        await store.commit(Transaction(partition=partition, puts={"ask": Put(1)}))
    press = Incoming(conversation="before", event_ids=(), body={}, decides=True)
    assert await store.accept([press]) == [True]
    [pointed] = await store.pointed()
    await store.commit(
        Transaction(partition=partition, consume=[("before", pointed.seq)], puts={"action": Put("confirmed")})
    )
    lease = await store.lease("w", ["turn"])
    assert lease is not None
    await store.renew(lease)
    consume = [("before", event.seq) for event in lease.events]
    await store.commit(Transaction(partition=partition, lease=lease, consume=consume, finish="done"))
    out = await store.lease("w", ["out"])
    assert out is not None
    await store.commit(Transaction(partition=partition, lease=out, sent=["p"], finish="done"))
    stats = await store.stats()
    assert (stats.waiting, stats.parts) == (0, 0)
    await server.command("CONFIG", "SET", "maxmemory", 0)
    assert await store.accept([message(refusable=True)]) == [True]


async def test_who_waits_is_served_though_news_was_lost(store: RedisStore, server: RedisServer) -> None:
    waiting = asyncio.create_task(store.lease("w", ["turn"], wait_seconds=20))
    await store.ping()
    await server.command("CLIENT", "KILL", "TYPE", "pubsub")
    await store.accept([message()])
    assert await asyncio.wait_for(waiting, 5) is not None


async def test_news_comes_from_other_processes(store: RedisStore, server: RedisServer) -> None:
    other = RedisStore(server.url)
    await other.open()
    waiting = asyncio.create_task(store.lease("w", ["turn"], wait_seconds=20))
    entries = store.watch(Key("00", "log"))
    watching = asyncio.ensure_future(anext(entries))
    while await server.command("PUBSUB", "NUMSUB", "askfirst:news") != [b"askfirst:news", 2]:
        pass
    await other.accept([message()])
    await other.commit(Transaction(partition="00", appends=[("log", "line")]))
    assert await asyncio.wait_for(waiting, 1) is not None
    assert (await asyncio.wait_for(watching, 1)).value == "line"
    await entries.aclose()  # type: ignore[attr-defined]
    await other.close()
