"""Two processes run their loops on one store: due work happens once, and both keep one common pace."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from channels import Message, Parsed, Reply, Unreachable, WebhookResponse
from channels.channel import Pace
from gateway import Agent, ChannelAgent
from gateway.providers.base import ProviderError
from gateway.store.base import Store
from gateway.store.redis import RedisStore
from gateway.store.sqlite import SqliteStore
from gateway.testing import ScriptedProvider
from gateway.testing.faulty_store import FaultyStore
from gateway.wording import say
from tests.engine.bots import Invoices
from tests.engine.rig import Platform, Worker, here, message, until

pytestmark = pytest.mark.both_stores

HOUR = 3600.0


class Pair:
    """Both, their own ways to the store, and the platform that both write to."""

    def __init__(self, files: Path, opened: Callable[[], Store], platform: Platform) -> None:
        self._files, self._opened, self.platform = files, opened, platform
        self.offset_seconds = 0.0
        self.workers: list[Worker] = []
        self.wires: list[FaultyStore] = []

    @contextlib.asynccontextmanager
    async def running(self, bot: ChannelAgent, processes: int = 2) -> AsyncIterator[None]:
        """For the length of the block; what is on its way then ends first."""
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
    """A process's own client of the one Redis; the file of the one process that has one."""
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


# ── what falls due ──


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


async def test_work_due_during_an_outage_happens_once_afterwards(pair: Pair) -> None:
    down = ProviderError("openai", "503", retryable=False)
    bot = ChannelAgent(Agent(provider=ScriptedProvider([down])))
    invoices = Invoices()
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
    assert said == {
        "tea": ["tea"],
        "cake": ["cake"],
        "supper": [],
        "bob": [say("model_down", "en"), "You said: hello"],
    }
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
    """Three at once, then one each ten minutes: three, and one that is refused; then one and one refused; then one."""
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


# ── nobody starves ──


async def test_one_chats_flood_delays_nobody(opened: Callable[[], Store], tmp_path: Path) -> None:
    script = ScriptedProvider([f"answer {number}" for number in range(1, 42)])
    pair = Pair(tmp_path, opened, Platform())
    async with pair.running(ChannelAgent(Agent(provider=script)), processes=1):
        worker = pair.workers[0]
        await worker.engine.stop()
        for start in range(0, 2000, 200):
            await take(pair, *(message("flood", f"message {number}") for number in range(start, start + 200)))
        for number in range(20):
            await hears(pair, "hello", by=f"person {number}")
        taken: list[tuple[str, int]] = []
        while (await pair.store.stats()).waiting:
            lease = await worker.lease("turn")
            taken.append((lease.lane.rpartition(":")[2], len(lease.events)))
            await worker.turn_of(lease)
        assert taken[:21] == [("flood", 100), *((f"person {number}", 1) for number in range(20))]
        assert taken[21:] == [("flood", 100)] * 19
        first = [each.content for each in script.requests[0].messages if each.role == "user"]
        assert (len(first), first[0], first[-1]) == (100, "message 0", "message 99")
