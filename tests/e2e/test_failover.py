"""A replica of the Redis takes over while people write and confirm: the processes go on by themselves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.test_several_processes import idle, post, pressed, prompt, ready, taken, written
from tests.fakes.openai import Say
from tests.kill.stage import Stage, on_stage
from tests.store.redis_server import RedisServer
from tests.store.replicas import How, fail_over, following, has_all_of
from tests.store.wire import Wire


@pytest.fixture
async def replica(server: RedisServer, tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with following(server, tmp_path / "replica") as replica:
        yield replica


@pytest.fixture
async def wire(server: RedisServer, replica: RedisServer) -> AsyncIterator[Wire]:
    async with Wire(server.url) as wire:
        yield wire


@pytest.fixture
async def stage(tmp_path: Path, wire: Wire) -> AsyncIterator[Stage]:
    async with on_stage(tmp_path, wire.url) as stage:
        yield stage


@pytest.mark.parametrize("how", ["demoted", "killed"])
async def test_failover_loses_and_repeats_nothing_acknowledged(
    stage: Stage, server: RedisServer, replica: RedisServer, wire: Wire, how: How
) -> None:
    processes = [await stage.start(), await stage.start()]
    ana, ben, *others = (stage.telegram.person(name) for name in ("Ana", "Ben", "Cleo", "Dan", "Eve", "Fay"))
    asked = await prompt(stage, "INV-1", by=ana)
    press, update = await pressed(stage, asked, ana)
    hold = asyncio.Event()
    stage.model.script([Say("Hello Ben!", hold=hold)])
    await stage.telegram.person_says(ben, ben, "hi")
    await stage.model.wait_for(2)
    # Two wait for the model meanwhile: what is done and not yet at the replica is lost with the primary, and done anew.
    stage.model.script([Say("Hello!", hold=hold) for _ in range(2)])
    stage.model.script([Say("Hello!") for _ in range(20)])  # a step that nobody could write down is asked for again
    updates = [await written(stage, f"I am {person.first_name}", person) for person in others]
    for each in updates[:2]:
        assert (await post(processes[0], each))[0] == 200
    await stage.model.wait_for(4)
    await has_all_of(replica, server)

    await fail_over(server, replica, wire, how)
    began = time.monotonic()
    hold.set()
    for number, each in enumerate((update, *updates)):
        assert await taken(processes[number % 2], each) == 200
    assert time.monotonic() - began < 15, "seconds, and what a busy machine takes"
    await stage.until(lambda: press.answered and not asked.buttons and "pay INV-1 ok" in stage.texts(ana))
    await stage.until(lambda: "Hello Ben!" in stage.texts(ben) and all(stage.texts(person) for person in others))
    await idle(stage)
    assert [await ready(process) for process in processes] == [200, 200]
    assert len(stage.business.done) == 1
    assert stage.texts(ben) == ["Hello Ben!"]
    assert [stage.texts(person) for person in others] == [["Hello!"]] * 4
