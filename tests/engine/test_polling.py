"""One process at a time polls a platform, on both stores, through every kind of failure."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest

from channels import Event
from gateway import Agent, ChannelAgent
from gateway.engine.polling import Poller
from gateway.testing import ScriptedProvider
from tests.engine.rig import Platform, Rig, Worker, message, rig, until

LONG, SHORT = 60.0, 0.09


class Polled(Platform):
    """Hands out what is put into `waits`, to whoever asks; `polling` counts those who do."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: asyncio.Queue[Event | Exception] = asyncio.Queue()
        self.polling = 0

    async def poll(self) -> AsyncGenerator[tuple[Event, ...], None]:
        self.polling += 1
        try:
            while True:
                event = await self.waits.get()
                if isinstance(event, Exception):
                    raise event
                yield (event,)
        finally:
            self.polling -= 1


@pytest.fixture
def platform() -> Polled:
    return Polled()


@pytest.fixture
async def house(tmp_path: Path, platform: Polled) -> AsyncIterator[Rig]:
    bot = ChannelAgent(Agent(provider=ScriptedProvider([])))
    async with rig(bot, tmp_path, platform) as house:
        yield house


@contextlib.asynccontextmanager
async def polling(
    worker: Worker, platform: Polled, lease_seconds: float, again_seconds: float = 1.0
) -> AsyncIterator[asyncio.Task[None]]:
    worker.context.lease_seconds = lease_seconds
    poller = Poller(worker.context, worker.engine.inbox, platform, again_seconds=again_seconds)
    task = asyncio.create_task(poller.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "askfirst.platforms")


async def heard(house: Rig, platform: Polled, text: str) -> None:
    """Somebody writes, and it is stored."""
    before = (await house.store.stats()).ready
    await platform.waits.put(message(text, text))
    while (await house.store.stats()).ready == before:
        await asyncio.sleep(0.001)


async def test_second_process_polls_as_soon_as_the_first_ends(
    house: Rig, platform: Polled, caplog: pytest.LogCaptureFixture
) -> None:
    async with polling(house.worker, platform, LONG) as first:
        await heard(house, platform, "ana")
        async with polling(house.another(), platform, SHORT):
            await until(lambda: "test is polled by another process" in caplog.text)
            assert platform.polling == 1
            first.cancel()
            await heard(house, platform, "ben")
            assert platform.polling == 1


async def test_dead_poller_is_replaced_when_its_lease_lapses(
    house: Rig, platform: Polled, caplog: pytest.LogCaptureFixture
) -> None:
    gone = Poller(house.worker.context, house.worker.engine.inbox, platform)
    assert await gone._lease.take()
    async with polling(house.another(), platform, SHORT):
        await until(lambda: "test is polled by another process" in caplog.text)
        assert platform.polling == 0
        await house.advance(house.worker.context.lease_seconds + 1.0)
        await heard(house, platform, "ana")


async def test_who_has_lost_the_lease_polls_no_longer(
    house: Rig, platform: Polled, caplog: pytest.LogCaptureFixture
) -> None:
    async with polling(house.worker, platform, 0.6):
        await heard(house, platform, "ana")
        await house.advance(10.0)  # it was held up for longer than its lease
        async with polling(house.another(), platform, SHORT):
            await until(lambda: "test is no longer polled by this process: its lease is lost" in caplog.text)
            await until(lambda: platform.polling == 1)
            await heard(house, platform, "ben")


async def test_without_a_store_nobody_polls(house: Rig, platform: Polled, caplog: pytest.LogCaptureFixture) -> None:
    async with polling(house.worker, platform, SHORT):
        await heard(house, platform, "ana")
        house.wire.calls_left = 0
        await until(lambda: "its lease is lost" in caplog.text)
        assert platform.polling == 0
        await until(lambda: "test is not polled: the store does not answer; it is tried again" in caplog.text)
        assert "by another process" not in caplog.text
        house.wire.calls_left = None
        await heard(house, platform, "ben")


async def test_polling_stops_when_a_hanging_store_outlasts_the_lease(
    house: Rig, platform: Polled, caplog: pytest.LogCaptureFixture
) -> None:
    async with polling(house.worker, platform, SHORT):
        await heard(house, platform, "ana")
        house.wire.pause_after = 0
        await until(lambda: "its lease is lost" in caplog.text)
        assert platform.polling == 0
        house.wire.resume.set()


async def test_a_channel_that_breaks_is_polled_again_and_told_once(
    house: Rig, platform: Polled, caplog: pytest.LogCaptureFixture
) -> None:
    async with polling(house.worker, platform, LONG, again_seconds=0.001):
        for _ in range(3):
            await platform.waits.put(KeyError("a person's words"))
        await heard(house, platform, "ana")
        assert caplog.text.count("test: KeyError (test_polling.py:") == 1
        assert "words" not in caplog.text
