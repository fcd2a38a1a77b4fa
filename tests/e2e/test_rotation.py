"""Every secret is changed under load: two instances on one Redis, replaced one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from channels import WebhookRequest
from gateway import Agent, ChannelAgent, Gateway, Settings, tool
from gateway.providers import Request, Response, ToolCall
from gateway.web.server import headers_of
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import FakeTelegram, Message
from tests.fakes.twilio import FakeTwilio
from tests.fakes.waiting import listen
from tests.store.redis_server import RedisServer

SEALS = "uB3nT8kQ5rW1xZ6vC9mL2pD7sF4gH0jK", "pL8sD3fG6hJ9kQ2wE5rT7yU1iO4aZ0xC"
TELEGRAM = "kYq2c8Xv0mWn4Zt6", "Bx7pR3mK9tQ1vL5z"
SLACK = "8f742231b10e8888abcd99yyyzzz85a5", "1c5d2e7f90ab4c6d8e1f2a3b4c5d6e7f"
TWILIO = "f0e1d2c3b4a5968778695a4b3c2d1e0f", "00112233445566778899aabbccddeeff"


class Echo:
    """Repeats the message. "pay" becomes a call of the tool."""

    name = "echo"

    async def complete(self, request: Request) -> Response:
        said = request.messages[-1].content
        if said == "pay":
            return Response(tool_calls=(ToolCall(call_id="1", name="pay", args={}),), model="echo", finish="tools")
        return Response(content=f"heard: {said}", model="echo")

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        yield await self.complete(request)

    async def close(self) -> None:
        """Hold no resource."""


class House:
    """The instances behind one address, used in turn."""

    def __init__(self, redis: RedisServer, files: Path) -> None:
        self._redis, self._files = redis, files
        self._instances: list[tuple[Gateway, contextlib.AsyncExitStack]] = []
        self._turn = itertools.count()
        self.url = ""
        self.paid = 0
        self.refused: list[tuple[str, int]] = []

    async def replace(self, **settings: Any) -> None:
        """Replace both instances, one after the other, with these settings, as in a rolling release."""
        for _ in range(2):
            stack = contextlib.AsyncExitStack()
            gateway = await asyncio.to_thread(Gateway, self._bot(), self._settings(**settings))
            await stack.enter_async_context(gateway)
            self._instances.append((gateway, stack))
            if len(self._instances) > 2:
                old, ending = self._instances.pop(0)
                await old.drain(2.0)
                await ending.aclose()

    async def end(self) -> None:
        for _, stack in self._instances:
            await stack.aclose()

    async def take(self, request: web.Request) -> web.Response:
        gateway, _ = self._instances[next(self._turn) % len(self._instances)]
        name = request.match_info["channel"]
        called = WebhookRequest("POST", self.url + request.raw_path, headers_of(request), await request.read())
        answer = await gateway.webhook(name, called)
        if answer.status not in (200, 503):  # 503 is of a slow machine: it is delivered again
            self.refused.append((name, answer.status))
        return web.Response(status=answer.status, body=answer.body, headers=answer.headers)

    def _bot(self) -> ChannelAgent:
        @tool(confirm="Pay?", idempotent=True)
        async def pay() -> str:
            """Pay."""
            self.paid += 1
            return "paid"

        return ChannelAgent(Agent([pay], provider=Echo()))

    def _settings(self, **settings: Any) -> Settings:
        return Settings(store=self._redis.url, artifacts=self._files, public_url=self.url, allow="*", **settings)


@contextlib.asynccontextmanager
async def listening(house: House) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_post("/webhooks/{channel:.+}", house.take)
    runner, house.url = await listen(app)
    try:
        yield
    finally:
        await house.end()
        await runner.cleanup()


class People:
    """People that write once each, on three platforms, until stopped: platforms pace the messages to one person."""

    def __init__(self, telegram: FakeTelegram, slack: FakeSlack, twilio: FakeTwilio) -> None:
        self._telegram, self._slack, self._twilio = telegram, slack, twilio
        self.said: list[str] = []
        self._enough = False

    async def write(self, number: int, platform: str) -> None:
        text = f"{platform} {number}"
        self.said.append(text)
        match platform:
            case "telegram":
                ana = self._telegram.person("Ana")
                await self._telegram.person_says(ana, ana, text)
            case "slack":
                bea = self._slack.person("Bea")
                await self._slack.says(bea, self._slack.direct(bea), text)
            case _:
                answer = "<Message>"  # the store did not answer in time: write again
                while "<Message>" in answer:
                    answer = (await self._twilio.person_says(f"+1555123{number:04}", text, whatsapp=True)).body

    async def go_on(self, platform: str) -> None:
        for number in itertools.count():
            if self._enough:
                return
            await self.write(number, platform)
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        self._enough = True

    def unheard(self) -> list[str]:
        heard = {*(m.text for m in self._telegram.sent), *(m.shown for m in self._slack.sent)}
        heard |= {m.body for m in self._twilio.sent}
        return [text for text in self.said if f"heard: {text}" not in heard]


@pytest.mark.timeout(30)
async def test_rotating_every_secret_under_load_loses_no_message(server: RedisServer, tmp_path: Path) -> None:
    house = House(server, tmp_path / "files")
    async with FakeTelegram() as telegram, FakeSlack() as slack, FakeTwilio() as twilio, listening(house):
        urls = {"telegram_api_url": telegram.url, "slack_api_url": slack.api_url, "twilio_api_url": twilio.url}
        account = {
            "telegram_bot_token": telegram.token,
            "slack_bot_token": slack.bot_token,
            "twilio_account_sid": twilio.account_sid,
            "twilio_whatsapp_from": f"whatsapp:{twilio.whatsapp}",
        }
        slack.signing_secret, twilio.auth_token = SLACK[0], TWILIO[0]

        async def settings(of: int | None, seals: str) -> None:
            """With the first secrets, the second, or (None) the second before the first."""
            chosen = [",".join(pair[::-1]) if of is None else pair[of] for pair in (TELEGRAM, SLACK, TWILIO)]
            names = "telegram_webhook_secret", "slack_signing_secret", "twilio_auth_token"
            await house.replace(**urls, **account, **dict(zip(names, chosen, strict=True)), secret=seals)

        await settings(0, SEALS[0])
        telegram.webhook = {"url": f"{house.url}/webhooks/telegram", "secret": TELEGRAM[0]}
        slack.webhook = f"{house.url}/webhooks/slack"
        twilio.webhook_url = f"{house.url}/webhooks/twilio"
        people = People(telegram, slack, twilio)

        cyd = telegram.person("Cyd")
        await telegram.person_says(cyd, cyd, "pay")
        asked: Message = await telegram.wait_for(lambda: telegram.last(cyd, button="Confirm"))
        async with asyncio.TaskGroup() as writing:
            for platform in ("telegram", "slack", "whatsapp"):
                writing.create_task(people.go_on(platform))
            twilio.secondary_token = TWILIO[1]
            await settings(None, f"{SEALS[0]},{SEALS[1]}")  # all know the new key of ours before one signs with it
            telegram.webhook["secret"] = TELEGRAM[1]  # as `askfirst webhooks set` does it
            slack.signing_secret, twilio.auth_token, twilio.secondary_token = SLACK[1], TWILIO[1], ""
            await settings(1, f"{SEALS[1]},{SEALS[0]}")
            people.stop()
        await telegram.press(asked, "Confirm", cyd)
        await telegram.wait_for(lambda: house.paid and not people.unheard(), 15)
    assert house.refused == []
    assert house.paid == 1
    assert len(people.said) > 30
