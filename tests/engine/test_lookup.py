"""A caller's words find one action, and an unreadable record in the store hides only itself."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from channels import Json, MissingSetting
from gateway import ChannelAgent, OutcomeUnknown
from gateway.channel_agent import NotAllowed
from gateway.operations.base import NotDone
from gateway.operations.operator import Operator
from gateway.store.base import Store
from gateway.store.form import FORM
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Incoming
from gateway.stored import keys
from gateway.testing import ChatDriver
from gateway.tools import Approvers, Confirm
from gateway.tools.pending_action import PendingAction
from tests.engine.bots import Invoices
from tests.stored import action_of

ZOE = "agent/app:-:user:zoe"


@pytest.fixture
def one_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance gives the first action of every conversation the same code, 7777."""
    monkeypatch.setattr(secrets, "choice", lambda letters: "7")


def shared_of(bot: ChannelAgent) -> Any:
    return bot._running().context  # type: ignore[attr-defined]


async def names_of(bot: ChannelAgent, action: PendingAction) -> dict[str, str]:
    """Return the id, the code and the token of a button of an action."""
    store = shared_of(bot).store
    (line,) = await store.read(keys.key(store, action.conversation, keys.visible_log), last=1)
    token = line.value["buttons"][0]["token"]
    return {"action_id": action.pending_action_id, "code": action.code, "token": token}


async def keep(store: Store, **records: Json) -> None:
    """Store records of an unrelated person; `__` stands for the slash in the names."""
    puts = {name.replace("__", "/"): Put(value) for name, value in records.items()}
    await store.commit(Transaction(partition=store.partition(ZOE), puts=puts))


async def spoil(store: Store, name: str) -> None:
    """Replace the named record by bytes that are no text, let alone JSON."""
    await store.commit(Transaction(partition=store.partition(ZOE), puts={name: Put("whole")}))
    if isinstance(store, SqliteStore):
        await store._writer.submit(
            lambda db, at: db.execute("UPDATE record SET value = CAST(? AS TEXT) WHERE name = ?", (b"{\xff", name))
        )
    else:
        assert isinstance(store, RedisStore)
        base = store._server.keys.base(store.partition(ZOE))
        async with Redis.from_url(store._url, driver_info=None) as redis:
            assert await redis.hset(f"{base}:record:{name}", "value", b"{\xff") == 0


# ── by code ──


@pytest.mark.usefixtures("one_code")
async def test_a_code_that_two_open_actions_have_decides_neither(invoices: Invoices) -> None:
    async with invoices.bot() as bot:
        asked = [
            (await bot.ask_channel("ana", f"delete INV-{n}", conversation_id=f"case {n}")).pending[0] for n in (1, 2)
        ]
        assert {action.code for action in asked} == {"7777"}
        for intent in ("confirm", "cancel"):
            with pytest.raises(NotAllowed, match=r"2 open actions of app:-:ana .* conversation= or action_id="):
                await bot.decide("app:-:ana", intent, code="7777")
        assert invoices.deleted == []
        await bot.decide("app:-:ana", "confirm", code="7777", conversation=asked[1].conversation)
        assert invoices.deleted == ["INV-2"]
        await bot.decide("app:-:ana", "confirm", code="7777")
        assert invoices.deleted == ["INV-2", "INV-1"]


@pytest.mark.usefixtures("one_code")
async def test_a_code_is_looked_up_among_the_persons_own(invoices: Invoices) -> None:
    async with invoices.bot() as bot:
        for person in ("ana", "bob"):
            await bot.ask_channel(person, f"delete of-{person}")
        await bot.decide("app:-:bob", "confirm", code="7777")
        assert invoices.deleted == ["of-bob"]
        with pytest.raises(NotAllowed, match="no such action"):
            await bot.decide("app:-:eve", "confirm", code="7777")
        assert (await bot.decide("app:-:bob", "confirm", code="7777")).content == "This is already done."


async def test_an_approver_names_an_action_by_its_code(invoices: Invoices) -> None:
    confirm = Confirm("Delete {invoice_id}?", approvers=Approvers(people=["test:bot:boss"]))
    async with ChatDriver(invoices.bot(confirm=confirm)) as chat:
        await chat.says("ana", "delete INV-1", group="ops")
        context = shared_of(chat.bot)
        (action,) = (await context.actions("agent/test:bot:#ops")).open
        with pytest.raises(NotAllowed):
            await chat.bot.decide("test:bot:ana", "confirm", code=action.code)
        await chat.bot.decide("test:bot:boss", "confirm", code=action.code)
    assert invoices.deleted == ["INV-1"]


@pytest.mark.parametrize("named", ["action_id", "code", "token"])
async def test_an_action_of_another_conversation_is_not_found(invoices: Invoices, named: str) -> None:
    async with invoices.bot() as bot:
        (action,) = (await bot.ask_channel("ana", "delete INV-1")).pending
        which = await names_of(bot, action)
        for elsewhere in (ZOE, "nowhere"):
            with pytest.raises(NotAllowed):
                await bot.decide("app:-:ana", "confirm", **{named: which[named]}, conversation=elsewhere)
        assert invoices.deleted == []
        await bot.decide("app:-:ana", "confirm", **{named: which[named]}, conversation=action.conversation)
        assert invoices.deleted == ["INV-1"]


# ── unreadable records ──

UNREADABLE: list[Json] = ["{", 7, [], {}, {"form": FORM}, {"form": FORM + 1}, {"conversation": "x"}, {"state": "maybe"}]


@pytest.mark.parametrize("named", ["action_id", "code", "token"])
async def test_unreadable_records_prevent_no_decision(invoices: Invoices, named: str) -> None:
    async with invoices.bot() as bot:
        store = shared_of(bot).store
        for number, value in enumerate(UNREADABLE):
            await keep(store, **{f"action__{number:032}": value, f"open__agent__app:-:{number}": value})
        await spoil(store, f"action/{'9' * 32}")
        await spoil(store, f"open/{ZOE}")
        (action,) = (await bot.ask_channel("ana", "delete INV-1")).pending
        which = await names_of(bot, action)
        await bot.decide("app:-:ana", "confirm", **{named: which[named]})
        assert invoices.deleted == ["INV-1"]


@pytest.mark.parametrize("value", [*UNREADABLE, "spoilt"], ids=str)
async def test_an_action_that_cannot_be_read_is_not_decided(invoices: Invoices, value: Json) -> None:
    async with invoices.bot() as bot:
        store, action_id = shared_of(bot).store, "0" * 32
        if value == "spoilt":
            await spoil(store, f"action/{action_id}")
        else:
            await keep(store, **{f"action__{action_id}": value})
        with pytest.raises(NotAllowed):
            await bot.decide("app:-:zoe", "confirm", action_id=action_id)


@pytest.mark.parametrize("value", [{"form": FORM + 1}, "{", 7, [], {"open": "x"}], ids=str)
async def test_an_action_without_a_readable_index_is_not_decided(invoices: Invoices, value: Json) -> None:
    async with invoices.bot() as bot:
        (action,) = (await bot.ask_channel("zoe", "delete INV-1")).pending
        await keep(shared_of(bot).store, **{f"open__{ZOE}".replace("/", "__"): value})
        told = await bot.decide("app:-:zoe", "confirm", action_id=action.pending_action_id)
        assert "changed from outside the chat" in told.content
    assert invoices.deleted == []


async def test_action_in_doubt_is_listed_first(invoices: Invoices) -> None:
    async with invoices.bot() as bot:
        context = shared_of(bot)
        operator = Operator(context.store, context.channels, context.keyring, bot="agent")
        await keep(context.store, action__00={"form": FORM + 1}, action__01=[])
        await spoil(context.store, "action/03")
        (action,) = (await bot.ask_channel("ana", "delete INV-1")).pending
        (doubted,) = (await bot.ask_channel("bob", "delete INV-2")).pending
        invoices.error = OutcomeUnknown("hm")
        await bot.decide("app:-:bob", "confirm", action_id=doubted.pending_action_id)
        listed = [(told["id"], told["state"]) for told in await operator.pending()]
        assert listed == [
            (doubted.pending_action_id, "unknown"),
            *((unreadable, "unreadable") for unreadable in ("00", "01", "03")),
            (action.pending_action_id, "pending"),
        ]
        for operation in (operator.action, operator.cancel):
            with pytest.raises(NotDone, match="action 03: seal check failed"):
                await operation("03")


SECRET = secrets.token_urlsafe(32)


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASKFIRST_SECRET", raising=False)


@pytest.fixture
def opened(
    kept_on: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Store]:
    """Return the opener; each call makes another object."""
    if kept_on == "sqlite":
        return lambda: SqliteStore(tmp_path / "bot.db")
    monkeypatch.setenv("ASKFIRST_SECRET", SECRET)
    url, own = request.getfixturevalue("redis_url"), request.getfixturevalue("prefix")
    return lambda: RedisStore(url, prefix=own, ack_seconds=5.0)


@pytest.mark.parametrize("answer", ["a word", "code", "action_id", "token"])
@pytest.mark.both_stores
async def test_an_open_action_is_confirmed_once_after_a_restart(
    opened: Callable[[], Store], answer: str, invoices: Invoices
) -> None:
    async with invoices.bot(store=opened()) as bot:
        (action,) = (await bot.ask_channel("ana", "delete INV-1")).pending
        names = await names_of(bot, action)
    which = {name: names[name] for name in names if name == answer}
    for said in ("Invoice INV-1 is deleted", "This is already done"):
        async with invoices.bot(store=opened()) as bot:
            if which:
                result = await bot.decide("app:-:ana", "confirm", **which)
            else:
                result = await bot.ask_channel("ana", "yes")
            assert result.content.startswith(said)
    assert invoices.deleted == ["INV-1"]


@pytest.mark.both_stores
async def test_action_sealed_with_another_key_is_not_run(
    opened: Callable[[], Store], monkeypatch: pytest.MonkeyPatch, invoices: Invoices
) -> None:
    async with invoices.bot(store=opened()) as bot:
        (action,) = (await bot.ask_channel("ana", "delete INV-1")).pending
    monkeypatch.setenv("ASKFIRST_SECRET", secrets.token_urlsafe(32))
    async with invoices.bot(store=opened()) as bot:
        with contextlib.suppress(NotAllowed):
            await bot.decide("app:-:ana", "confirm", action_id=action.pending_action_id)
    assert invoices.deleted == []


@pytest.mark.parametrize("kept_on", ["redis"], indirect=True)
async def test_a_store_that_keeps_no_secret_needs_one(
    opened: Callable[[], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ASKFIRST_SECRET")
    bot = Invoices().bot(store=opened())
    with pytest.raises(MissingSetting, match="ASKFIRST_SECRET: RedisStore outlives this process"):
        await bot.__aenter__()


@pytest.mark.parametrize("kept_on", ["sqlite"], indirect=True)
async def test_a_file_has_one_key_however_it_is_named(
    tmp_path: Path, opened: Callable[[], Store], invoices: Invoices
) -> None:
    async with invoices.bot(store=f"sqlite:///{tmp_path / 'bot.db'}") as bot:
        (action,) = (await bot.ask_channel("ana", "delete INV-1")).pending
    async with invoices.bot(store=opened()) as bot:
        await bot.decide("app:-:ana", "confirm", action_id=action.pending_action_id)
    assert invoices.deleted == ["INV-1"]
    secret = tmp_path / "bot.db.secret"
    assert (len(secret.read_text()), secret.stat().st_mode & 0o777) == (43, 0o600)


@pytest.mark.parametrize("kept_on", ["sqlite"], indirect=True)
async def test_a_store_in_memory_leaves_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoices: Invoices
) -> None:
    monkeypatch.chdir(tmp_path)
    async with invoices.bot(store=SqliteStore(":memory:")) as bot:
        await bot.ask_channel("ana", "delete INV-1")
        assert (await bot.ask_channel("ana", "yes")).content == "Invoice INV-1 is deleted."
    assert list(tmp_path.iterdir()) == []


@pytest.mark.both_stores
async def test_decision_without_the_key_counts_in_no_restart(opened: Callable[[], Store], invoices: Invoices) -> None:
    """A person with the store and without the key removes every sign of a seal, and waits for a restart."""

    def decides(action: PendingAction) -> Incoming:
        body = {
            "kind": "decide",
            "action_id": action.pending_action_id,
            "intent": "confirm",
            "person": action.requester,
            "event_id": f"forged {action.code}",
        }
        return Incoming(conversation=action.conversation, event_ids=(f"forged {action.code}",), body=body, decides=True)

    async with invoices.bot(store=opened()) as bot:
        (first,) = (await bot.ask_channel("ana", "delete INV-1")).pending
    store = opened()
    await store.open()
    for prefix in ("action/", "open/", "first_form"):
        for key, _ in await store.scan(prefix):
            await store.commit(Transaction(partition=key.partition, deletes=[key.name]))
    await store.accept([decides(first)])
    await store.close()
    async with invoices.bot(store=opened()) as bot:
        (second,) = (await bot.ask_channel("ana", "delete INV-2")).pending
        store = bot._running().context.store  # type: ignore[attr-defined]
        await store.accept([decides(second)])
        await bot.ask_channel("ana", "hello")
        reasons = [letter.reason for letter in await store.dead_letters()]
        [(_, record)] = await store.scan("action/")
    assert reasons == ["a decision that cannot be worked: seal check failed (not written with ASKFIRST_SECRET)"] * 2
    assert action_of(record.value).state == "pending"
    assert invoices.deleted == []
