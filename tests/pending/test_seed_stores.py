"""selectools' pending stores open by a path, a URL or an already open store, with the key of the owner."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from channels import MissingSetting
from gateway import Agent, ChannelAgent
from gateway.pending import InMemoryPendingStore, RedisPendingStore, RegexConfirmParser, SqlitePendingStore
from gateway.pending.seed.base import PendingStore
from gateway.store.errors import Conflict, StoreUnavailable
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from gateway.store.transaction import Transaction
from gateway.testing import ScriptedProvider
from tests.pending.conftest import SECRET, Place, Ran, not_in_memory, stashed, status


async def test_two_stores_of_one_path_share_the_file_and_the_stashes(tmp_path: Path, ran: Ran) -> None:
    path = tmp_path / "pending.db"
    async with SqlitePendingStore(path) as one:
        async with SqlitePendingStore(f"sqlite:///{path}") as other:
            assert await one.open() is await other.open()
            await stashed(one, ran.deletes())
            assert status(await other.pop_if_confirmed("ana", "yes")) == "executed"
        await stashed(one, ran.deletes())
    assert ran.done == ["INV-42"]


async def test_a_file_keeps_its_own_secret_over_a_restart(tmp_path: Path, ran: Ran) -> None:
    async with SqlitePendingStore(tmp_path / "pending.db") as pending:
        await stashed(pending)
    async with SqlitePendingStore(tmp_path / "pending.db") as pending:
        pending.register_executor_factory("delete_invoice", ran.factory)
        assert status(await pending.pop_if_confirmed("ana", "yes")) == "executed"
    assert (tmp_path / "pending.db.secret").stat().st_mode & 0o077 == 0


async def test_a_store_that_is_handed_in_is_shared_and_stays_open(ran: Ran) -> None:
    store = SqliteStore(":memory:")
    await store.open()
    async with SqlitePendingStore(store) as pending:
        await stashed(pending, ran.deletes())
    async with SqlitePendingStore(store) as pending:
        assert status(await pending.pop_if_confirmed("ana", "yes")) == "executed"
    await store.ping()
    await store.close()


@pytest.mark.ledger("PEND-27")
async def test_redis_needs_the_secret_of_all_processes(redis_url: str, prefix: str) -> None:
    store = RedisStore(redis_url, prefix=prefix)
    with pytest.raises(MissingSetting, match="ASKFIRST_SECRET"):
        await RedisPendingStore(store).get("ana")
    with pytest.raises(ValueError, match="redis://"):
        RedisPendingStore("http://127.0.0.1:6379")
    with pytest.raises(ValueError, match=r"redis://.*'postgres'") as raised:
        RedisPendingStore("postgres://ana:hidden@host")
    assert "hidden" not in str(raised.value)


@pytest.mark.ledger("PEND-27", "ERR-08")
def test_missing_redis_package_gives_the_install_command() -> None:
    program = (
        "import sys; sys.modules['redis'] = None\n"
        "from gateway.pending import RedisPendingStore\n"
        "try:\n    RedisPendingStore('redis://localhost')\n"
        "except ImportError as error:\n    print(error)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'askfirst[redis]'" in run.stdout


@pytest.mark.ledger("PEND-27")
def test_redis_store_has_the_documented_defaults() -> None:
    options = inspect.signature(RedisPendingStore).parameters
    assert options["url"].default == "redis://localhost:6379/0"
    assert (options["default_ttl_seconds"].default, options["max_entries"].default) == (60.0, 5000)


@not_in_memory
async def test_stash_under_another_key_counts_as_tampered(
    place: Place, monkeypatch: pytest.MonkeyPatch, ran: Ran
) -> None:
    await stashed(await place.open())
    monkeypatch.setenv("ASKFIRST_SECRET", SECRET[::-1])
    other = await place.open(elsewhere=True)
    other.register_executor_factory("delete_invoice", ran.factory)
    outcome = await other.pop_if_confirmed("ana", "yes")
    assert outcome is not None and outcome.detail == "tampered"
    assert ran.done == []


async def test_the_store_that_a_bot_runs_on_holds_both(place: Place, pending: PendingStore, ran: Ran) -> None:
    """A bot's own engine on the same store: neither sees the other's questions, and each goes on."""
    store = await pending.open()
    bot = ChannelAgent(Agent(provider=ScriptedProvider(["hello", "you are welcome"])), store=store)
    async with bot:
        action = await stashed(pending, ran.deletes())
        assert (await bot.ask_channel("ana", "hi")).content == "hello"
        assert (await bot.ask_channel("ana", "yes")).content == "you are welcome"
        assert await pending.get("ana") == action
        assert status(await pending.pop_if_confirmed("ana", "yes")) == "executed"
    place.forget()  # the bot has closed its store


async def test_a_yes_after_days_of_rest_is_late(tmp_path: Path, ran: Ran) -> None:
    """The store's own clock would go on from the last time."""
    store = SqliteStore(tmp_path / "pending.db")
    store.offset_seconds = -3 * 86400.0
    async with SqlitePendingStore(store) as pending:
        await stashed(pending)
    await store.close()
    async with SqlitePendingStore(tmp_path / "pending.db") as pending:
        pending.register_executor_factory("delete_invoice", ran.factory)
        outcome = await pending.pop_if_confirmed("ana", "yes")
        assert outcome is not None and outcome.status == "expired"
    assert ran.done == []


async def test_the_first_calls_may_come_at_once(ran: Ran) -> None:
    pending = InMemoryPendingStore()
    await asyncio.gather(*(stashed(pending, ran.deletes(user), user) for user in ("ana", "bob", "eva")))
    outcomes = await asyncio.gather(*(pending.pop_if_confirmed(user, "yes") for user in ("ana", "bob", "eva")))
    assert list(map(status, outcomes)) == ["executed"] * 3
    assert sorted(ran.done) == ["ana", "bob", "eva"]
    await pending.close()


async def test_call_under_way_at_the_close_does_not_reopen_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reopened store would never be closed, and the file would stay taken."""
    pending = SqlitePendingStore(tmp_path / "pending.db")
    await stashed(pending)
    store = await pending.open()

    async def closes(transaction: Transaction) -> None:
        await pending.close()
        raise Conflict("somebody else was faster")

    monkeypatch.setattr(store, "commit", closes)
    with pytest.raises(StoreUnavailable, match="not open"):
        await pending.drop("ana")
    monkeypatch.undo()
    assert pending._opened is None
    other = SqliteStore(tmp_path / "pending.db")
    await other.open()
    await other.close()


async def test_a_yes_that_is_read_at_the_end_does_not_open_it_again(tmp_path: Path, ran: Ran) -> None:
    reading, go_on, loop = asyncio.Event(), threading.Event(), asyncio.get_running_loop()

    class Slow(RegexConfirmParser):
        def is_confirm(self, message: str) -> bool:
            loop.call_soon_threadsafe(reading.set)
            assert go_on.wait(60)
            return super().is_confirm(message)

    pending = SqlitePendingStore(tmp_path / "pending.db", parser=Slow())
    await stashed(pending, ran.deletes())
    popping = [asyncio.create_task(pending.pop_if_confirmed("ana", text)) for text in ("yes", "hello")]
    await reading.wait()
    await pending.close()
    go_on.set()
    with pytest.raises(StoreUnavailable, match="closed while a yes was read"):
        await popping[0]
    assert await popping[1] is None
    other = SqliteStore(tmp_path / "pending.db")
    await other.open()
    await other.close()
    pending.register_executor_factory("delete_invoice", ran.factory)
    assert status(await pending.pop_if_confirmed("ana", "yes")) == "executed"
    await pending.close()
    assert ran.done == ["INV-42"]


async def test_close_waits_for_the_running_executor() -> None:
    pending, begun, go_on = InMemoryPendingStore(), asyncio.Event(), asyncio.Event()

    async def slow() -> str:
        begun.set()
        await go_on.wait()
        return "done"

    await stashed(pending, slow)
    popping = asyncio.create_task(pending.pop_if_confirmed("ana", "yes"))
    await begun.wait()
    closing = asyncio.create_task(pending.close())
    await asyncio.sleep(0)
    go_on.set()
    assert status(await popping) == "executed"
    await closing
