"""Several workers on one Redis. Workers and server are killed and frozen all the time: no work is lost or repeated, and
a dead worker's work is taken over in time."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.chaos.check import take_overs, violations, within
from tests.chaos.run import Form, opened
from tests.chaos.story import Story
from tests.store.redis_server import RedisServer

SHORT = Form(
    conversations=50, messages=8, lease_seconds=1.5, workers=3, signals=10, signal_every_seconds=2, server_restarts=1
)
LONG = Form(
    conversations=200, messages=20, lease_seconds=6, workers=3, signals=30, signal_every_seconds=8, server_restarts=2
)
ZOMBIES = 12


async def run_through(form: Form, directory: Path, server: RedisServer) -> list[float]:
    """Return the take-overs of a run without violations."""
    async with opened(form, directory, server) as run:
        await run.go()
        assert await violations(run) == []
        took = take_overs(run.record.lines(), form.lease_seconds)
    print(
        f"{len(took)} take-overs: p50 {within(took, 0.5):.2f} s, p99 {within(took, 0.99):.2f} s, all {max(took):.2f} s"
    )
    return took


@pytest.mark.nightly
@pytest.mark.timeout(600)
async def test_random_kills_lose_and_repeat_no_work(tmp_path: Path, server: RedisServer) -> None:
    await run_through(SHORT, tmp_path, server)  # the time of a take-over is asserted by `make nightly` alone


@pytest.mark.nightly
@pytest.mark.timeout(1200)
async def test_work_of_dead_workers_is_taken_over_in_time_for_minutes(tmp_path: Path, server: RedisServer) -> None:
    took = await run_through(LONG, tmp_path, server)
    assert within(took, 0.99) < LONG.lease_seconds + 2


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fenced", [True, False])
async def test_zombies_repeat_work_only_without_the_fence(tmp_path: Path, server: RedisServer, *, fenced: bool) -> None:
    """A worker is frozen while the model thinks, another takes over and finishes, then the first wakes up."""
    form = Form(conversations=ZOMBIES, messages=1, lease_seconds=1.5, workers=2, signals=0, signal_every_seconds=0)
    gate = tmp_path / "gate"
    async with opened(form, tmp_path, server) as run, asyncio.timeout(120):
        run.story = Story([[f"note c{number}-0"] for number in range(ZOMBIES)])
        zombie = await run.start(gate=gate, fenced=fenced)
        run.deliver_to(zombie)
        await run.write()
        await run.until(lambda: len(run.record.lines("asked")) == ZOMBIES)
        run.signal(zombie, signal.SIGSTOP)
        run.deliver_to(await run.start(fenced=fenced))
        await run.until(lambda: len(run.record.lines("ended")) == ZOMBIES)
        gate.touch()
        zombie.signal(signal.SIGCONT)
        through = "said" if fenced else "before"
        await run.until(lambda: sum(line["pid"] == zombie.process.pid for line in run.record.lines(through)) >= ZOMBIES)
        await run.quiet()
        found = await violations(run)
    twice = {f"note c{number}-0 has happened 2 times" for number in range(ZOMBIES)}
    assert set(found) >= twice if not fenced else found == []
