"""The bot's own code calls on one process, and another process on the same store runs the turn."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import pytest

from channels import Address, AskfirstError, Message, Person
from channels.events import event_to_json
from gateway import Agent, ChannelAgent
from gateway.access import AllowList
from gateway.assembly import Storage, assemble, open_store
from gateway.engine.engine import Engine
from gateway.observe.teller import Teller
from gateway.providers.base import ProviderError
from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.store.types import Incoming, Lease
from gateway.testing import ScriptedProvider
from gateway.testing.faulty_store import FaultyStore
from tests.engine.bots import Invoices
from tests.engine.rig import KEYS, user_lines

pytestmark = pytest.mark.both_stores

DOWN = ProviderError("openai", "503", retryable=False)
HERE = "agent/app:-:user:ana"


class Late(FaultyStore):
    """The way to the store of a process that always comes too late for a lane."""

    async def lease(self, *args: Any, **options: Any) -> Lease | None:
        return None


@contextlib.asynccontextmanager
async def process(bot: ChannelAgent, store: Store, files: Path) -> AsyncIterator[Engine]:
    """One process's engine; its loops are not started."""
    engine = assemble(
        bot, Storage(store, KEYS, files), {}, allowed=AllowList(["*"]), events=Teller(observers=bot.observers)
    )
    async with bot.attached(engine.runtime):
        try:
            yield engine
        finally:
            await engine.stop(0)


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = open_store("sqlite:///:memory:")
    await store.open()
    yield store
    await store.close()


@contextlib.asynccontextmanager
async def beside_a_server(
    served: ChannelAgent, calling: ChannelAgent, store: Store, files: Path
) -> AsyncIterator[None]:
    """One bot is served by a process that takes every lane; the other is called in a process that takes none."""
    late = cast("Store", Late(store))
    async with process(served, store, files) as server, process(calling, late, files):
        server.start()
        yield


async def test_the_result_is_the_same_wherever_the_turn_runs(store: Store, tmp_path: Path) -> None:
    here, there, calling = Invoices(), Invoices(), Invoices()
    async with here.bot() as bot:
        expected = await bot.ask_channel("ana", "delete INV-1")
    bot = calling.bot()
    async with beside_a_server(there.bot(), bot, store, tmp_path):
        asked = await bot.ask_channel("ana", "delete INV-1")
        (action,) = asked.pending
        assert action.code in asked.content and action.shown_at is not None
        same = ("stop_reason", "usage", "iterations", "tool_calls", "messages")
        assert [getattr(asked, name) for name in same] == [getattr(expected, name) for name in same]
        assert [step.type for step in asked.trace] == [step.type for step in expected.trace] != []
        done = await bot.decide("app:-:ana", "confirm", action_id=action.pending_action_id)
        assert (done.content, done.stop_reason) == ("Invoice INV-1 is deleted.", "decided")
        answered = await bot.ask_channel("ana", "thanks")
        assert (answered.content, answered.stop_reason) == ("You said: thanks", "answered")
    assert (there.deleted, calling.deleted, len(calling.model.requests)) == (["INV-1"], [], 0)


async def test_calls_in_a_row_each_have_their_own_answer(store: Store, tmp_path: Path) -> None:
    bot = Invoices().bot()
    async with beside_a_server(Invoices().bot(), bot, store, tmp_path):
        results = await asyncio.gather(*(bot.ask_channel("ana", f"question {number}") for number in range(5)))
    assert [result.content for result in results] == [f"You said: question {number}" for number in range(5)]


async def test_waiting_for_a_slow_turn_seldom_asks_the_store(store: Store, tmp_path: Path) -> None:
    served, calling = Invoices(), Invoices()
    bot, wire = calling.bot(), Late(store)
    late = cast("Store", wire)
    async with process(served.bot(), store, tmp_path) as server, process(bot, late, tmp_path):
        server.start()
        asking = asyncio.create_task(bot.ask_channel("ana", "wait"))
        await served.model.waiting.wait()
        before = wire.calls.total()
        await asyncio.sleep(0.4)
        assert wire.calls.total() - before < 60
        served.model.let_go.set()
        assert (await asking).content == "You said: wait"


async def test_the_model_down_there_is_raised_here(store: Store, tmp_path: Path) -> None:
    script = ScriptedProvider([DOWN, "Both read."])
    bot = Invoices().bot()
    async with beside_a_server(ChannelAgent(Agent(provider=script)), bot, store, tmp_path):
        with pytest.raises(ProviderError) as down:
            await bot.ask_channel("ana", "one")
        assert (str(down.value), down.value.retryable) == (str(DOWN), False)
        assert (await bot.ask_channel("ana", "two")).content == "Both read."
        assert user_lines(script) == ["one", "two"]


async def test_an_authors_mistake_there_is_named_here_and_not_quoted(store: Store, tmp_path: Path) -> None:
    def instructions(ctx: object) -> str:
        raise ZeroDivisionError("hunter2")

    bot = Invoices().bot()
    broken = ChannelAgent(Agent(provider=ScriptedProvider([]), instructions=instructions))
    async with beside_a_server(broken, bot, store, tmp_path):
        with pytest.raises(AskfirstError, match=r"in another process \(ZeroDivisionError\).*dead list") as failed:
            await bot.ask_channel("ana", "one")
    assert "hunter2" not in str(failed.value)
    assert len(await store.dead_letters()) == 1


async def test_a_process_that_died_with_the_turn_is_not_waited_for(store: Store, tmp_path: Path) -> None:
    invoices = Invoices()
    async with process(bot := invoices.bot(), store, tmp_path):
        ana = Person(channel="app", account="-", user_id="ana")
        address = Address(channel="app", account="-", place="user:ana")
        first = Message(event_ids=(), address=address, person=ana, text="before")
        await store.accept([Incoming(conversation=HERE, event_ids=("before",), body=cast("Any", event_to_json(first)))])
        assert await store.lease("dies", ["turn"], lease_seconds=0.2) is not None
        assert (await bot.ask_channel("ana", "after")).content.endswith("You said: after")


# ── a real one ──


def serve(pipe: Connection, url: str, prefix: str, files: Path) -> None:
    """What the other process does, until somebody says that it is enough."""

    async def main() -> None:
        store = RedisStore(url, prefix=prefix, ack_seconds=5)
        await store.open()
        async with process(Invoices().bot(), store, files) as engine:
            engine.start()
            pipe.send("ready")
            await asyncio.to_thread(pipe.recv)
        await store.close()

    asyncio.run(main())


@pytest.mark.parametrize("kept_on", ["redis"], indirect=True)
async def test_ask_channel_gets_its_answer_from_another_process(redis_url: str, prefix: str, tmp_path: Path) -> None:
    spawning = multiprocessing.get_context("forkserver")
    ours, theirs = spawning.Pipe()
    other = spawning.Process(target=serve, args=(theirs, redis_url, prefix, tmp_path), daemon=True)
    await asyncio.to_thread(other.start)
    assert await asyncio.to_thread(ours.recv) == "ready"
    store = RedisStore(redis_url, prefix=prefix, ack_seconds=5)
    await store.open()
    calling = Invoices()
    async with process(bot := calling.bot(), cast("Store", Late(store)), tmp_path):
        (action,) = (await bot.ask_channel("ana", "delete INV-1")).pending
        done = await bot.decide("app:-:ana", "confirm", action_id=action.pending_action_id)
        assert (done.content, calling.deleted) == ("Invoice INV-1 is deleted.", [])
    await store.close()
    ours.send("enough")
    await asyncio.to_thread(other.join)
    assert other.exitcode == 0
