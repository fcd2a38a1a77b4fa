"""After the upgrade an event without a seal decides nothing: in a file at once, in Redis once older processes ended."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, closing
from datetime import timedelta
from itertools import count
from pathlib import Path
from sqlite3 import connect
from typing import Any, TypeAlias

import pytest
from redis import Redis

from channels import Json
from gateway.engine.context import EngineContext
from gateway.pending.actions import ConversationActions
from gateway.pending.seal import Keyring
from gateway.pending.upgrade import upgrade
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from gateway.store.types import Incoming
from gateway.tools.pending_action import PendingAction
from tests.fakes.telegram import User
from tests.store.conftest import redis_url
from tests.upgrade.books import Books
from tests.upgrade.loading import load_redis, load_sqlite, unpack
from tests.upgrade.world import Phones, World, open_world

__all__ = ["redis_url"]

Start: TypeAlias = Callable[[], AbstractAsyncContextManager[World]]

WRITTEN_BY = Path(__file__).with_name("f34d6b2")
TWO_DAYS = 2 * 86400.0


@pytest.fixture(params=["sqlite", "redis"])
async def left(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Start]:
    """What the older release left; this release is started on it as often as it is called."""
    fixture, prefix = unpack(WRITTEN_BY / f"{request.param}.json.xz"), f"forged-{secrets.token_hex(6)}"
    url = str(request.getfixturevalue("redis_url")) if request.param == "redis" else ""
    manifest = load_redis(fixture, url, prefix) if url else load_sqlite(fixture, tmp_path)
    try:
        async with Phones() as phones:
            for person in manifest.people:
                phones.join(User(*person))
            phones.go_on_from(manifest.numbers)

            def start() -> AbstractAsyncContextManager[World]:
                store = RedisStore(url, prefix=prefix, ack_seconds=15) if url else None
                now, secret = manifest.written_at + timedelta(seconds=5), fixture["secret"] if url else ""
                return open_world(tmp_path, Books(), phones, store=store, secret=secret, now=now)

            yield start
    finally:
        if url:
            with Redis.from_url(url) as redis:
                redis.delete(*redis.scan_iter(f"{prefix}:*", count=1000))


@pytest.fixture
async def world(left: Start) -> AsyncIterator[World]:
    """This release, started on a store of the older one, and idle."""
    async with left() as world:
        await world.idle()
        yield world


async def ask(world: World) -> PendingAction:
    """Somebody new is asked about an invoice."""
    person = world.phones.join(User(99_001, "Nora"))
    await world.says(person, person, 'delete_invoice {"invoice_id": "NEW-1"}')
    await world.idle()
    return next(each for each in (await world.actions()).values() if each.args["invoice_id"] == "NEW-1")


async def forge(world: World, action: PendingAction) -> None:
    """Put a yes without a seal where the older release would have put it."""
    body: dict[str, Json] = {
        "kind": "decide",
        "event_id": "forged",
        "action_id": action.pending_action_id,
        "person": action.requester,
        "intent": "confirm",
    }
    event = Incoming(conversation=action.conversation, event_ids=("forged",), body=body, decides=True)
    await world.gateway.store.accept([event])
    await world.gateway.engine.due()
    await world.idle()


async def test_an_event_without_a_seal_decides_nothing(world: World) -> None:
    if world.gateway.store.shared:
        await world.later(TWO_DAYS)
    action = await ask(world)
    before, letters = len(world.books.effects), len(await world.letters())
    await forge(world, action)
    assert (await world.actions())[action.pending_action_id].state == "pending"
    assert len(world.books.effects) == before
    (letter,) = (await world.letters())[letters:]
    assert str(letter["reason"]).endswith("made by somebody without the key")


@pytest.mark.parametrize("left", ["redis"], indirect=True)
async def test_while_older_processes_may_run_what_they_write_counts(world: World) -> None:
    action = await ask(world)
    await forge(world, action)
    assert (await world.actions())[action.pending_action_id].state == "done"


@pytest.mark.parametrize("left", ["sqlite"], indirect=True)
async def test_a_replayed_event_of_the_older_release_decides_nothing(world: World) -> None:
    letters = await world.gateway.store.dead_letters()
    events = [letter.incoming for letter in letters if letter.incoming is not None]
    assert [event.body["replayed"] for event in events] == [True]
    keyring = world.gateway.engine.context.keyring
    assert all(keyring.is_genuine("event", event.conversation, event.body) for event in events)


@pytest.mark.parametrize("number", [1, 20])
async def test_an_upgrade_that_was_cut_off_is_gone_on_with(
    left: Start, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = EngineContext.actions, count(1)

    async def actions(self: EngineContext, *args: Any, **options: Any) -> ConversationActions:
        if options.get("first_form") and next(seen) == number:
            raise RuntimeError("killed")
        return await real(self, *args, **options)

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="killed"):
        patch.setattr(EngineContext, "actions", actions)
        async with left():
            pytest.fail("it was to be cut off")
    async with left() as world:
        await world.idle()
        found = Counter(action.state for action in (await world.actions()).values())
        assert found["pending"] > 100
        assert not any(action.detail == "tampered" for action in (await world.actions()).values())


async def test_what_waits_in_a_file_is_sealed_once(tmp_path: Path) -> None:
    fixture = unpack(WRITTEN_BY / "sqlite.json.xz")
    load_sqlite(fixture, tmp_path)
    path, keyring = tmp_path / "askfirst.db", Keyring([fixture["secret"].encode()])
    with closing(connect(path)) as db, db:
        db.execute("UPDATE part SET body = 'no JSON' WHERE seq = (SELECT min(seq) FROM part)")
    before = unsealed(path)
    assert set(before) == {"event", "part", "timer", "step", "dead"}
    await upgraded(path, keyring)
    assert unsealed(path) == {"part": 1, "dead": 1}, "one part cannot be read, and one letter is a mere payload"
    with closing(connect(path)) as db, db:
        values = ("forged", 1, "{}", 1, 1)
        db.execute("INSERT INTO event (conversation, stamp, body, pointed, wakes) VALUES (?, ?, ?, ?, ?)", values)
    await upgraded(path, keyring)
    assert unsealed(path) == {"part": 1, "dead": 1, "event": 1}


async def upgraded(path: Path, keyring: Keyring) -> None:
    async def rewrite(conversation: str, action_ids: frozenset[str]) -> None:
        """Leave the records as they are."""

    store = SqliteStore(path)
    await store.open()
    try:
        assert await upgrade(store, keyring, rewrite) <= await store.now()
    finally:
        await store.close()


def unsealed(path: Path) -> Counter[str]:
    """Count the rows without a seal, by their table."""
    columns = {"event": "body", "part": "body", "timer": "incoming", "step": "value", "dead": "held"}
    with closing(connect(path)) as db:
        found = ((table, text) for table in columns for (text,) in db.execute(f"SELECT {columns[table]} FROM {table}"))
        return Counter(table for table, text in found if '"mac":' not in text)
