"""A photo reaches the model through a real ``askfirst serve``, from each platform, and the answer grows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.wording import say
from tests.artifacts.test_pictures import png
from tests.cli.processes import Page, forked
from tests.e2e.house import SECRET, env_of
from tests.fakes.openai import FakeOpenAI, Say
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import FakeTelegram
from tests.fakes.twilio import FakeTwilio, Media
from tests.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "invoices.py"
PNG = png(640, 480) + b"pixels"

pytestmark = pytest.mark.timeout(180)


def serve(port: int) -> tuple[Any, ...]:
    return ("serve", EXAMPLE, "--host", "127.0.0.1", "--port", str(port))


def shown(model: FakeOpenAI) -> bool:
    return "iVBORw0KGgo" in str(model.requests[-1]["messages"][-1]["content"])


async def test_on_telegram_a_photo_is_seen_and_the_answer_grows(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, FakeOpenAI() as model:
        hold, words = asyncio.Event(), "A black cat that sleeps on a **pile of invoices**."
        model.script([Say(words, hold=hold, holds_after=6)])
        async with forked(*serve(0), cwd=tmp_path, env=env_of(tmp_path, telegram, model)) as bot:
            telegram.webhook.update(url=f"{await bot.url()}/webhooks/telegram", secret=SECRET)
            ana = telegram.person("Ana")
            photo = telegram.upload("photo", PNG, "", "image/png")
            await telegram.person_says(ana, ana, "what is this?", file=photo)
            await telegram.wait_for(lambda: bool(telegram.drafts))
            draft = telegram.drafts[-1]
            assert draft.text
            assert "A black cat that sleeps on a pile of invoices.".startswith(draft.text)
            assert not telegram.sent
            hold.set()
            answer = await telegram.wait_for(lambda: telegram.last(ana))
            assert answer.text == "A black cat that sleeps on a pile of invoices."
            assert shown(model)


async def test_on_slack_a_photo_is_seen_and_a_login_page_is_none(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FakeOpenAI() as model:
        model.script(["A cat."])
        async with forked(*serve(0), cwd=tmp_path, env=env_of(tmp_path, slack, model)) as bot:
            slack.webhook = f"{await bot.url()}/webhooks/slack"
            ana = slack.person("ana")
            photo = slack.upload("cat.png", PNG, "image/png")
            await slack.says(ana, slack.direct(ana), "what is this?", files=[photo])
            await slack.wait_for(lambda: slack.sent)
            assert [sent.shown for sent in slack.sent] == ["A cat."]
            assert shown(model)


async def test_on_whatsapp_a_photo_is_seen_and_a_lost_one_is_told(tmp_path: Path) -> None:
    async with FakeTwilio() as twilio, FakeOpenAI() as model:
        port = free_port()
        twilio.webhook_url = f"http://127.0.0.1:{port}/webhooks/twilio"
        env = env_of(tmp_path, twilio, model, ASKFIRST_PUBLIC_URL=f"http://127.0.0.1:{port}")
        model.script(["A cat.", "I see nothing."])
        async with forked(*serve(port), cwd=tmp_path, env=env) as bot:
            await bot.url()
            photo = Media(PNG, "image/png", "")
            await twilio.person_says("+15557654321", "what is this?", whatsapp=True, files=[photo])
            await twilio.wait_for(lambda: [sent.body for sent in twilio.sent] == ["A cat."])
            assert shown(model)
            await twilio.person_says("+15557654321", "and this?", whatsapp=True, files=[Media(b"", "image/png", "")])
            told = say("file_not_read", "en", name="image")
            await twilio.wait_for(lambda: told in [sent.body for sent in twilio.sent])
            assert "not read: it is empty" in str(model.requests[-1]["messages"][-1]["content"])


async def test_on_the_page_a_photo_is_seen_and_anothers_is_not(tmp_path: Path) -> None:
    async with FakeOpenAI() as model:
        model.script(["A cat.", "I see nothing."])
        bot_file = tmp_path / "invoices.py"
        bot_file.write_text(EXAMPLE.read_text())
        dev = ("dev", bot_file, "--port", "0")
        async with forked(*dev, cwd=tmp_path, env=env_of(tmp_path, model)) as bot:
            url = await bot.url()
            async with browser(url) as page:
                photo = await page.uploads("cat.png", PNG)
                await page.says("what is this?", photo)
                await page.sees("A cat.")
                assert shown(model)
            async with browser(url) as thief:
                await thief.says("and this?", photo)
                await thief.sees(say("file_not_read", "en", name="cat.png"))
                assert "iVBORw0KGgo" not in str(model.requests[-1])


@asynccontextmanager
async def browser(url: str) -> AsyncIterator[Page]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        page = Page(http, url)
        await page.open()
        yield page
