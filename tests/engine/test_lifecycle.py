"""The life of a bot: the lifespan, in a separate process and inside a foreign server."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from gateway import Agent, ChannelAgent, Gateway, Settings, ToolContext, WebhookRequest, tool
from gateway.channel_agent import LifespanFailed, NotRunning
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from tests.fakes.telegram import FakeTelegram

pytestmark = pytest.mark.both_stores

SECRET = "kYq2c8Xv0mWn4Zt6"


class Life:
    """A bot with a database, counting the openings and closings."""

    def __init__(self) -> None:
        self.opened = self.closed = 0
        self.used: list[Any] = []
        self.fails = False

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[str]:
        if self.fails:
            raise ConnectionRefusedError
        self.opened += 1
        try:
            yield f"database {self.opened}"
        finally:
            self.closed += 1

    def bot(self, *answers: str, **options: Any) -> ChannelAgent:
        @tool(read_only=True)
        async def look(ctx: ToolContext) -> str:
            """Look something up."""
            assert self.opened == self.closed + 1
            self.used.append(ctx.deps)
            return "found"

        script = ScriptedProvider([step for answer in answers for step in (ToolCall("look", {}), answer)])
        return ChannelAgent(Agent([look], provider=script), lifespan=self.lifespan, **options)


@pytest.fixture
def life() -> Life:
    return Life()


async def test_the_lifespan_is_entered_once_and_closed(life: Life) -> None:
    bot = life.bot("One.", "Two.", "Three.")
    async with bot:
        await bot.ask_channel("ana", "one")
        await bot.ask_channel("bob", "two")
    assert (life.used, life.opened, life.closed) == (["database 1"] * 2, 1, 1)
    async with bot:
        await bot.ask_channel("ana", "three")
    assert (life.used[-1], life.opened, life.closed) == ("database 2", 2, 2)
    assert bot.deps is None


async def test_confirmed_action_has_the_lifespans_values() -> None:
    life, used = Life(), []

    @tool(confirm="Delete {invoice_id}?")
    async def delete_invoice(invoice_id: str, ctx: ToolContext) -> str:
        """Delete an invoice."""
        used.append(ctx.deps)
        return "gone"

    script = ScriptedProvider([ToolCall("delete_invoice", {"invoice_id": "INV-1"})])
    async with ChatDriver(ChannelAgent(Agent([delete_invoice], provider=script), lifespan=life.lifespan)) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.presses("ana", "Confirm")
    assert (used, life.closed) == (["database 1"], 1)


async def test_failing_lifespan_leaves_no_task_running(life: Life) -> None:
    bot, life.fails = life.bot("One."), True
    before = asyncio.all_tasks()
    with pytest.raises(LifespanFailed) as failed:
        await bot.__aenter__()
    assert isinstance(failed.value.error, ConnectionRefusedError)
    with pytest.raises(NotRunning):
        await bot.ask_channel("ana", "one")
    assert asyncio.all_tasks() == before
    life.fails = False
    async with bot:
        assert (await bot.ask_channel("ana", "one")).content == "One."


async def test_error_inside_a_running_bot_passes_unchanged(life: Life) -> None:
    with pytest.raises(ZeroDivisionError):
        async with life.bot("One."):
            raise ZeroDivisionError
    assert life.closed == 1


async def test_close_failing_in_provider_or_channel_is_only_logged(
    life: Life,
    telegram: FakeTelegram,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def close(self: object) -> None:
        raise ValueError("hunter2")

    monkeypatch.setattr(ScriptedProvider, "close", close)
    gateway = await gateway_of(life.bot(), telegram, tmp_path)
    monkeypatch.setattr(gateway.channels["telegram"], "close", partial(close, None))
    async with gateway:
        pass
    assert life.closed == 1
    for name in ("telegram", "the provider"):
        assert re.search(rf"{name} could not be closed: ValueError \(test_lifecycle\.py:\d+ close\)", caplog.text)
    assert "hunter2" not in caplog.text


@pytest.mark.ledger("PYG-29")
async def test_a_bot_runs_once_in_a_process(life: Life) -> None:
    bot = life.bot("One.")
    async with bot:
        with pytest.raises(RuntimeError, match="running already"):
            await bot.__aenter__()
        assert (await bot.ask_channel("ana", "one")).content == "One."
    assert (life.opened, life.closed) == (1, 1)


# ── inside another server ──


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as telegram:
        yield telegram


async def gateway_of(bot: ChannelAgent, telegram: FakeTelegram, files: Path) -> Gateway:
    settings = Settings(
        store=f"sqlite:///{files / 'askfirst.db'}",
        allow=["telegram:*"],
        telegram_bot_token=telegram.token,
        telegram_webhook_secret=SECRET,
        telegram_api_url=telegram.url,
    )
    return await asyncio.to_thread(Gateway, bot, settings)


@contextlib.asynccontextmanager
async def serving(app: web.Application) -> AsyncIterator[str]:
    """Serve the application as an owner would, with aiohttp's own means."""
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def says(telegram: FakeTelegram, url: str, text: str) -> str:
    """Have Ana write, and return the bot's answer."""
    ana = telegram.person("Ana")
    telegram.webhook.update(url=url, secret=SECRET)
    await telegram.person_says(ana, ana, text)
    answered = await telegram.wait_for(lambda: telegram.last(ana))
    return answered.text


@pytest.mark.parametrize("prefix", ["", "/bot"])
async def test_as_an_aiohttp_application_or_a_part_of_one(
    life: Life, telegram: FakeTelegram, tmp_path: Path, prefix: str
) -> None:
    gateway = await gateway_of(life.bot("Hello."), telegram, tmp_path)
    app = gateway.aiohttp_app()
    if prefix:
        whole = web.Application()
        whole.add_subapp(prefix, app)
        app = whole
    async with serving(app) as address:
        url = address + prefix
        assert await says(telegram, f"{url}/webhooks/telegram", "hello") == "Hello."
        async with aiohttp.ClientSession() as http, http.get(f"{url}/livez") as live:
            assert live.status == 200
        assert life.opened == 1
    assert life.closed == 1
    assert len(gateway.engine.context.tasks) == 0 and gateway.engine.context.held == {}


async def test_through_webhook_from_any_other_server(life: Life, telegram: FakeTelegram, tmp_path: Path) -> None:
    gateway = await gateway_of(life.bot("Hello."), telegram, tmp_path)

    async def hand_on(request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = WebhookRequest("POST", str(request.url), headers, await request.read())
        answer = await gateway.webhook(request.match_info["channel"], asked)
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)

    other = web.Application()
    other.router.add_post("/hooks/{channel}", hand_on)
    async with gateway, serving(other) as address:
        url = f"{address}/hooks"
        assert await says(telegram, f"{url}/telegram", "hello") == "Hello."
        async with aiohttp.ClientSession() as http:
            async with http.post(f"{url}/pigeon", data=b"{}") as unknown:
                assert unknown.status == 404
            async with http.post(f"{url}/telegram", data=b"{}") as forged:
                assert forged.status == 401


async def test_the_bots_own_code_may_call_it_beside_its_channels(
    life: Life, telegram: FakeTelegram, tmp_path: Path
) -> None:
    bot = life.bot("Hello.")
    async with await gateway_of(bot, telegram, tmp_path):
        ana = telegram.person("Ana")
        await telegram.person_says(ana, ana, "before it had a webhook", wait=False)
        assert (await bot.ask_channel("ana", "hello")).content == "Hello."
        await bot.notify(f"telegram:{telegram.token.split(':')[0]}:{ana.id}", "Your invoice is **due**.")
        sent = await telegram.wait_for(lambda: telegram.last(ana))
        assert sent.text == "Your invoice is due."
    with pytest.raises(NotRunning):
        await bot.ask_channel("ana", "hello")
