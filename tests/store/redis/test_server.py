"""The shared store alone has a server: possibly wrong, slow, full, a replica, or gone."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import cast

import pytest

from channels import AskfirstError
from gateway.app import opened
from gateway.assembly import home_of, open_store
from gateway.config.settings import Settings
from gateway.store.base import Store
from gateway.store.errors import NotPrimary, Overloaded, StoreRefused, StoreUnavailable
from gateway.store.form import FORM
from gateway.store.redis import RedisStore
from gateway.store.redis.checks import judge
from gateway.store.redis.connection import RedisTimings
from gateway.store.redis.keys import PARTITIONS, Keys
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Incoming, Key, Prefetch, QueuedPart
from tests.store.redis_server import Cutting, RedisServer

GOOD = {"redis_version": "7.0.0", "maxmemory_policy": "noeviction", "aof_enabled": 1}


@pytest.fixture
def ack_seconds() -> float:
    """The patience of a platform: longer than any busy machine takes, unless a test is about the limit."""
    return 15.0


@pytest.fixture
async def store(server: RedisServer, ack_seconds: float) -> AsyncIterator[RedisStore]:
    store = RedisStore(server.url, ack_seconds=ack_seconds)
    await store.open()
    yield store
    await store.close()


def message(name: str = "c", text: str = "", refusable: bool = False) -> Incoming:
    return Incoming(conversation=name, event_ids=(), body={"text": text}, refusable=refusable)


async def eventually_accepts(store: Store) -> None:
    """Check that a returned server is used again."""
    while True:
        try:
            await store.accept([message()])
            return
        except StoreUnavailable:
            await asyncio.sleep(0)


# ───────────── at the start ─────────────


@pytest.mark.ledger("PEND-32")
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"redis_version": "6.2.14"}, r"6\.2\.14 is too old: 7\.0"),
        ({"maxmemory_policy": "allkeys-lru"}, "Set maxmemory-policy to noeviction"),
        ({"cluster_enabled": 1}, "runs as a cluster"),
    ],
)
def test_server_that_cannot_keep_its_data_is_refused(wrong: Mapping[str, object], told: str) -> None:
    judge(GOOD)
    judge({**GOOD, "redis_version": "10.0.1"})
    with pytest.raises(StoreRefused, match=told):
        judge({**GOOD, **wrong})


async def test_a_server_that_throws_keys_away_is_refused(server: RedisServer) -> None:
    await server.command("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")
    with pytest.raises(StoreRefused, match="volatile-ttl"):
        await RedisStore(server.url).open()
    assert await server.command("DBSIZE") == 0


async def test_eviction_policy_set_while_in_use_is_told_once(
    server: RedisServer, ack_seconds: float, caplog: pytest.LogCaptureFixture
) -> None:
    store = RedisStore(server.url, ack_seconds=ack_seconds, timings=RedisTimings(watch_seconds=0.0))
    await store.open()
    for policy, said in (("allkeys-lru", 1), ("noeviction", 1), ("volatile-ttl", 2)):
        await server.command("CONFIG", "SET", "maxmemory-policy", policy)
        for _ in range(3):
            await store.run_timers()
        assert caplog.text.count("Set it back to noeviction") == said
    assert "maxmemory-policy was set to allkeys-lru" in caplog.text
    await store.close()


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


async def test_a_server_without_a_bound_of_memory_is_warned_of(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    for bound, warnings in (("1gb", 0), ("0", 1)):
        await server.command("CONFIG", "SET", "maxmemory", bound)
        caplog.clear()
        store = RedisStore(server.url)
        await store.open()
        await store.close()
        assert len(caplog.records) == warnings
    assert "Set maxmemory to half" in caplog.text


@pytest.mark.parametrize("form", [1, 2, FORM + 1, "eight"])
async def test_store_of_another_form_is_refused_at_start(server: RedisServer, form: int | str) -> None:
    await server.command("SET", "askfirst:format", form)
    told = (
        rf"has form {form}, and this release, Askfirst \S+, reads form {FORM} alone\. Run the release that wrote it, or"
    )
    with pytest.raises(StoreRefused, match=told):
        await RedisStore(server.url).open()
    assert await server.command("KEYS", "*") == [b"askfirst:format"]


@pytest.mark.parametrize("form", [FORM - 1, FORM + 1])
async def test_store_that_changes_form_is_refused_at_the_next_call(server: RedisServer, form: int) -> None:
    store = RedisStore(server.url)
    await store.open()
    base = Keys("askfirst").base("07")
    await store.commit(Transaction(partition="07", puts={"r": Put("old")}))
    assert await server.command("GET", f"{base}:format") == str(FORM).encode()
    for partition in PARTITIONS:
        await server.command("SET", f"{Keys('askfirst').base(partition)}:format", form)
    for call in (
        store.accept([Incoming(conversation="c", event_ids=("e",), body={})]),
        store.commit(Transaction(partition="07", puts={"r": Put("new")})),
        store.get([Key("07", "r")]),
        store.lease("w", ["turn", "action", "out"]),
        store.run_timers(),
        store.stats(),
    ):
        with pytest.raises(StoreUnavailable, match=rf"has form {form}, and this release, .* start anew"):
            await call
    await store.close()
    assert await server.command("HGET", f"{base}:record:r", "value") == b'"old"'


async def test_one_partition_of_another_form_is_refused_at_start(server: RedisServer) -> None:
    await server.command("SET", f"{Keys('askfirst').base('07')}:format", FORM + 1)
    with pytest.raises(StoreRefused, match=rf"has form {FORM + 1}, and this release"):
        await RedisStore(server.url).open()


async def test_a_number_of_the_whole_store_stops_each_call(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = RedisStore(server.url)
    await store.open()
    await looked(store, server, 1)
    await server.command("SET", "askfirst:format", FORM + 1)
    await looked(store, server, 3)
    for call in (store.accept([message()]), store.get([Key("07", "r")]), store.ping(), store.stats()):
        with pytest.raises(StoreUnavailable, match=rf"has form {FORM + 1}, and this release, .* start anew"):
            await call
    assert len([record for record in caplog.records if "is not used any more" in record.message]) == 1
    await server.command("SET", "askfirst:format", FORM)
    await looked(store, server, 4)
    await store.accept([message()])
    await store.close()


async def test_a_form_that_is_a_list_is_told_with_the_mend(server: RedisServer) -> None:
    await server.command("RPUSH", "askfirst:format", "9")
    with pytest.raises(StoreRefused, match="another kind of value: another program writes to it"):
        await RedisStore(server.url).open()


async def test_a_wrong_password_is_told_and_not_shown(server: RedisServer) -> None:
    await server.command("CONFIG", "SET", "requirepass", "right")
    url = server.url.replace("//", "//:very-secret@")
    with pytest.raises(StoreRefused, match="user or password") as caught:
        await RedisStore(url).open()
    assert "very-secret" not in str(caught.value)
    store = RedisStore(server.url.replace("//", "//:right@"))
    await store.open()
    await store.close()


@pytest.mark.parametrize("url", ["redis://:very-secret@host:no-number", "redis://:very-secret@[::1"])
async def test_invalid_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(StoreRefused, match="ASKFIRST_STORE") as caught:
        await RedisStore(url).open()
    assert "very-secret" not in str(caught.value)


async def test_missing_server_is_told_at_once_and_may_come_later(server: RedisServer) -> None:
    await server.kill()
    store = RedisStore(server.url)
    with pytest.raises(StoreUnavailable, match="cannot be reached: see whether it runs"):
        await asyncio.wait_for(store.open(), 15)
    await server.start()
    await store.open()
    await store.ping()
    await store.close()


async def test_a_full_server_is_opened_again_and_a_replica_is_told_of(store: RedisStore, server: RedisServer) -> None:
    again = RedisStore(server.url)
    await server.command("CONFIG", "SET", "maxmemory", 1)
    await again.open()
    await again.ping()
    await again.close()
    await server.command("CONFIG", "SET", "maxmemory", 0)
    await server.command("REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(StoreUnavailable, match="replica"):
        await store.ping()
    with pytest.raises(NotPrimary, match="replica"):
        await again.open()


async def test_a_replica_has_a_minute_to_become_the_primary(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.app.REPLICA_PAUSE_SECONDS", 0.01)
    store = RedisStore(server.url, timings=RedisTimings(work_seconds=30.0))
    await server.command("REPLICAOF", "127.0.0.1", 1)
    opening = asyncio.create_task(opened(store))
    while "It is looked at again" not in caplog.text:
        await asyncio.sleep(0.01)
    assert not opening.done()
    await server.command("REPLICAOF", "NO", "ONE")
    await opening
    await store.close()
    await server.command("REPLICAOF", "127.0.0.1", 1)
    monkeypatch.setattr("gateway.app.REPLICA_SECONDS", 0)
    with pytest.raises(StoreRefused, match="is a replica and takes no writes: point ASKFIRST_STORE at the primary"):
        await opened(store)


async def test_store_is_chosen_by_its_url(server: RedisServer) -> None:
    assert isinstance(open_store("rediss://host"), RedisStore)
    store = open_store(server.url)
    await store.open()
    await store.ping()
    await store.close()


def test_settings_shared_by_all_instances_are_not_invented(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize("ack_seconds", [0.25])
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
    assert took < 2.5, "Slack waits 3 seconds; all gave up together"
    await asyncio.wait_for(eventually_accepts(store), 60)


@pytest.mark.parametrize("ack_seconds", [0.25])
async def test_silent_server_fails_calls_at_once_until_it_is_back(store: RedisStore, server: RedisServer) -> None:
    await store.ping()
    server.freeze()
    while (await timed(store.ping()))[0] > 0.1:
        pass
    answers = await asyncio.gather(*(timed(store.accept([message()])) for _ in range(60)))
    assert {type(error) for _, error in answers} == {StoreUnavailable}
    assert sum(seconds > 0.2 for seconds, _ in answers) <= 16, "one call, with a batch of each partition at most"
    server.thaw()
    began = time.monotonic()
    await asyncio.wait_for(eventually_accepts(store), 60)
    assert time.monotonic() - began < 15


async def timed(call: Awaitable[object]) -> tuple[float, Exception | None]:
    """Return the duration of a call, and the error."""
    began, failed = time.monotonic(), None
    try:
        await call
    except StoreUnavailable as error:
        failed = error
    return time.monotonic() - began, failed


@pytest.mark.parametrize("how", ["restarted", "idle"])
async def test_a_connection_that_was_closed_meanwhile_costs_no_call(
    store: RedisStore, server: RedisServer, how: str
) -> None:
    async def calls() -> None:
        await asyncio.gather(*(store.now() for _ in range(5)), *(store.ping() for _ in range(5)))
        await store.accept([message()])
        await store.commit(Transaction(partition="00"))

    await calls()
    if how == "restarted":
        await server.kill()
        await server.start()
    else:
        await server.command("CLIENT", "KILL", "TYPE", "normal")
    await asyncio.sleep(0.01)  # the end of a connection is an event like others
    await calls()


async def test_a_server_that_is_loading_cannot_be_used_yet(store: RedisStore, server: RedisServer) -> None:
    await store.accept([message()])
    await server.command("EVAL", "for i = 1, 160000 do redis.call('SET', 'k' .. i, i) end", 0)
    await server.kill()
    starting = asyncio.create_task(server.start("--key-load-delay", "-4"))  # a moment's rest at every fourth key or so
    another, loading = RedisStore(server.url), "Redis cannot be used now: it is still loading its data"

    async def hears(call: Callable[[], Awaitable[object]]) -> str:
        told = ""
        while told != loading and not starting.done():
            told = str((await timed(call()))[1])
        return told

    calls = (store.ping, lambda: store.accept([message()]), store.stats, another.open)
    assert set(await asyncio.gather(*map(hears, calls))) == {loading}
    await starting
    await asyncio.wait_for(eventually_accepts(store), 60)


async def test_a_server_that_cannot_write_to_its_disk_is_told_of(
    store: RedisStore, server: RedisServer, tmp_path: Path
) -> None:
    (tmp_path / "dump.rdb").mkdir()  # in the way
    await server.command("CONFIG", "SET", "save", "3600 1000000")
    await server.command("BGSAVE")
    while "'rdb_last_bgsave_status': 'err'" not in str(await server.command("INFO", "persistence")):
        await asyncio.sleep(0.01)
    for call in (store.ping(), store.accept([message()]), store.commit(Transaction(partition="00"))):
        with pytest.raises(StoreUnavailable, match="cannot write to its disk"):
            await call


async def looked(store: RedisStore, server: RedisServer, times: int) -> None:
    """Wait for this many looks at the completeness of the data since the start."""
    while int(cast("bytes | None", await server.command("GET", "askfirst:looks")) or 0) < times:
        with contextlib.suppress(StoreUnavailable):
            await store.run_timers()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["emptied", "begun anew", "behind"])
async def test_loss_of_stored_data_is_noticed(
    server: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    store = RedisStore(server.url)
    await store.open()
    await looked(store, server, 2)
    match how:
        case "emptied":
            await server.command("FLUSHALL")
        case "begun anew":
            await server.kill()
            shutil.rmtree(tmp_path / "appendonlydir")
            await server.start()
        case "behind":
            await server.command("SET", "askfirst:looks", 0)
    await looked(store, server, 2)
    assert [text for name, _, text in caplog.record_tuples if name == "askfirst.store"] == [
        "Redis has lost what it had stored, all of it or the latest: open questions, messages and replies that were "
        "acknowledged may be gone. Set appendonly to yes, and see its log for why it began anew."
    ]
    assert await server.command("GET", "askfirst:format") == str(FORM).encode()
    await store.close()


@pytest.mark.parametrize("put_back", [True, False])
async def test_an_older_copy_is_noticed_by_its_stamps(
    server: RedisServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, put_back: bool
) -> None:
    """The counter of looks is the same in a copy of this minute, but the clock of a partition is not."""
    store = RedisStore(server.url, ack_seconds=15, timings=RedisTimings(work_seconds=30.0, watch_seconds=0.0))
    await store.open()
    await store.accept([message()])
    await store.run_timers()
    files = tmp_path / "appendonlydir"
    if put_back:
        await asyncio.to_thread(shutil.copytree, files, tmp_path / "copy")
    await store.accept([message()])
    await server.kill()
    if put_back:
        shutil.rmtree(files)
        (tmp_path / "copy").rename(files)
    await server.start()
    await eventually_accepts(store)
    for _ in range(3):
        await store.run_timers()
    assert caplog.text.count("Redis has lost what it had stored") == int(put_back)
    await store.close()


async def test_a_restart_that_keeps_everything_is_no_loss(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = RedisStore(server.url)
    await store.open()
    await looked(store, server, 1)
    await server.kill()
    await server.start()
    await looked(store, server, 3)
    assert [text for name, _, text in caplog.record_tuples if name == "askfirst.store"] == []
    await store.close()


async def test_call_with_a_lost_answer_is_not_repeated(server: RedisServer) -> None:
    """Redis ran the call, and the connection is cut before the answer: a read by the caller finds a single effect."""
    async with Cutting(server.url) as wire:
        store = RedisStore(wire.url, ack_seconds=5)
        await store.open()
        await store.commit(Transaction(partition="00"))  # and the server knows the scripts
        await store.accept([message()])
        put = Transaction(partition="00", puts={"r": Put(1)}, appends=[("log", "line")])
        event = Incoming(conversation="c", event_ids=("e",), body={})
        for call in (lambda: store.commit(put), lambda: store.accept([event])):
            wire.cut.set()
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                await call()
        record = (await store.get([Key("00", "r")]))[Key("00", "r")]
        assert (record.version, len(await store.read(Key("00", "log")))) == (1, 1)
        assert await store.accept([event]) == [False]
        assert (await store.stats()).waiting == 2
        await store.close()


async def test_five_hundred_at_once_find_connections(store: RedisStore) -> None:
    keys = [Key("00", f"r{n}") for n in range(500)]
    await asyncio.gather(
        *(store.commit(Transaction(partition="00", puts={key.name: Put(1)})) for key in keys),
        *(store.get([key]) for key in keys),
    )
    assert len(await store.scan("r")) == 500


async def test_replica_takes_no_writes_until_it_is_promoted(store: RedisStore, server: RedisServer) -> None:
    await store.accept([message()])
    await server.command("REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(StoreUnavailable, match="replica"):
        await store.accept([message()])
    with pytest.raises(StoreUnavailable, match="replica"):
        await store.commit(Transaction(partition="00", puts={"r": Put(1)}))
    await server.command("REPLICAOF", "NO", "ONE")
    await asyncio.wait_for(eventually_accepts(store), 60)


async def test_full_redis_takes_decisions_and_refuses_new_messages(store: RedisStore, server: RedisServer) -> None:
    await store.accept([message("before")])
    part = QueuedPart(part_id="p", conversation="before", body={})
    partition = store.partition("before")
    await store.commit(Transaction(partition=partition, parts=[part]))
    await server.command("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(Overloaded, match="no memory"):
        await store.accept([message(refusable=True)])
    with pytest.raises(StoreUnavailable, match="raise maxmemory"):
        await store.commit(Transaction(partition=partition, puts={"ask": Put(1)}))
    assert not await store.has_headroom()
    press = Incoming(conversation="before", event_ids=(), body={}, decides=True)
    assert await store.accept([press]) == [True]
    [pointed] = await store.pending_decisions()
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


async def test_waiting_worker_is_served_after_lost_notifications(store: RedisStore, server: RedisServer) -> None:
    waiting = asyncio.create_task(store.lease("w", ["turn"], wait_seconds=20))
    await store.ping()
    await server.command("CLIENT", "KILL", "TYPE", "pubsub")
    await store.accept([message()])
    assert await asyncio.wait_for(waiting, 15) is not None


async def test_news_comes_from_other_processes(store: RedisStore, server: RedisServer) -> None:
    other = RedisStore(server.url, ack_seconds=15)
    await other.open()
    waiting = asyncio.create_task(store.lease("w", ["turn"], wait_seconds=20))
    entries = store.watch(Key("00", "log"))
    watching = asyncio.ensure_future(anext(entries))
    while await server.command("PUBSUB", "NUMSUB", "askfirst:news") != [b"askfirst:news", 2]:
        pass
    await other.accept([message()])
    await other.commit(Transaction(partition="00", appends=[("log", "line")]))
    assert await asyncio.wait_for(waiting, 15) is not None
    assert (await asyncio.wait_for(watching, 15)).value == "line"
    await entries.aclose()
    await other.close()


async def test_line_that_is_no_text_does_not_block_the_lane(store: RedisStore, server: RedisServer) -> None:
    """A reader of the line fails; a lease of the lane passes."""
    await store.commit(Transaction(partition=store.partition("c"), appends=[("said/c", 1)]))
    await store.accept([message()])
    [log] = cast("list[bytes]", await server.command("KEYS", "*log*said/c"))
    await server.command("RPUSH", log, b'0 "\xff"')
    lease = await store.lease("w", ["turn"], prefetch=Prefetch(log="said", last=9))
    assert lease is not None
    assert [line.isascii() for line in lease.lines] == [True, False]
