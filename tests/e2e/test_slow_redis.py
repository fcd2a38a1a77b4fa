"""A Redis too slow for a platform: no unstored event is acknowledged, and a late stored event is known."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from channels import WebhookRequest, WebhookResponse
from gateway import Agent, ChannelAgent, Gateway
from gateway.store.redis import RedisStore
from gateway.store.redis.connection import RedisTimings
from gateway.testing import ChannelCase
from gateway.web import webhooks
from tests.e2e.house import settings_of
from tests.e2e.test_several_processes import idle, post, pressed, prompt, ready, taken, written
from tests.fakes.openai import Say
from tests.kill.stage import Stage, on_stage
from tests.store.redis_server import RedisServer
from tests.store.replicas import How, fail_over, following, has_all_of
from tests.store.wire import Wire

DELAY_SECONDS = 0.3
"""The delay of each answer of Redis. A platform is answered after a quarter of a second."""
LATE_SECONDS = 3.0
"""The same, later than any answer to a platform: a late event loop puts the answer off by 2 seconds at most."""


@pytest.fixture
async def wire(server: RedisServer) -> AsyncIterator[Wire]:
    async with Wire(server.url) as wire:
        yield wire


@pytest.fixture
async def stage(tmp_path: Path, wire: Wire) -> AsyncIterator[Stage]:
    async with on_stage(tmp_path, wire.url) as stage:
        yield stage


async def test_late_storage_is_not_acknowledged_and_a_retry_is_a_twin(
    case: ChannelCase, server: RedisServer, wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "ACCEPT_SECONDS", 0.25)
    webhook, seen = case.webhook, RedisStore(server.url, ack_seconds=15)
    assert webhook is not None
    assert webhook.says is not None
    timings = RedisTimings(counted_seconds=3600.0)  # so that a call on the slow wire is the one that stores
    bot = ChannelAgent(Agent([], provider="demo"), store=RedisStore(wire.url, timings=timings))
    comes_again = case.channel.name in ("telegram", "slack")

    async def answer(request: WebhookRequest) -> WebhookResponse:
        return await gateway.webhook(case.channel.name, webhook.prove(request, datetime.now(UTC), 1))

    def stored(answer: WebhookResponse) -> bool:
        """Return True if the answer tells the platform or the person that the event is stored."""
        return answer.status == 200 and b"<Message>" not in answer.body

    async def waiting() -> int:
        return (await seen.stats()).waiting

    await seen.open()
    async with await asyncio.to_thread(Gateway, bot, settings_of(case, tmp_path), role="web") as gateway:
        while not stored(await answer(webhook.says("before"))):
            pass
        await asyncio.gather(*(gateway.store.ping() for _ in range(8)), return_exceptions=True)  # connections
        wire.delay_seconds = LATE_SECONDS
        late = webhook.says("late")
        while await waiting() < 2:
            said = await answer(late)
            assert not stored(said)
            assert (said.status, "Retry-After" in said.headers) == ((503, True) if comes_again else (200, False))
        wire.delay_seconds = 0.0
        while not stored(await answer(late)):
            pass
        assert await waiting() == 2
    await seen.close()


async def test_slow_redis_repeats_no_effect_and_no_answer(stage: Stage, wire: Wire) -> None:
    one = await stage.start()
    ana, ben, cleo, *others = (stage.telegram.person(name) for name in ("Ana", "Ben", "Cleo", "Dan", "Eve", "Fay"))
    asked = await prompt(stage, "INV-1", by=ana)
    stage.business.hold_after = True
    await stage.telegram.press(await prompt(stage, "INV-2", by=cleo), "Confirm", cleo)
    await stage.business.reached.wait()
    stage.business.hold_after = False
    hold = asyncio.Event()
    stage.model.script([Say("Hello Ben!", hold=hold)])
    await stage.telegram.person_says(ben, ben, "hi")
    await stage.model.wait_for(3)
    updates = [await written(stage, f"I am {person.first_name}", person) for person in others]
    press, update = await pressed(stage, asked, ana)
    stage.model.script([Say("Hello!") for _ in range(20)])

    wire.delay_seconds = DELAY_SECONDS
    for each in (update, *updates):
        status, took = await post(one, each)
        assert status == 503
        assert took < 5, "0.25 s, and what a busy machine takes"
    assert await ready(one) == 503
    hold.set()
    stage.business.release.set()
    await stage.until(lambda: "Hello Ben!" in stage.texts(ben) and "pay INV-2 ok" in stage.texts(cleo))

    wire.delay_seconds = 0.0
    assert [await taken(one, each) for each in (update, *updates)] == [200] * 4
    await stage.until(lambda: press.answered and "pay INV-1 ok" in stage.texts(ana))
    await stage.until(lambda: all(stage.texts(person) for person in others))
    assert await ready(one) == 200
    assert sorted(stage.business.happened("pay")) == ["INV-1", "INV-2"]
    assert len(stage.business.done) == 2
    await idle(stage)
    assert [stage.texts(person) for person in others] == [["Hello!"]] * 3
    assert stage.texts(ben) == ["Hello Ben!"]
    assert len(stage.telegram.called("answerCallbackQuery")) == 2


# ── A replica of the Redis takes over while people write and confirm: the processes go on by themselves ──


@pytest.fixture
async def replica(server: RedisServer, tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with following(server, tmp_path / "replica") as replica:
        yield replica


@pytest.fixture
async def failing_wire(server: RedisServer, replica: RedisServer) -> AsyncIterator[Wire]:
    async with Wire(server.url) as failing_wire:
        yield failing_wire


@pytest.fixture
async def on_replica(tmp_path: Path, failing_wire: Wire) -> AsyncIterator[Stage]:
    async with on_stage(tmp_path, failing_wire.url) as on_replica:
        yield on_replica


@pytest.mark.parametrize("how", ["demoted", "killed"])
async def test_failover_loses_and_repeats_no_acknowledged_event(
    on_replica: Stage, server: RedisServer, replica: RedisServer, failing_wire: Wire, how: How
) -> None:
    processes = [await on_replica.start(), await on_replica.start()]
    ana, ben, *others = (on_replica.telegram.person(name) for name in ("Ana", "Ben", "Cleo", "Dan", "Eve", "Fay"))
    asked = await prompt(on_replica, "INV-1", by=ana)
    press, update = await pressed(on_replica, asked, ana)
    hold = asyncio.Event()
    on_replica.model.script([Say("Hello Ben!", hold=hold)])
    await on_replica.telegram.person_says(ben, ben, "hi")
    await on_replica.model.wait_for(2)
    # Two wait for the model meanwhile: work not yet at the replica is lost with the primary, and done again.
    on_replica.model.script([Say("Hello!", hold=hold) for _ in range(2)])
    on_replica.model.script([Say("Hello!") for _ in range(20)])  # an unrecorded step is requested again
    updates = [await written(on_replica, f"I am {person.first_name}", person) for person in others]
    for each in updates[:2]:
        assert (await post(processes[0], each))[0] == 200
    await on_replica.model.wait_for(4)
    await has_all_of(replica, server)

    await fail_over(server, replica, failing_wire, how)
    began = time.monotonic()
    hold.set()
    for number, each in enumerate((update, *updates)):
        assert await taken(processes[number % 2], each) == 200
    assert time.monotonic() - began < 15, "seconds, and what a busy machine takes"
    await on_replica.until(lambda: press.answered and not asked.buttons and "pay INV-1 ok" in on_replica.texts(ana))
    await on_replica.until(
        lambda: "Hello Ben!" in on_replica.texts(ben) and all(on_replica.texts(person) for person in others)
    )
    await idle(on_replica)
    assert [await ready(process) for process in processes] == [200, 200]
    assert len(on_replica.business.done) == 1
    assert on_replica.texts(ben) == ["Hello Ben!"]
    assert [on_replica.texts(person) for person in others] == [["Hello!"]] * 4
