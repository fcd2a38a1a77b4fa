"""Two processes run their loops on one store: due work happens once, and both keep one common pace."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, cast

import pytest

from channels import Address, AskfirstError, Message, Parsed, Person, Reply, Unavailable, Unreachable, WebhookResponse
from channels.channel import Pace
from channels.events import event_to_json
from gateway import Agent, ChannelAgent
from gateway.access import AllowList
from gateway.assembly import Storage, assemble, open_store
from gateway.engine.engine import Engine
from gateway.observe.teller import Teller
from gateway.providers.base import ProviderError
from gateway.store.base import Store
from gateway.store.errors import Conflict, Fenced, StoreUnavailable
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from gateway.store.types import Incoming, Lease
from gateway.testing import ScriptedProvider
from gateway.testing.doubles import FaultyStore
from gateway.wording import say
from tests.engine.bots import Invoices
from tests.engine.rig import KEYS, Platform, Rig, Worker, here, message, rig, until, user_lines

pytestmark = pytest.mark.both_stores

HOUR = 3600.0


class Pair:
    """Two processes with separate connections to the store, and the platform of both."""

    def __init__(self, files: Path, opened: Callable[[], Store], platform: Platform) -> None:
        self._files, self._opened, self.platform = files, opened, platform
        self.offset_seconds = 0.0
        self.workers: list[Worker] = []
        self.wires: list[FaultyStore] = []

    @contextlib.asynccontextmanager
    async def running(self, bot: ChannelAgent, processes: int = 2) -> AsyncIterator[None]:
        """Run the processes for the length of the block; work on the way then ends first."""
        async with contextlib.AsyncExitStack() as stack:
            stores: list[Store] = []
            for _ in range(processes):
                store = self._opened()
                if store not in stores:
                    await store.open()
                    stack.push_async_callback(store.close)
                    store.offset_seconds = self.offset_seconds
                stores.append(store)
            self.wires = [FaultyStore(store) for store in stores]
            platforms = {Platform.name: self.platform}
            self.workers = [Worker(bot, wire, platforms, self._files) for wire in self.wires]
            for worker in self.workers:
                stack.push_async_callback(worker.engine.stop)
                worker.engine.start()
            yield

    @property
    def store(self) -> Store:
        return cast("Store", self.wires[0])

    async def advance(self, seconds: float) -> None:
        self.offset_seconds += seconds
        for wire in self.wires:
            wire.offset_seconds = self.offset_seconds
        for worker in self.workers:
            await worker.engine.due()

    async def idle(self) -> None:
        while not all([await worker.engine.idle() for worker in self.workers]):
            await asyncio.sleep(0.002)

    async def shown(self, count: int, place: str = "ana") -> None:
        await until(lambda: len(self.platform.texts(place)) >= count)
        await self.idle()

    def calls(self, name: str) -> int:
        return sum(wire.calls[name] for wire in self.wires)


@pytest.fixture
def opened(kept_on: str, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Return the opener: with Redis a client for each process; with SQLite the file of a single process."""
    if kept_on == "redis":
        url, own = request.getfixturevalue("redis_url"), request.getfixturevalue("prefix")
        return lambda: RedisStore(url, prefix=own, ack_seconds=5.0)
    held: list[SqliteStore] = []

    def in_a_file() -> Store:
        if not held or held[-1]._open is None:
            held.append(SqliteStore(str(tmp_path / "askfirst.db")))
        return held[-1]

    return in_a_file


@pytest.fixture
def pair(opened: Callable[[], Store], tmp_path: Path) -> Pair:
    return Pair(tmp_path, opened, Platform())


async def hears(pair: Pair, text: str, *, by: str = "ana") -> None:
    await take(pair, message(by, text))


async def take(pair: Pair, *messages: Message) -> None:
    parsed = Parsed(events=messages, response=WebhookResponse())
    await pair.workers[0].engine.inbox.accept(pair.platform, parsed)


# ── due work ──


async def test_a_question_expires_once(pair: Pair) -> None:
    async with pair.running(Invoices().bot()):
        await hears(pair, "delete INV-1")
        await pair.shown(1)
        await asyncio.gather(pair.advance(HOUR), *(worker.engine.due() for worker in pair.workers))
        await pair.shown(3)
        assert [part.call for _, part in pair.platform.sent] == ["show", "show", "edit"]


async def test_a_turn_is_tried_again_once(pair: Pair) -> None:
    script = ScriptedProvider([ProviderError("openai", "503", retryable=False), "Here I am."])
    async with pair.running(ChannelAgent(Agent(provider=script))):
        await hears(pair, "hello")
        await pair.shown(1)
        await pair.advance(6)
        await pair.shown(2)
        assert pair.platform.texts() == [say("model_down", "en"), "Here I am."]
        script.assert_used_up()


async def test_delayed_notice_is_sent_once_when_due(pair: Pair) -> None:
    async with pair.running(Invoices().bot()):
        await pair.workers[0].engine.runtime.notify(here("ana"), Reply(text="Time for tea."), after_seconds=HOUR)
        await pair.advance(HOUR - 600)
        await pair.idle()
        assert pair.platform.texts() == []
        await asyncio.gather(pair.advance(601), *(worker.engine.due() for worker in pair.workers))
        await pair.shown(1)
        await pair.advance(HOUR)
        await pair.idle()
        assert pair.platform.texts() == ["Time for tea."]


async def test_work_due_during_an_outage_happens_once_afterwards(pair: Pair, invoices: Invoices) -> None:
    down = ProviderError("openai", "503", retryable=False)
    bot = ChannelAgent(Agent(provider=ScriptedProvider([down])))
    async with pair.running(invoices.bot()):
        await hears(pair, "delete INV-1")
        await pair.shown(1)
        for place, seconds in (("tea", 60.0), ("cake", 1800.0), ("supper", 2 * HOUR)):
            await pair.workers[1].engine.runtime.notify(here(place), Reply(text=place), after_seconds=seconds)
    async with pair.running(bot, processes=1):
        await hears(pair, "hello", by="bob")
        await pair.shown(1, "bob")
    pair.offset_seconds += HOUR
    async with pair.running(invoices.bot()):
        await pair.shown(3)
        for place in ("tea", "cake"):
            await pair.shown(1, place)
        await pair.shown(2, "bob")
        await pair.advance(600)
        await pair.idle()
        said = {place: pair.platform.texts(place) for place in ("tea", "cake", "supper", "bob")}
    assert said == {"tea": ["tea"], "cake": ["cake"], "supper": [], "bob": [say("model_down", "en"), "You said: hello"]}
    assert [part.call for where, part in pair.platform.sent if where == "ana"] == ["show", "show", "edit"]
    async with pair.running(invoices.bot()):
        await pair.advance(2 * HOUR)
        await pair.shown(1, "supper")


async def test_delayed_notice_to_a_blocked_chat_is_put_aside(pair: Pair) -> None:
    async with pair.running(Invoices().bot()):
        await pair.workers[0].engine.runtime.notify(here("ana"), Reply(text="tea"), after_seconds=60)
        pair.platform.will = [Unreachable("blocked")]
        await pair.advance(61)
        await until(pair.store.dead_letters)
        assert pair.platform.sent == []


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan")])
async def test_invalid_after_seconds_are_refused(seconds: float) -> None:
    async with Invoices().bot() as bot:
        with pytest.raises(ValueError, match="after_seconds"):
            await bot.notify("app:-:ana", "tea", after_seconds=seconds)


# ── one pace ──


async def test_places_pace_parks_its_lane_until_it_is_due(opened: Callable[[], Store], tmp_path: Path) -> None:
    """Sends and refusals, at three at once and one each ten minutes: three and one; one and one; one."""
    pair = Pair(tmp_path, opened, Platform(pace=Pace(place_per_second=1 / 600)))
    async with pair.running(Invoices().bot()):
        for number in range(5):
            await pair.workers[number % 2].engine.runtime.notify(here("ana"), Reply(text=str(number)))
        await pair.shown(3)
        asked = pair.calls("acquire")
        stats = await pair.store.stats()
        assert (stats.parts, stats.parked, stats.leased) == (2, 1, 0)
        for _ in range(3):
            await pair.advance(60)
            await pair.idle()
        assert (len(pair.platform.sent), pair.calls("acquire")) == (3, asked)
        await pair.advance(460)
        await pair.shown(4)
        await pair.advance(601)
        await pair.shown(5)
        assert pair.platform.texts() == ["0", "1", "2", "3", "4"]
        assert pair.calls("acquire") == asked + 3


async def test_a_groups_pace_is_one_for_both(opened: Callable[[], Store], tmp_path: Path) -> None:
    pair = Pair(tmp_path, opened, Platform(pace=Pace(group_per_minute=1.0)))
    async with pair.running(Invoices().bot()):
        for thread in range(6):
            where = here("#team")
            address: Any = type(where)(channel="test", account="bot", place="#team", thread=str(thread), group=True)
            await pair.workers[thread % 2].engine.runtime.notify(address, Reply(text=str(thread)))
        await pair.shown(1, "#team")
        assert len(pair.platform.sent) == 1 and pair.calls("acquire") == 6


async def test_an_accounts_pace_is_kept_by_both_together(opened: Callable[[], Store], tmp_path: Path) -> None:
    most, rate = 120, 40.0
    pair = Pair(tmp_path, opened, Platform(pace=Pace(account_per_second=rate)))
    async with pair.running(Invoices().bot()):
        began = await pair.store.now()
        for number in range(most):
            await pair.workers[number % 2].engine.runtime.notify(here(f"person {number}"), Reply(text="hello"))
        await until(lambda: len(pair.platform.sent) >= most)
        took = (await pair.store.now() - began).total_seconds()
        assert took > (most - rate) / rate - 0.1
        assert pair.calls("acquire") <= 4 * most  # one asks at a time in each process, however many wait
        await pair.idle()
        assert (await pair.store.stats()).parked == 0


# ── fairness ──


async def test_flood_in_one_chat_delays_no_other_person(opened: Callable[[], Store], tmp_path: Path) -> None:
    script = ScriptedProvider([f"answer {number}" for number in range(1, 26)])
    pair = Pair(tmp_path, opened, Platform())
    async with pair.running(ChannelAgent(Agent(provider=script)), processes=1):
        worker = pair.workers[0]
        await worker.engine.stop()
        for start in range(0, 500, 250):
            await take(pair, *(message("flood", f"message {number}") for number in range(start, start + 250)))
        for number in range(20):
            await hears(pair, "hello", by=f"person {number}")
        taken: list[tuple[str, int]] = []
        while (await pair.store.stats()).waiting:
            lease = await worker.lease("turn")
            taken.append((lease.lane.rpartition(":")[2], len(lease.events)))
            await worker.turn_of(lease)
        assert taken[:21] == [("flood", 100), *((f"person {number}", 1) for number in range(20))]
        assert taken[21:] == [("flood", 100)] * 4
        first = [each.content for each in script.requests[0].messages if each.role == "user"]
        assert (len(first), first[0], first[-1]) == (100, "message 0", "message 99")


DOWN = ProviderError("openai", "503", retryable=False)
HERE = "agent/app:-:user:ana"


class Late(FaultyStore):
    """The way to the store of a process always too late for a lane."""

    async def lease(self, *args: Any, **options: Any) -> Lease | None:
        return None


@contextlib.asynccontextmanager
async def process(bot: ChannelAgent, store: Store, files: Path) -> AsyncIterator[Engine]:
    """Yield the engine of a process, without started loops."""
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
    """A bot is served by a process taking every lane; the other bot is called in a process taking none."""
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


async def test_model_failure_in_another_process_is_raised_here(store: Store, tmp_path: Path) -> None:
    script = ScriptedProvider([DOWN, "Both read."])
    bot = Invoices().bot()
    async with beside_a_server(ChannelAgent(Agent(provider=script)), bot, store, tmp_path):
        with pytest.raises(ProviderError) as down:
            await bot.ask_channel("ana", "one")
        assert (str(down.value), down.value.retryable) == (str(DOWN), False)
        assert (await bot.ask_channel("ana", "two")).content == "Both read."
        assert user_lines(script) == ["one", "two"]


async def test_authors_mistake_elsewhere_is_named_here_and_not_quoted(store: Store, tmp_path: Path) -> None:
    def instructions(ctx: object) -> str:
        raise ZeroDivisionError("hunter2")

    bot = Invoices().bot()
    broken = ChannelAgent(Agent(provider=ScriptedProvider([]), instructions=instructions))
    async with beside_a_server(broken, bot, store, tmp_path):
        with pytest.raises(AskfirstError, match=r"in another process \(ZeroDivisionError\).*dead list") as failed:
            await bot.ask_channel("ana", "one")
    assert "hunter2" not in str(failed.value)
    assert len(await store.dead_letters()) == 1


async def test_a_process_that_died_with_the_turn_is_not_waited_for(
    store: Store, tmp_path: Path, invoices: Invoices
) -> None:
    async with process(bot := invoices.bot(), store, tmp_path):
        ana = Person(channel="app", account="-", user_id="ana")
        address = Address(channel="app", account="-", place="user:ana")
        first = Message(event_ids=(), address=address, person=ana, text="before")
        await store.accept([Incoming(conversation=HERE, event_ids=("before",), body=cast("Any", event_to_json(first)))])
        assert await store.lease("dies", ["turn"], lease_seconds=0.2) is not None
        assert (await bot.ask_channel("ana", "after")).content.endswith("You said: after")


# ── a real second process ──


def serve(pipe: Connection, url: str, prefix: str, files: Path) -> None:
    """Serve as the other process, until a message in the pipe ends the work."""

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


async def until_sent(chat: Rig, many: int) -> None:
    async with asyncio.timeout(20):
        while len(chat.platform.sent) < many or not await chat.worker.engine.idle():
            await asyncio.sleep(0.01)


async def test_the_end_of_a_turn_takes_the_outbox_it_fills(tmp_path: Path) -> None:
    async with rig(ChannelAgent(Agent(provider=ScriptedProvider(["Hello Ana"]))), tmp_path) as chat:
        chat.worker.engine.start()
        await chat.says("ana", "hi")
        await until_sent(chat, 1)
        assert chat.platform.texts() == ["Hello Ana"]
        assert chat.wire.calls["commit"] == 2, "the turn, and the receipt"
        assert (await chat.store.stats()).leased == 0
        await chat.worker.engine.stop()


@pytest.mark.parametrize("in_doubt", ["repeat", "drop"])
async def test_commit_without_an_answer_leaves_no_doubt(tmp_path: Path, in_doubt: Literal["repeat", "drop"]) -> None:
    """The lane taken by the commit is given back, without an owner: an unsent part is no duplicate, and is sent."""
    bot = ChannelAgent(Agent(provider=ScriptedProvider(["Hello Ana"])), in_doubt=in_doubt)
    async with rig(bot, tmp_path) as chat:
        await chat.says("ana", "hi")
        chat.wire.lost_answers["commit"] = 1
        chat.worker.engine.start()
        await until_sent(chat, 1)
        assert (chat.platform.texts(), await chat.store.dead_letters()) == (["Hello Ana"], [])
        await chat.worker.engine.stop()


async def test_busy_sender_leaves_the_outbox_to_a_free_one(tmp_path: Path) -> None:
    answers = [f"answer {number}" for number in range(5)]
    bot = ChannelAgent(Agent(provider=ScriptedProvider(answers)))
    async with rig(bot, tmp_path) as chat:
        chat.platform.will = [Unavailable("down")]
        chat.worker.engine = Engine(chat.worker.context, sends=1, takers=1)
        chat.worker.engine.start()
        for number in range(5):
            await chat.says(f"person {number}", "hi")
        await until_sent(chat, 5)
        assert sorted(str(part.arguments["text"]) for _, part in chat.platform.sent) == answers
        await chat.worker.engine.stop()


async def test_a_lost_answer_is_dealt_with_though_the_store_is_away(tmp_path: Path) -> None:
    async with rig(ChannelAgent(Agent(provider=ScriptedProvider(["Hello Ana"])), in_doubt="drop"), tmp_path) as chat:
        await chat.says("ana", "hi")
        chat.wire.lost_answers["commit"] = 1
        chat.wire.errors = {"give_back": [StoreUnavailable("away")] * 3, "renew": [Fenced("gone")]}
        chat.worker.engine.start()
        await until_sent(chat, 1)
        assert (chat.platform.texts(), await chat.store.dead_letters()) == (["Hello Ana"], [])
        assert chat.wire.calls["give_back"] == 4
        await chat.worker.engine.stop()


async def test_pace_is_acquired_while_the_reply_is_being_stored(tmp_path: Path) -> None:
    bot = ChannelAgent(Agent(provider=ScriptedProvider(["Hello Ana", "Hello again"])))
    async with rig(bot, tmp_path, pace=Pace(account_per_second=1000.0, place_per_second=1000.0)) as chat:
        asked: list[str] = []
        for name in ("commit", "acquire", "commit answered"):
            chat.wire.hooks[name] = partial(asked.append, name)
        chat.worker.engine.start()
        for number in (1, 2):
            await chat.says("ana", "hi")
            await until_sent(chat, number)
        assert asked == ["commit", "acquire", "commit answered", "commit", "commit answered"] * 2
        await chat.worker.engine.stop()


async def test_used_up_pace_parks_the_stored_reply(tmp_path: Path) -> None:
    bot = ChannelAgent(Agent(provider=ScriptedProvider([f"answer {number}" for number in range(5)])))
    async with rig(bot, tmp_path, pace=Pace(place_per_second=0.01)) as chat:
        chat.worker.engine.start()
        for number in range(5):
            await chat.says("ana", f"{number}")
            await until_sent(chat, min(number + 1, 3))
        assert chat.platform.texts() == ["answer 0", "answer 1", "answer 2"]
        assert (await chat.store.stats()).parked == 1
        chat.store.offset_seconds = 100.0
        await until_sent(chat, 4)
        assert chat.platform.texts()[3:] == ["answer 3"], "counted once, however often it was asked"
        await chat.worker.engine.stop()


async def test_failed_commit_leaves_no_early_pace_request(tmp_path: Path) -> None:
    bot = ChannelAgent(Agent(provider=ScriptedProvider(["Hello Ana"])))
    async with rig(bot, tmp_path, pace=Pace(account_per_second=1000.0)) as chat:
        chat.wire.errors = {"commit": [StoreUnavailable("away")], "acquire": [StoreUnavailable("away")]}
        chat.worker.engine.start()
        await chat.says("ana", "hi")
        await until_sent(chat, 1)
        assert chat.platform.texts() == ["Hello Ana"]
        assert not chat.worker.context.pacing._ahead
        await chat.worker.engine.stop()


async def test_each_reply_is_counted_once_by_the_pace(tmp_path: Path) -> None:
    """Also a reply stored during another send to the place, or stored only at the third attempt."""
    bot = ChannelAgent(Agent(provider=ScriptedProvider(["Hello Ana", "Hello again", "And again"])))
    async with rig(bot, tmp_path, pace=Pace(account_per_second=1000.0)) as chat:
        held = asyncio.Event()
        chat.platform.will = [held]
        chat.worker.engine.start()
        await chat.says("ana", "hi")
        await chat.platform.sending.wait()
        await chat.says("ana", "hello?")
        async with asyncio.timeout(20):
            while (await chat.store.stats()).parts < 2:
                await asyncio.sleep(0.01)
        held.set()
        await until_sent(chat, 2)
        assert chat.wire.calls["acquire"] == 2
        chat.wire.errors = {"commit": [Conflict("x"), Conflict("y")]}
        await chat.says("ana", "and?")
        await until_sent(chat, 3)
        assert chat.wire.calls["acquire"] <= 4, "at first, and when it is sent"
        await chat.worker.engine.stop()


async def test_a_pace_that_cannot_be_asked_for_leaves_no_doubt(tmp_path: Path) -> None:
    bot = ChannelAgent(Agent(provider=ScriptedProvider(["Hello Ana"])), in_doubt="drop")
    async with rig(bot, tmp_path, pace=Pace(account_per_second=1000.0)) as chat:
        chat.wire.errors = {"acquire": [StoreUnavailable("away")] * 2}
        chat.worker.engine.start()
        await chat.says("ana", "hi")
        await until_sent(chat, 1)
        assert (chat.platform.texts(), await chat.store.dead_letters()) == (["Hello Ana"], [])
        assert chat.wire.calls["acquire"] == 3
        await chat.worker.engine.stop()
