"""The answer on the page while it is written, in a real Chromium: shown at once, and in no message of its own."""

from __future__ import annotations

import pytest
from playwright.async_api import BrowserContext, expect

from channels import Address, Event, Reply
from tests.web.conftest import Bot, Start, opened

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]


def here(event: Event) -> Address:
    return Address(channel="webchat", account="local", place=event.address.place)


async def test_an_answer_grows_and_becomes_a_message(bot: Bot, start: Start, context: BrowserContext) -> None:
    async with start():
        page = await opened(context, bot)
        await page.get_by_label("Your message").fill("hello")
        await page.keyboard.press("Enter")
        await bot.arrived(1)
        stream = await bot.channel.stream(here(bot.accepted[0]))
        draft = page.locator("#draft .bubble")
        await stream.update("Hello **An")
        await expect(draft).to_have_text("Hello An")
        await expect(draft.locator("strong")).to_have_text("An")
        await stream.update('Hello **Ana**, <img src=x onerror="document.title=1"> [x](javascript:1)')
        await expect(draft).to_contain_text("Hello Ana, <img src=x")
        assert await draft.locator("img, a").count() == 0
        assert await page.get_by_role("log").locator(".bot").count() == 0, "no message is announced yet"
        async with bot.changed:
            bot.says(bot.accepted[0].address.place, "1", Reply(text="Hello Ana."))
            bot.changed.notify_all()
        await expect(page.get_by_role("log").locator(".bot .bubble")).to_have_text(["Hello Ana."])
        await expect(draft).to_have_count(0)


async def test_another_session_sees_no_draft(bot: Bot, start: Start, context: BrowserContext) -> None:
    async with start():
        page = await opened(context, bot)
        await page.get_by_label("Your message").fill("hello")
        await page.keyboard.press("Enter")
        await bot.arrived(1)
        mine = here(bot.accepted[0])
        await (await bot.channel.stream(Address(channel="webchat", account="local", place="other"))).update("secret")
        await (await bot.channel.stream(mine)).update("mine")
        await expect(page.locator("#draft .bubble")).to_have_text("mine")
