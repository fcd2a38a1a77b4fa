"""The page in a real Chromium, as a person sees and uses it."""

from __future__ import annotations

import struct
import zlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, cast

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, expect

from channels import Address, AnswerStopped, Button, ButtonPress, Event, Message, Reply, Settled
from channels.formatting import time_link
from gateway.store.errors import StoreUnavailable
from tests.web.conftest import Bot, Start, opened

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

CONFIRM = Button(label="Confirm", token="00yes", style="confirm")
CANCEL = Button(label="Cancel", token="00no", style="cancel")


def invoices(bot: Bot, event: Event) -> None:
    """A bot with a deletion that needs a yes."""
    session = event.address.place
    if isinstance(event, ButtonPress):
        bot.says(session, "edit", Reply(text="Delete **INV-42**?\n\nConfirmed by you.", edits=event.message_id))
        bot.says(session, "done", Reply(text="Done: Delete INV-42"))
    elif isinstance(event, Message) and event.text == "delete INV-42":
        bot.says(session, "ask", Reply(text="Delete **INV-42**?", buttons=(CONFIRM, CANCEL)))
    elif isinstance(event, Message) and event.text == "break":
        bot.says(session, "hostile", Reply(text="<img src=x onerror=\"document.title='owned'\"> | [x](javascript:1)"))


async def say(page: Page, words: str) -> None:
    await page.get_by_label("Your message").fill(words)
    await page.keyboard.press("Enter")


async def test_confirmed_ask_is_all_there_again_after_a_reload(bot: Bot, start: Start, context: BrowserContext) -> None:
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
            await expect(page.get_by_role("log").locator(".buttons button")).to_have_count(0)

        await all_is_there()
        await page.reload()
        await all_is_there()
    presses = [event for event in bot.accepted if isinstance(event, ButtonPress)]
    assert [(press.token, press.message_id) for press in presses] == [("00yes", "ask.0")]


async def test_a_file_is_downloaded_and_shown(bot: Bot, start: Start, context: BrowserContext, tmp_path: Path) -> None:
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
        await page.wait_for_function("() => document.querySelector('img[alt=\"chart.png\"]')?.naturalWidth === 1")
    assert (await download.value).suggested_filename == "INV-7.pdf"
    assert (tmp_path / "got.pdf").read_bytes() == b"%PDF-1.7"


async def test_bot_text_is_inert(bot: Bot, start: Start, context: BrowserContext) -> None:
    bot.answer = invoices
    async with start():
        page = await opened(context, bot)
        await say(page, "break")
        await expect(page.locator(".bot .bubble")).to_contain_text("<img src=x")
        assert await page.title() == "Invoices"
        assert await page.locator(".bot .bubble img, .bot .bubble a").count() == 0


async def test_unstored_message_is_sent_again_once(bot: Bot, start: Start, context: BrowserContext) -> None:
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


async def test_page_shows_typing_and_reconnects_by_itself(bot: Bot, start: Start, context: BrowserContext) -> None:
    async with start() as running:
        page = await opened(context, bot)
        await say(page, "hello")
        await bot.arrived(1)
        session = bot.accepted[0].address.place
        await bot.channel.typing(Address(channel="webchat", account="local", place=session))
        await expect(page.locator("#typing")).to_be_visible()
        await shows(bot, session, "m1", Reply(text="Here I am."))
        await expect(page.locator("#typing")).to_be_hidden()
        port = running.port
        await running.cleanup()
        await expect(page.get_by_role("status")).to_have_text("Reconnecting…")
        async with start(port=port):
            await expect(page.get_by_role("status")).to_have_text("Connected", timeout=15_000)
            await shows(bot, session, "m2", Reply(text="And again."))
            await expect(page.locator(".bot .bubble")).to_have_text(["Here I am.", "And again."])


def heard(bot: Bot) -> list[tuple[str, str | None]]:
    return [(event.text, event.after) for event in bot.accepted if isinstance(event, Message)]


async def shows(bot: Bot, session: str, message_id: str, reply: Reply) -> None:
    async with bot.changed:
        bot.says(session, message_id, reply)
        bot.changed.notify_all()


async def test_messages_carry_the_newest_shown_entry(bot: Bot, start: Start, context: BrowserContext) -> None:
    """In every tab, and after a reload. The edit of an older message is no newer entry."""
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


async def test_messages_sent_again_carry_the_first_shown_entry(bot: Bot, start: Start, context: BrowserContext) -> None:
    """The question comes in between: a yes written before the question does not answer it."""
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


TABLE = """
| number | customer | amount |
| --- | --- | --: |
| INV-7 | Blue Bakery of the Harbour | 1,280.00 EUR |
"""
CODE = f"```\nshort\n{'a long line ' * 20}\n```\n\n- [x] paid\n- [ ] sent\n\nhttps://a.example/x"


def picture(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(bytes(width + 1) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def pair(code: str) -> tuple[Button, Button]:
    return (
        Button(label=f"Confirm {code}", token=f"{code} yes", style="confirm"),
        Button(label=f"Cancel {code}", token=f"{code} no", style="cancel"),
    )


SCROLL_UP = """scroll => new Promise((done) => {
    scroll.addEventListener("scroll", () => done(), { once: true });
    scroll.scrollTo(0, 0);
})"""
AT_END = """() => {
    const scroll = document.querySelector("#scroll");
    return !window.growing && scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 2;
}"""
GROW_BEFORE_IT_IS_HEARD_THAT_THE_PAGE_SCROLLED = """
    const grow = () => {
        const item = document.createElement("li");
        item.style.height = "300px";
        document.querySelector("#log").append(item);
    };
    window.growing = true;
    grow();
    requestAnimationFrame(() => setTimeout(() => {
        grow();
        requestAnimationFrame(() => requestAnimationFrame(() => { window.growing = false; }));
    }));
"""
"""Grow the log twice in a row, like a picture that loads at once: the scroll event comes after both."""
STATES: tuple[Literal["done", "not_done", "failed", "unknown", "expired"], ...] = (
    "done",
    "not_done",
    "failed",
    "unknown",
    "expired",
)


async def begun(page: Page, bot: Bot) -> str:
    await say(page, "hello")
    await bot.arrived(1)
    return bot.accepted[0].address.place


Chat = tuple[Page, str]


@pytest_asyncio.fixture(loop_scope="module")
async def chat(bot: Bot, start: Start, context: BrowserContext) -> AsyncIterator[Chat]:
    """The page after a person's first message, and the session."""
    async with start():
        page = await opened(context, bot)
        yield page, await begun(page, bot)


async def asks(bot: Bot, session: str, message_id: str, *codes: str, **more: str) -> None:
    buttons = tuple(button for code in codes for button in pair(f"{code}{more.get('showing', '')}"))
    async with bot.changed:
        bot.says(session, message_id, Reply(text="Delete?", buttons=buttons, exact=True), asks=codes)
        bot.changed.notify_all()


async def tops(page: Page) -> list[float]:
    found = await page.locator(".buttons button").evaluate_all(
        "all => all.map((one) => one.getBoundingClientRect().top)"
    )
    return cast("list[float]", found)


async def test_markdown_is_legible_on_every_width(bot: Bot, start: Start, context: BrowserContext) -> None:
    await context.grant_permissions(["clipboard-read", "clipboard-write"])
    async with start():
        page = await opened(context, bot)
        session = await begun(page, bot)
        await shows(bot, session, "table", Reply(text=TABLE))
        await shows(bot, session, "code", Reply(text=CODE))
        amount = page.get_by_role("cell", name="1,280.00 EUR")
        await expect(amount).to_have_css("text-align", "right")
        assert await amount.evaluate("cell => cell.getClientRects().length === 1 && cell.offsetHeight < 45")
        await page.get_by_role("button", name="Copy", exact=True).click()
        await expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert await page.evaluate("navigator.clipboard.readText()") == f"short\n{'a long line ' * 20}\n"
        assert await page.locator("pre").evaluate("code => code.scrollWidth > code.clientWidth")
        boxes = page.get_by_role("log").get_by_role("checkbox")
        assert [await box.is_checked() for box in await boxes.all()] == [True, False]
        link = page.get_by_role("link", name="https://a.example/x")
        assert "noopener" in (await link.get_attribute("rel") or "")
        for width in (390, 320):
            await page.set_viewport_size({"width": width, "height": 640})
            await expect(page.locator("thead")).to_be_hidden()
            name = "getComputedStyle(document.querySelectorAll('td')[1], '::before').content"
            assert await page.evaluate(name) == '"customer"'
            assert await page.evaluate("document.querySelector('#scroll').scrollWidth <= innerWidth")


async def test_stop_button_stands_while_an_answer_is_written(bot: Bot, start: Start, context: BrowserContext) -> None:
    async with start():
        page = await opened(context, bot)
        session = await begun(page, bot)
        stop, send = page.get_by_role("button", name="Stop the answer"), page.get_by_role("button", name="Send")
        await expect(send).to_be_visible()
        await bot.channel.typing(Address(channel="webchat", account="local", place=session))
        await expect(send).to_be_hidden()
        await stop.click()
        await bot.arrived(2)
        await page.get_by_label("Your message").fill("and then?")
        await expect(send).to_be_visible()
        await shows(bot, session, "half", Reply(text="Half an…"))
        await expect(stop).to_be_hidden()
    assert isinstance(bot.accepted[1], AnswerStopped)


async def test_only_the_log_scrolls(bot: Bot, start: Start, context: BrowserContext) -> None:
    async with start():
        page = await opened(context, bot)
        session = await begun(page, bot)
        for number in range(40):
            await shows(bot, session, f"line {number}", Reply(text=f"message {number}"))
        for width, height in ((1280, 800), (390, 844), (320, 640)):
            await page.set_viewport_size({"width": width, "height": height})
            assert await page.evaluate("document.scrollingElement.scrollHeight <= innerHeight")
            await page.mouse.move(width / 2, 10)
            await page.mouse.wheel(0, 5000)
            await expect(page.get_by_label("Your message")).to_be_in_viewport()
            await expect(page.get_by_role("heading", level=1)).to_be_in_viewport()


async def test_empty_page_has_a_greeting_with_phrases_to_press(bot: Bot, start: Start, context: BrowserContext) -> None:
    bot.greeting = "Hello! Try **list invoices**, or **delete INV-42**."
    async with start():
        page = await opened(context, bot)
        assert await page.locator(".greeting").inner_text() == "Hello! Try list invoices, or delete INV-42."
        await page.get_by_role("button", name="delete INV-42").click()
        await bot.arrived(1)
        await expect(page.locator("#empty")).to_be_hidden()
    assert heard(bot) == [("delete INV-42", None)]


async def test_page_keeps_to_the_end_after_a_late_picture(bot: Bot, start: Start, context: BrowserContext) -> None:
    image, pdf = await bot.keeps(picture(400, 300), "chart.png"), await bot.keeps(b"%PDF-1.7", "INV-7.pdf")
    async with start():
        page = await opened(context, bot)
        await page.set_viewport_size({"width": 390, "height": 400})
        session = await begun(page, bot)
        await shows(bot, session, "words", Reply(text="\n\n".join(["Here."] * 20)))
        await shows(bot, session, "files", Reply(media=(image, pdf)))
        await expect(page.get_by_role("link", name="INV-7.pdf")).to_be_in_viewport()
        await page.wait_for_function("() => document.querySelector('img').naturalWidth === 400")
        await page.wait_for_function(AT_END)
        await page.evaluate(GROW_BEFORE_IT_IS_HEARD_THAT_THE_PAGE_SCROLLED)
        await page.wait_for_function(AT_END)
        await page.locator("#scroll").evaluate(SCROLL_UP)
        await shows(bot, session, "more", Reply(text="More."))
        await page.get_by_role("button", name="New messages").click()
        await expect(page.get_by_text("More.")).to_be_in_viewport()


async def test_the_keyboard_goes_on_in_the_box_and_a_draft_is_kept(bot: Bot, chat: Chat) -> None:
    page, session = chat
    await asks(bot, session, "ask", "A1")
    confirm = page.get_by_role("button", name="Confirm A1")
    await confirm.focus()
    await page.keyboard.press("Enter")
    await bot.arrived(2)
    await page.keyboard.type("and now")
    box = page.get_by_label("Your message")
    await expect(box).to_have_value("and now")
    await page.reload()
    await expect(box).to_have_value("and now")


async def test_the_page_speaks_portuguese(bot: Bot, start: Start, browser: Browser) -> None:
    theirs = await browser.new_context(locale="pt-BR", timezone_id="America/Sao_Paulo")
    async with start():
        page = await theirs.new_page()
        await page.goto(f"{bot.url}/chat")
        await expect(page.get_by_role("status")).to_have_text("Conectado")
        await page.get_by_placeholder("Escreva uma mensagem").fill("oi")
        await page.keyboard.press("Enter")
        await bot.arrived(1)
        session = bot.accepted[0].address.place
        await asks(bot, session, "ask", "A1")
        at = datetime(2026, 3, 1, 21, 2, tzinfo=UTC)
        note = Reply(
            text=f"**Apagar**\n\n✅ Confirmado por você, feito às {time_link('21:02 UTC', at, with_day=False)}.",
            edits="ask.0",
            exact=True,
            settled=(Settled(state="done"),),
        )
        await shows(bot, session, "edit", note)
        bubble = page.locator(".bot .bubble")
        await expect(bubble).to_have_text("Apagar\nConfirmado por você, feito às 18:02.\n")
        await theirs.close()


async def test_a_question_is_answered_where_it_stands_last(bot: Bot, chat: Chat) -> None:
    """A pair of buttons is never split."""
    page, session = chat
    await asks(bot, session, "first", "A1", "B2")
    first, second = page.locator(".message.bot").first, page.locator(".message.bot").last
    await expect(first.locator(".buttons button")).to_have_text(["Confirm A1", "Cancel A1", "Confirm B2", "Cancel B2"])
    for width in (560, 390, 320):
        await page.set_viewport_size({"width": width, "height": 640})
        one, other, three, four = await tops(page)
        assert one == other < three == four
    await asks(bot, session, "again", "A1", showing="x")
    await expect(second.locator(".buttons button")).to_have_text(["Confirm A1x", "Cancel A1x"])
    # The edit of the older showing takes its buttons off.
    await shows(bot, session, "edit", Reply(text="1\\. Delete?\n\n2\\. Delete?", edits="first.0"))
    await expect(first.locator(".buttons button")).to_have_count(0)
    await page.reload()
    await expect(first.locator(".buttons button")).to_have_count(0)
    await expect(second.locator(".buttons button")).to_have_text(["Confirm A1x", "Cancel A1x"])


async def test_plan_has_a_pair_and_a_button_a_number(bot: Bot, chat: Chat) -> None:
    page, session = chat
    numbers = [Button(label=f"Confirm {number}", token=f"{number} yes") for number in (1, 2, 3)]
    small = "In words: 1 OK K7PA, 2 OK A2CD, 3 OK B3CD, or NO with the code."
    plan = Reply(text=f"1\\. A?\n2\\. B?\n3\\. C?\n\n{small}", buttons=(*pair("all"), *numbers), small=len(small))
    await shows(bot, session, "plan", plan)
    message = page.locator(".message.bot").last
    labels = ["Confirm all", "Cancel all", "Confirm 1", "Confirm 2", "Confirm 3"]
    await expect(message.locator(".buttons button")).to_have_text(labels)
    await expect(message.locator(".bubble")).not_to_contain_text("In words")
    await expect(message.locator(".small")).to_have_text(small)
    below = await message.locator(".small").bounding_box(), await message.locator(".buttons").bounding_box()
    assert below[0] and below[1] and below[0]["y"] >= below[1]["y"] + below[1]["height"]
    states = (Settled(state="open"), Settled(state="done"), Settled(state="open"))
    edit = Reply(text="1\\. A?\n2\\. Done.\n3\\. C?", buttons=plan.buttons, edits="plan.0", settled=states)
    await shows(bot, session, "edit", edit)
    await expect(message.get_by_role("button", name="Confirm 2")).to_be_disabled()
    for label in ("Confirm all", "Cancel all", "Confirm 1", "Confirm 3"):
        await expect(message.get_by_role("button", name=label)).to_be_enabled()
    await expect(message.locator(".small")).to_have_text("")


async def test_expired_question_can_be_asked_again(bot: Bot, start: Start, context: BrowserContext) -> None:
    again = (Button(label="Ask again", token="again"),)
    async with start():
        page = await opened(context, bot)
        session = await begun(page, bot)
        await asks(bot, session, "ask", "A1")
        await shows(bot, session, "told", Reply(text="This has expired.", buttons=again))
        edit = Reply(text="**Delete**\n\nExpired.", edits="ask.0", settled=(Settled(state="expired"),))
        await shows(bot, session, "edit", edit)
        first, second = page.locator(".message.bot").first, page.locator(".message.bot").last
        await expect(first.locator(".settled.expired")).to_have_text("Expired.")
        await expect(first.locator(".buttons button")).to_have_count(0)
        await expect(second.locator(".buttons button")).to_have_text(["Ask again"])
        await expect(page.locator(".asks")).to_have_count(0)


async def test_an_answered_question_of_two_keeps_its_place(bot: Bot, chat: Chat) -> None:
    page, session = chat
    await asks(bot, session, "ask", "A1", "B2")
    edit = Reply(
        text="1\\. 🚫 Not done.\n\n2\\. Delete?",
        buttons=(*pair("A1"), *pair("B2")),
        edits="ask.0",
        settled=(Settled(state="not_done"), Settled(state="open")),
    )
    await shows(bot, session, "edit", edit)
    await expect(page.locator(".bubble").last).to_contain_text("Not done.")
    for label in ("Confirm A1", "Cancel A1"):
        await expect(page.get_by_role("button", name=label)).to_be_disabled()
    await expect(page.get_by_role("button", name="Confirm B2")).to_be_enabled()
    await expect(page.locator(".settled")).to_have_count(0)


async def test_pressed_question_is_busy_until_settled_then_says_how(bot: Bot, chat: Chat) -> None:
    page, session = chat
    for number, state in enumerate(STATES, start=1):
        await asks(bot, session, f"ask{number}", f"A{number}")
        message = page.locator(".message.bot").last
        await message.get_by_role("button", name="Confirm").click()
        await expect(message.locator(".meta")).to_have_text("Working on it…")
        for button in await message.locator(".buttons button").all():
            await expect(button).to_be_disabled()
        how = Settled(state=state)
        edit = Reply(text="**Delete**\n\n🚫 So.", edits=f"ask{number}.0", exact=True, settled=(how,))
        await shows(bot, session, "edit", edit)
        await expect(message.locator(".bubble")).to_have_text("Delete\nSo.\n")
        await expect(message.locator(f".settled.{state}")).to_have_text("So.")
        await expect(message.locator(".buttons button")).to_have_count(0)
    # A press without a change is answered by a message, and can be repeated.
    await asks(bot, session, "last", "B2")
    confirm = page.get_by_role("button", name="Confirm B2")
    await confirm.click()
    await bot.arrived(7)
    await shows(bot, session, "no", Reply(text="This is not yours to answer."))
    await expect(confirm).to_be_enabled()


# ── The answer on the page while it is written, in a real Chromium: shown at once, and in no message of its own ──


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
