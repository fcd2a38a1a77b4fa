"""The page in a real Chromium: what a person sees and does."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from playwright.async_api import BrowserContext, Page, async_playwright, expect

from channels import Address, Button, ButtonPress, Event, Message, Reply
from gateway.store.base import StoreUnavailable
from tests.web.conftest import Bot, Start

pytestmark = pytest.mark.browser

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
CONFIRM = Button(label="Confirm", token="00yes", style="confirm")
CANCEL = Button(label="Cancel", token="00no", style="cancel")


def invoices(bot: Bot, event: Event) -> None:
    """A bot that asks before it deletes."""
    session = event.address.place
    if isinstance(event, ButtonPress):
        bot.says(session, "edit", Reply(text="Delete **INV-42**?\n\nConfirmed by you.", edits=event.message_id))
        bot.says(session, "done", Reply(text="Done: Delete INV-42"))
        bot.feed.publish("action_done", tool="delete_invoice")
    elif isinstance(event, Message) and event.text == "delete INV-42":
        bot.feed.publish("tool_asked", tool="delete_invoice", args={"invoice_id": "INV-42"})
        bot.says(session, "ask", Reply(text="Delete **INV-42**?", buttons=(CONFIRM, CANCEL)))
    elif isinstance(event, Message) and event.text == "break":
        bot.feed.publish("tool_error", tool="break_it", cause="Traceback …\nValueError: broken")
        bot.says(session, "hostile", Reply(text="<img src=x onerror=\"document.title='owned'\"> | [x](javascript:1)"))


@pytest.fixture
async def context(browser_executable: Path) -> AsyncIterator[BrowserContext]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=browser_executable, args=FLAGS)
        context = await browser.new_context(viewport={"width": 1200, "height": 800})
        # A script or style that the policy stopped, a file that is not there or an error in ours is a broken page.
        broken: list[str] = []
        context.on("weberror", lambda error: broken.append(str(error.error)))
        context.on("console", lambda said: broken.append(said.text) if re.search("Policy|404", said.text) else None)
        yield context
        await browser.close()
        assert broken == []


async def opened(context: BrowserContext, bot: Bot) -> Page:
    page = await context.new_page()
    await page.goto(f"{bot.url}/chat")
    await expect(page.get_by_role("status")).to_have_text("Connected")
    return page


async def say(page: Page, words: str) -> None:
    await page.get_by_label("Your message").fill(words)
    await page.keyboard.press("Enter")


async def test_a_person_asks_confirms_and_finds_it_all_again_after_a_reload(
    bot: Bot, start: Start, context: BrowserContext
) -> None:
    bot.answer = invoices
    async with start():
        page = await opened(context, bot)
        await say(page, "delete INV-42")
        confirm = page.get_by_role("button", name="Confirm")
        await expect(page.get_by_role("log").locator("strong")).to_have_text("INV-42")
        await confirm.dblclick()
        await bot.arrived(2)

        async def all_is_there() -> None:
            bubbles = page.get_by_role("log").locator(".bubble")
            await expect(bubbles).to_have_text(
                ["delete INV-42", "Delete INV-42?\nConfirmed by you.", "Done: Delete INV-42"], use_inner_text=True
            )
            await expect(page.get_by_role("log").get_by_role("button")).to_have_count(0)
            await expect(page.locator("#notices .what")).to_have_text(
                ["tool asked · delete_invoice", "action done · delete_invoice"]
            )

        await all_is_there()
        await page.reload()
        await all_is_there()
    presses = [event for event in bot.accepted if isinstance(event, ButtonPress)]
    assert [(press.token, press.message_id) for press in presses] == [("00yes", "ask.0")]


async def test_a_file_can_be_downloaded_and_a_picture_seen(
    bot: Bot, start: Start, context: BrowserContext, tmp_path: Path
) -> None:
    pixel = bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360606060000000050001"
        "a5f645400000000049454e44ae426082"
    )
    pdf, picture = await bot.keeps(b"%PDF-1.7", "INV-7.pdf"), await bot.keeps(pixel, "chart.png")
    bot.answer = lambda bot, event: bot.says(event.address.place, "files", Reply(media=(pdf, picture)))
    async with start():
        page = await opened(context, bot)
        await say(page, "send me INV-7")
        async with page.expect_download() as download:
            await page.get_by_role("link", name="INV-7.pdf").click()
        await (await download.value).save_as(tmp_path / "got.pdf")
        await page.wait_for_function("document.querySelector('img[alt=\"chart.png\"]')?.naturalWidth === 1")
    assert (await download.value).suggested_filename == "INV-7.pdf"
    assert (tmp_path / "got.pdf").read_bytes() == b"%PDF-1.7"


async def test_what_the_bot_writes_does_nothing_and_a_traceback_is_in_the_console_only(
    bot: Bot, start: Start, context: BrowserContext
) -> None:
    bot.answer = invoices
    async with start():
        page = await opened(context, bot)
        await say(page, "break")
        await expect(page.locator(".bot .bubble")).to_contain_text("<img src=x")
        assert await page.title() == "Invoices"
        assert await page.locator(".bot .bubble img, .bot .bubble a").count() == 0
        await expect(page.locator("#notices pre")).to_contain_text("ValueError: broken")


async def test_what_was_not_stored_is_sent_again_and_arrives_once(
    bot: Bot, start: Start, context: BrowserContext
) -> None:
    bot.fail.append(StoreUnavailable("busy"))
    async with start():
        page = await opened(context, bot)
        await say(page, "hello")
        await expect(page.locator(".person .bubble")).to_have_text("hello")
        await bot.arrived(1)
        await expect(page.locator(".person:not(.sending):not(.failed) .bubble")).to_have_text(["hello"])
    assert [cast(Message, event).text for event in bot.accepted] == ["hello"]


async def test_a_session_that_has_ended_is_told(bot: Bot, start: Start, context: BrowserContext) -> None:
    async with start() as running:
        port = running.port
        page = await opened(context, bot)
        await context.clear_cookies()
        await running.cleanup()
        async with start(port=port):
            await expect(page.get_by_role("status")).to_have_text("Session ended: reload the page", timeout=15_000)
            await page.reload()
            await expect(page.get_by_role("status")).to_have_text("Connected")


async def test_it_shows_that_the_bot_writes_and_reconnects_by_itself(
    bot: Bot, start: Start, context: BrowserContext
) -> None:
    async with start() as running:
        page = await opened(context, bot)
        await say(page, "hello")
        await bot.arrived(1)
        session = bot.accepted[0].address.place
        await bot.channel.typing(Address(channel="webchat", account="local", place=session))
        await expect(page.locator("#typing")).to_be_visible()
        async with bot.changed:
            bot.says(session, "m1", Reply(text="Here I am."))
            bot.changed.notify_all()
        await expect(page.locator("#typing")).to_be_hidden()
        port = running.port
        await running.cleanup()
        await expect(page.get_by_role("status")).to_have_text("Reconnecting…")
        async with start(port=port):
            await expect(page.get_by_role("status")).to_have_text("Connected", timeout=15_000)
            async with bot.changed:
                bot.says(session, "m2", Reply(text="And again."))
                bot.changed.notify_all()
            await expect(page.locator(".bot .bubble")).to_have_text(["Here I am.", "And again."])


def heard(bot: Bot) -> list[tuple[str, str | None]]:
    return [(event.text, event.after) for event in bot.accepted if isinstance(event, Message)]


async def shows(bot: Bot, session: str, message_id: str, reply: Reply) -> None:
    async with bot.changed:
        bot.says(session, message_id, reply)
        bot.changed.notify_all()


async def test_words_say_what_the_page_showed_when_they_were_sent(
    bot: Bot, start: Start, context: BrowserContext
) -> None:
    """In every tab, and after a reload. The edit of an older message shows nothing newer."""
    async with start():
        page = await opened(context, bot)
        await say(page, "one")
        await bot.arrived(1)
        session = bot.accepted[0].address.place
        await shows(bot, session, "hello", Reply(text="Hello."))
        await shows(bot, session, "ask", Reply(text="Delete it?", buttons=(CONFIRM, CANCEL)))
        await shows(bot, session, "edit", Reply(text="Hello again.", edits="hello.0"))
        await expect(page.locator(".bot .bubble")).to_have_text(["Hello again.", "Delete it?"])
        await say(page, "two")
        await bot.arrived(2)
        await page.reload()
        await expect(page.locator(".bot .bubble")).to_have_text(["Hello again.", "Delete it?"])
        await say(page, "three")
        await bot.arrived(3)
        other = await opened(context, bot)
        await expect(other.locator(".bot .bubble")).to_have_text(["Hello again.", "Delete it?"])
        await shows(bot, session, "done", Reply(text="Done."))
        await expect(other.locator(".bot .bubble").last).to_have_text("Done.")
        await say(other, "four")
        await bot.arrived(4)
    assert heard(bot) == [("one", None), ("two", "ask.0"), ("three", "ask.0"), ("four", "done.0")]


async def test_words_sent_again_say_what_was_shown_at_first(bot: Bot, start: Start, context: BrowserContext) -> None:
    """The question has come in between: a yes that was written before it is no answer to it."""
    async with start():
        page = await opened(context, bot)
        await say(page, "hello")
        await bot.arrived(1)
        session = bot.accepted[0].address.place
        await shows(bot, session, "hello", Reply(text="Shall I look?"))
        await expect(page.locator(".bot .bubble")).to_have_text(["Shall I look?"])
        await page.route("**/chat/messages", lambda route: route.fulfill(status=429), times=1)
        await say(page, "yes")
        again = page.get_by_role("button", name="Try again")
        await expect(again).to_be_visible()
        await shows(bot, session, "ask", Reply(text="Delete **INV-42**?", buttons=(CONFIRM, CANCEL)))
        await expect(page.locator(".bot .bubble").last).to_have_text("Delete INV-42?")
        await again.click()
        await bot.arrived(2)
    assert heard(bot) == [("hello", None), ("yes", "hello.0")]
