"""The watchdog: a stalled loop is logged with the place, counted, and reported by /readyz for a minute."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Iterator
from typing import cast

import pytest

from gateway import Agent, ChannelAgent, Gateway
from gateway.engine.concurrency import BackgroundTasks, WorkerPool
from gateway.observe.watchdog import STALL_SECONDS, Watchdog
from gateway.store.types import Lease
from gateway.testing import ScriptedProvider
from gateway.timing.deadlines import Deadline
from gateway.timing.loop_lag import BEAT_SECONDS, LoopLag
from tests.engine.rig import until


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watchdog(clock: Clock) -> Iterator[Watchdog]:
    """A watchdog without a thread and a timer, driven by the test."""
    yield Watchdog(clock, clock)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "askfirst.watchdog"]


def test_a_stall_is_logged_while_it_lasts_and_counted(
    watchdog: Watchdog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    watchdog.lag.beat()
    watchdog.look()
    clock.seconds += STALL_SECONDS - 0.1
    watchdog.look()
    assert logged(caplog) == []
    clock.seconds += 0.2
    watchdog.look()
    watchdog.look()
    (line,) = logged(caplog)
    assert "stood still for 1.1 s" in line and "used the processor for 1.1 s" in line
    assert watchdog.stalls == 0, "it has not ended"
    clock.seconds += 3.0
    watchdog.lag.beat()
    watchdog.look()
    assert (watchdog.stalls, round(watchdog.stalled_seconds, 1), len(logged(caplog))) == (1, 4.1, 1)
    clock.seconds += 59.0
    assert watchdog.stalled_within(60.0) is not None
    clock.seconds += 2.0
    assert watchdog.stalled_within(60.0) is None


def test_unobserved_stall_is_logged_at_its_end(
    watchdog: Watchdog, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """A call in C may hold the interpreter, and also the watchdog's thread, until the loop goes on."""
    watchdog.lag.beat()
    watchdog.look()
    clock.seconds += 7.0
    watchdog.lag.beat()
    watchdog.lag.beat()
    watchdog.look()
    watchdog.look()
    (line,) = logged(caplog)
    assert "stood still for 7.0 s" in line and "an unknown place" in line and watchdog.stalls == 1


def dawdle(until_set: threading.Event) -> None:
    """Keep the loop and the processor busy until the watchdog's log line."""
    deadline = time.monotonic() + 20.0
    while not until_set.is_set() and time.monotonic() < deadline:
        pass


async def test_the_place_of_a_stall_is_named_without_values(caplog: pytest.LogCaptureFixture) -> None:
    logged_it = threading.Event()

    class Sees(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged_it.set()

    handler, watchdog = Sees(), Watchdog()
    logging.getLogger("askfirst.watchdog").addHandler(handler)
    try:
        await watchdog.start()
        await asyncio.sleep(2 * BEAT_SECONDS)
        dawdle(logged_it)
        await until(lambda: watchdog.stalls == 1)
    finally:
        await watchdog.stop()
        logging.getLogger("askfirst.watchdog").removeHandler(handler)
    (line,) = logged(caplog)
    assert "observe/test_watchdog.py" in line and "dawdle < " in line
    assert not any(thread.name == "askfirst-watchdog" for thread in threading.enumerate())


async def test_readyz_tells_a_stall_and_stays_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = Gateway(ChannelAgent(Agent([], provider=ScriptedProvider([])), store="sqlite:///:memory:"))
    async with gateway:
        assert "event_loop" not in (await gateway._ready()).checks
        watchdog = gateway._watchdog
        watchdog.lag._longest = 2.5
        await until(lambda: watchdog.stalls == 1)
        found = await gateway._ready()
        assert found.ready and "stood still for 2.5 s" in str(found.checks["event_loop"])
        text = (await gateway._metrics.scrape()).decode()
        assert re.search(r"^askfirst_loop_stalls_total [1-9]", text, re.MULTILINE)


# ── the lag ──


async def test_a_deadline_leaves_the_lag_of_the_loop_out(clock: Clock) -> None:
    lag = LoopLag(clock)
    lag.start()
    assert lag._timer is not None
    lag._timer.cancel()
    try:
        with Deadline(0.05, answered=lambda: 0.0) as deadline:
            clock.seconds += BEAT_SECONDS + 0.1
            time.sleep(0.06)
            await asyncio.sleep(0)
            assert not deadline.expired
        with pytest.raises(TimeoutError), Deadline(0.05):
            time.sleep(0.06)
            await asyncio.sleep(0.05)
        with pytest.raises(TimeoutError), Deadline(0.05, answered=lambda: 0.0):
            await asyncio.Event().wait()
    finally:
        lag.stop()


async def test_a_late_loop_begins_two_workers_until_it_keeps_up(clock: Clock) -> None:
    lag, let_go, running = LoopLag(clock), asyncio.Event(), 0
    tasks = BackgroundTasks()

    async def run(lease: Lease) -> None:
        nonlocal running
        running += 1
        await let_go.wait()

    async def lease() -> Lease:
        return cast("Lease", object())

    pool = WorkerPool(tasks, "turn", 64, run, yields=True)
    lag.start()
    assert lag._timer is not None
    lag._timer.cancel()  # the test beats by hand
    try:
        clock.seconds += 1.0
        lag.beat()
        taking = [asyncio.ensure_future(pool.take(lease)) for _ in range(16)]
        await until(lambda: running == 2)
        assert pool.stuck_seconds() >= 0.0
        await asyncio.sleep(0)
        assert running == 2 and not pool.is_busy
        clock.seconds += BEAT_SECONDS
        lag.beat()
        await until(lambda: running == 16)
        let_go.set()
        await asyncio.gather(*taking)
        await tasks.ended()
        assert pool.stuck_seconds() == 0.0
    finally:
        lag.stop()
