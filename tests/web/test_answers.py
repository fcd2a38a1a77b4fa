"""What stands beside the words on the page, in a real Chromium: copy, thumbs, again, steps, commands."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Locator, Page, expect

from channels import Button, Event, Feedback, Json, Message, Reply, Settled
from gateway.store.errors import StoreUnavailable
from tests.web.conftest import Bot, Start, opened

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

CONFIRM = Button(label="Confirm", token="00yes", style="confirm")
CANCEL = Button(label="Cancel", token="00no", style="cancel")
ANSWER = "It is **paid**.\n\n- by card"


def answers(bot: Bot, event: Event) -> None:
    session, number = event.address.place, len(bot.accepted)
    if isinstance(event, Message) and event.text.startswith("delete"):
        reply = Reply(text="Delete it?", buttons=(CONFIRM, CANCEL), exact=True)
        bot.says(session, f"ask{number}", reply, asks=["a1"])
    elif isinstance(event, Message):
        tools: list[Json] = [{"name": "look_up_invoice", "failed": False}, {"name": "ask-bank", "failed": True}]
        bot.write(session, {"from": "steps", "tools": tools})
        bot.says(session, f"m{number}", Reply(text=ANSWER))
    elif isinstance(event, Feedback):
        bot.write(session, {"from": "rating", "message_id": event.message_id, "value": event.value})


@pytest_asyncio.fixture(loop_scope="module")
async def page(bot: Bot, start: Start, context: BrowserContext) -> AsyncIterator[Page]:
    bot.answer = answers
    bot.commands = lambda language: {"help": f"help in {language}", "hello": "Say <b>hello</b>", "stop": "Stop"}
    async with start():
        await context.grant_permissions(["clipboard-read", "clipboard-write"])
        yield await opened(context, bot)


async def says(page: Page, words: str, times: int = 1) -> Locator:
    """Say something, and return the newest message of the bot."""
    await page.locator("#text").fill(words)
    await page.keyboard.press("Enter")
    await expect(page.locator(".message.bot")).to_have_count(times)
    return page.locator(".message.bot").last


async def test_an_answer_is_copied_as_markdown(page: Page) -> None:
    answer = await says(page, "is it paid?")
    await answer.get_by_role("button", name="Copy the message").click()
    await expect(answer.get_by_role("button", name="Copied")).to_be_visible()
    assert await page.evaluate("navigator.clipboard.readText()") == ANSWER
    question = await says(page, "delete it", 2)
    await question.get_by_role("button", name="Copy the message").click()
    await expect(question.get_by_role("button", name="Copied")).to_be_visible()
    assert await page.evaluate("navigator.clipboard.readText()") == "Delete it?"
    await expect(question.get_by_role("button", name="Good answer")).to_have_count(0)


async def test_a_thumb_is_told_changed_and_kept(page: Page, bot: Bot) -> None:
    answer = await says(page, "is it paid?")
    up, down = (answer.get_by_role("button", name=name) for name in ("Good answer", "Bad answer"))
    for button in (up, down, down, up):
        await button.click()
    await bot.arrived(5)
    rated = [(event.message_id, event.value) for event in bot.accepted if isinstance(event, Feedback)]
    assert rated == [("m1.0", "up"), ("m1.0", "down"), ("m1.0", None), ("m1.0", "up")]
    await page.reload()
    await expect(up).to_have_attribute("aria-pressed", "true")
    await expect(down).to_have_attribute("aria-pressed", "false")
    bot.fail += [StoreUnavailable("busy")] * 9  # it is not stored: the page shows what was before
    await down.click()
    await expect(up).to_have_attribute("aria-pressed", "true", timeout=30_000)
    bot.fail.clear()


async def test_the_last_words_are_said_again_once_pressed(page: Page, bot: Bot) -> None:
    again = page.get_by_role("button", name="Ask the same again")
    await says(page, "is it paid?")
    await again.click()
    await expect(page.locator(".message.bot")).to_have_count(2)
    await expect(again).to_have_count(1)
    await says(page, "/help", 3)
    await expect(again).to_have_count(0)
    said = [event.written for event in bot.accepted if isinstance(event, Message)]
    assert said == ["is it paid?", "is it paid?", "/help"]


async def test_no_words_of_a_question_are_said_again(page: Page, bot: Bot) -> None:
    """A repeated "yes" could mean another question."""
    again = page.get_by_role("button", name="Ask the same again")
    await says(page, "delete it")
    await expect(again).to_have_count(0)
    await says(page, "and is the other one paid?", 2)  # the question is still open
    await expect(again).to_have_count(0)
    session = bot.accepted[0].address.place
    async with bot.changed:
        done = Reply(text="Delete it", edits="ask1.0", exact=True, settled=(Settled(state="done"),))
        bot.says(session, "edit", done)
        bot.says(session, "outcome", Reply(text="It is deleted."))
        bot.changed.notify_all()
    await expect(page.locator(".message.bot")).to_have_count(3)
    await expect(again).to_have_count(0)
    await says(page, "is it paid?", 4)
    await expect(again).to_have_count(1)


async def test_steps_stay_folded_and_are_there_after_a_reload(page: Page) -> None:
    await says(page, "is it paid?")
    steps = page.locator(".steps")
    await page.reload()
    await expect(steps.locator("summary")).to_have_text("Steps: 2")
    await expect(steps.locator("li").first).to_be_hidden()
    await steps.locator("summary").click()
    await expect(steps.locator("li")).to_have_text(["Look up invoice", "Ask bankFailed"])
    assert await page.locator("#log").evaluate("log => [...log.children].map((each) => each.classList[0])") == [
        "message", "steps", "message",
    ]  # fmt: skip


async def test_a_slash_lists_the_commands(page: Page, bot: Bot) -> None:
    box, options = page.locator("#text"), page.get_by_role("listbox").get_by_role("option")
    await box.fill("/")
    await expect(options).to_have_text(["/helphelp in en", "/helloSay <b>hello</b>", "/stopStop"])
    await expect(options.first).to_have_attribute("aria-selected", "true")
    await page.keyboard.press("ArrowUp")
    await expect(box).to_have_attribute("aria-activedescendant", "command-stop")
    await page.keyboard.press("ArrowDown")
    await expect(box).to_have_attribute("aria-activedescendant", "command-help")
    await page.keyboard.type("hel")
    await expect(options).to_have_count(2)
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(box).to_have_value("/hello ")
    await expect(page.get_by_role("listbox")).to_be_hidden()
    await page.keyboard.press("Enter")
    await expect(page.locator(".person .bubble")).to_have_text("/hello")
    await bot.arrived(1)
    assert isinstance(bot.accepted[0], Message) and bot.accepted[0].command == "hello"


async def test_the_list_of_commands_closes_and_is_clicked(page: Page, bot: Bot) -> None:
    box, listed = page.locator("#text"), page.get_by_role("listbox")
    await box.fill("/")
    await page.keyboard.press("Escape")
    await expect(listed).to_be_hidden()
    await page.keyboard.type("s")
    await page.get_by_role("listbox").get_by_role("option").click()
    await expect(box).to_have_value("/stop ")
    await expect(box).to_be_focused()
    for words in ("/stop it", "a/b", "/nothing", "//"):
        await box.fill(words)
        await expect(listed).to_be_hidden()
    await box.fill("/stop")
    await expect(listed).to_be_visible()
    await page.keyboard.press("Enter")  # it is whole
    await bot.arrived(1)
    assert isinstance(bot.accepted[0], Message) and bot.accepted[0].command == "stop"


async def test_code_has_colours_and_a_formula_is_drawn(page: Page, bot: Bot) -> None:
    text = "```python\nreturn 1\n```\n\nand $x^2$, for $5 and $6"
    bot.answer = lambda bot, event: bot.says(event.address.place, "m", Reply(text=text))
    answer = await says(page, "show me")
    await expect(answer.locator("pre .k")).to_have_css("color", "rgb(138, 42, 143)")
    await expect(answer.locator("math msup")).to_have_count(1)
    await expect(answer.locator("p").last).to_contain_text("for $5 and $6")
