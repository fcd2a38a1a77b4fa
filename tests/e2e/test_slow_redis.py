"""A Redis that answers too late for a platform: nothing is pretended, and what was stored all the same is known."""

from __future__ import annotations

import asyncio
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
from tests.store.wire import Wire

DELAY_SECONDS = 0.3
"""Of each answer. A platform is answered after a quarter of a second."""


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
        """Whether the platform, or the person, was told so."""
        return answer.status == 200 and b"<Message>" not in answer.body

    async def waiting() -> int:
        return (await seen.stats()).waiting

    await seen.open()
    async with await asyncio.to_thread(Gateway, bot, settings_of(case, tmp_path), role="web") as gateway:
        while not stored(await answer(webhook.says("before"))):
            pass
        await asyncio.gather(*(gateway.store.ping() for _ in range(8)), return_exceptions=True)  # connections
        wire.delay_seconds = DELAY_SECONDS
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
