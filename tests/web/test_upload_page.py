"""Files chosen, dropped or pasted by a person, in a real Chromium."""

from __future__ import annotations

import asyncio

import pytest
from playwright.async_api import Browser, BrowserContext, FilePayload, Page, Route, expect

from channels import Message
from tests.web.conftest import Bot, Start, opened

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

TEXT: FilePayload = {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"Buy milk. " * 30_000}
DROP = """([kind, ...dropped]) => {
    const files = new DataTransfer();
    for (const [name, size] of dropped) files.items.add(new File([new Uint8Array(size)], name));
    const options = { clipboardData: files, dataTransfer: files, bubbles: true, cancelable: true };
    const [target, Kind] = kind === "paste" ? ["#text", ClipboardEvent] : ["#conversation", DragEvent];
    document.querySelector(target).dispatchEvent(new Kind(kind, options));
}"""


async def chosen(page: Page) -> None:
    await page.locator("#file").set_input_files(TEXT)


async def test_a_chosen_file_is_sent_and_shown_with_its_words(bot: Bot, start: Start, context: BrowserContext) -> None:
    async with start():
        page = await opened(context, bot)
        await chosen(page)
        waiting = page.locator("#chosen li")
        await expect(waiting).to_contain_text("notes.txt300 kB")
        await page.get_by_label("Your message").fill("what does it say?")
        await page.keyboard.press("Enter")
        await bot.arrived(1)
        await expect(waiting).to_have_count(0)
        card = page.get_by_role("log").get_by_role("link", name="notes.txt")
        await expect(card).to_contain_text("300 kB")
        async with page.expect_download() as download:
            await card.click()
        assert (await (await download.value).path()).read_bytes() == TEXT["buffer"]
    [message] = bot.accepted
    assert isinstance(message, Message)
    assert message.text == "what does it say?"
    assert [file.filename for file in message.attachments] == ["notes.txt"]


async def test_refusals_are_told_in_the_persons_words(bot: Bot, start: Start, browser: Browser) -> None:
    theirs = await browser.new_context(locale="de-DE")
    async with start():
        page = await opened_in_german(theirs, bot)
        small = [[f"{number}.txt", 9] for number in range(11)]
        await page.evaluate(DROP, ["drop", ["empty.txt", 0], ["film.mp4", 20_000_001], *small])
        told = page.locator("#chosen .failed")
        await expect(told).to_have_text(
            [
                "empty.txtDie Datei ist leer×",
                "film.mp4Größer als 20 MB×",
                "10.txtHöchstens 10 Dateien auf einmal×",
            ]
        )
        await page.get_by_role("button", name="0.txt entfernen", exact=True).click()
        await page.get_by_role("button", name="Senden").click()
        await bot.arrived(1)
        await expect(page.locator("#chosen li")).to_have_count(0)
        await theirs.close()
    [message] = bot.accepted
    assert isinstance(message, Message)
    assert [file.filename for file in message.attachments] == [f"{number}.txt" for number in range(1, 10)]


async def opened_in_german(theirs: BrowserContext, bot: Bot) -> Page:
    page = await theirs.new_page()
    await page.goto(f"{bot.url}/chat")
    await expect(page.get_by_role("status")).to_have_text("Verbunden")
    return page


@pytest.mark.parametrize("kind", ["drop", "paste"])
async def test_a_file_comes_by_drop_and_by_paste(bot: Bot, start: Start, context: BrowserContext, kind: str) -> None:
    async with start():
        page = await opened(context, bot)
        if kind == "drop":
            await page.evaluate(DROP, ["dragover", ["INV-7.pdf", 9]])
            await expect(page.get_by_text("Drop the files here")).to_be_visible()
        await page.evaluate(DROP, [kind, ["INV-7.pdf", 9]])
        await expect(page.get_by_text("Drop the files here")).to_be_hidden()
        await expect(page.locator("#chosen li")).to_contain_text("INV-7.pdf")
        await page.get_by_role("button", name="Send", exact=True).click()
        await bot.arrived(1)
        await expect(page.get_by_role("log").get_by_role("link", name="INV-7.pdf")).to_be_visible()


async def test_words_wait_for_the_files_before_them(bot: Bot, start: Start, context: BrowserContext) -> None:
    gate = asyncio.Event()

    async def hold(route: Route) -> None:
        await gate.wait()
        await route.continue_()

    async with start():
        page = await opened(context, bot)
        await page.route("**/chat/files*", hold)
        await chosen(page)
        await page.get_by_label("Your message").fill("look")
        await page.keyboard.press("Enter")
        await page.get_by_label("Your message").fill("and then?")
        await page.keyboard.press("Enter")
        await expect(page.locator(".sending")).to_have_count(2)
        await expect(page.get_by_role("progressbar")).to_be_visible()
        gate.set()
        await bot.arrived(2)
        await expect(page.locator(".sending")).to_have_count(0)
    assert [event.text for event in bot.accepted if isinstance(event, Message)] == ["look", "and then?"]


async def test_a_file_that_is_not_kept_is_told_and_tried_again(bot: Bot, start: Start, context: BrowserContext) -> None:
    bot.is_full = True
    async with start():
        page = await opened(context, bot)
        await chosen(page)
        await expect(page.locator("#chosen .failed")).to_contain_text("No more files are kept for you now")
        await page.get_by_label("Your message").fill("look")
        await page.keyboard.press("Enter")
        await expect(page.locator(".message.failed")).to_contain_text("No more files are kept for you now")
        assert not bot.accepted
        bot.is_full = False
        await page.get_by_role("button", name="Try again").click()
        await bot.arrived(1)
        await expect(page.get_by_role("log").get_by_role("link", name="notes.txt")).to_be_visible()


async def test_a_connection_that_breaks_goes_on_where_it_was(bot: Bot, start: Start, context: BrowserContext) -> None:
    broken: list[str] = []

    async def break_third(route: Route) -> None:
        broken.append(route.request.url)
        await (route.abort() if len(broken) == 3 else route.continue_())

    async with start():
        page = await opened(context, bot)
        await page.route("**/chat/files*", break_third)
        await chosen(page)
        await page.get_by_role("button", name="Send", exact=True).click()
        await bot.arrived(1)
    assert len(broken) == 4
    assert "at=262144" in broken[2]
    assert broken[3] == broken[2]
