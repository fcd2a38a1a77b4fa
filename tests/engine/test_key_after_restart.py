"""A bot confirms an action once after a restart, with the key that its store has kept."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from channels import MissingSetting
from gateway.channel_agent import NotAllowed
from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from gateway.stored import keys
from tests.engine.bots import Invoices

pytestmark = pytest.mark.both_stores

SECRET = secrets.token_urlsafe(32)


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASKFIRST_SECRET", raising=False)


@pytest.fixture
def opened(
    kept_on: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Store]:
    """Another object of the same store, each time."""
    if kept_on == "sqlite":
        return lambda: SqliteStore(tmp_path / "bot.db")
    monkeypatch.setenv("ASKFIRST_SECRET", SECRET)
    url, own = request.getfixturevalue("redis_url"), request.getfixturevalue("prefix")
    return lambda: RedisStore(url, prefix=own, ack_seconds=5.0)


@pytest.mark.parametrize("answer", ["a word", "a code", "an id", "a button"])
async def test_an_open_action_is_confirmed_once_after_a_restart(opened: Callable[[], Store], answer: str) -> None:
    invoices = Invoices()
    async with invoices.bot(store=opened()) as bot:
        (action,) = (await bot.ask_channel("ana", "delete INV-1")).pending
        context = bot._running().context  # type: ignore[attr-defined]
        (line,) = await context.store.read(keys.key(context.store, action.conversation, keys.visible_log), last=1)
        token = line.value["buttons"][0]["token"]
    which = {
        "a code": {"code": action.code}, "an id": {"action_id": action.pending_action_id}, "a button": {"token": token}
    }.get(answer)  # fmt: skip
    for said in ("Invoice INV-1 is deleted", "This is already done"):
        async with invoices.bot(store=opened()) as bot:
            if which is not None:
                result = await bot.decide("app:-:ana", "confirm", **which)
            else:
                result = await bot.ask_channel("ana", "yes")
            assert result.content.startswith(said)
    assert invoices.deleted == ["INV-1"]


async def test_another_key_runs_nothing(opened: Callable[[], Store], monkeypatch: pytest.MonkeyPatch) -> None:
    invoices = Invoices()
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
async def test_a_file_has_one_key_however_it_is_named(tmp_path: Path, opened: Callable[[], Store]) -> None:
    invoices = Invoices()
    async with invoices.bot(store=f"sqlite:///{tmp_path / 'bot.db'}") as bot:
        (action,) = (await bot.ask_channel("ana", "delete INV-1")).pending
    async with invoices.bot(store=opened()) as bot:
        await bot.decide("app:-:ana", "confirm", action_id=action.pending_action_id)
    assert invoices.deleted == ["INV-1"]
    secret = tmp_path / "bot.db.secret"
    assert (len(secret.read_text()), secret.stat().st_mode & 0o777) == (43, 0o600)


@pytest.mark.parametrize("kept_on", ["sqlite"], indirect=True)
async def test_a_store_in_memory_leaves_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    invoices = Invoices()
    async with invoices.bot(store=SqliteStore(":memory:")) as bot:
        await bot.ask_channel("ana", "delete INV-1")
        assert (await bot.ask_channel("ana", "yes")).content == "Invoice INV-1 is deleted."
    assert list(tmp_path.iterdir()) == []
