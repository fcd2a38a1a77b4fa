"""The console of the page in a real Chromium: the lives of messages, as an operator sees them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page, expect

from channels import Address, Json, Person
from gateway.observe import Feed
from gateway.observe.events import (
    EVENTS,
    DeliveryFailed,
    DeliveryRetried,
    DuplicateDropped,
    EffectEnd,
    EventSettled,
    LlmEnd,
    LlmError,
    LlmStart,
    MessageReceived,
    MessageSent,
    ObservedEvent,
    PendingDecided,
    PendingLaunched,
    PendingResolved,
    PendingStashed,
    ToolEnd,
    ToolErrorRaised,
    ToolStart,
    TurnEnd,
    TurnStart,
    WebhookRejected,
)
from gateway.observe.runs import action_event_id, run_id_of
from gateway.providers import ModelMessage, Response, Usage
from tests.observe.samples import ACTION, sample, texts
from tests.web.conftest import Bot, Start, opened

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

TELEGRAM = "bot/telegram:1:2"
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\u202e\u2066\x00\ud800"


def ticking() -> Iterator[datetime]:
    for number in count():
        yield datetime(2026, 1, 1, tzinfo=UTC) + timedelta(milliseconds=10 * number)


@pytest.fixture(autouse=True)
def clocked(bot: Bot) -> None:
    """The feed's clock goes on by 10 ms with each event."""
    moments = ticking()
    bot.feed = Feed(now=lambda: next(moments))


def arrives(place: str, event_id: str, kind: str = "Message", **content: Any) -> ObservedEvent:
    address = Address.parse(place.partition("/")[2])
    person = Person(channel=address.channel, account=address.account, user_id=address.place)
    return MessageReceived(event_id=event_id, address=address, person=person, conversation=place, kind=kind, **content)


def answered(
    place: str, event_id: str, said: str, reply: str = "Here.", cost: float | None = 0.0125
) -> list[ObservedEvent]:
    """The events of a message answered after one tool call."""
    run = run_id_of(place, event_id)
    usage = Usage(prompt_tokens=1000, completion_tokens=234, cost_usd=cost)
    response = Response(content=reply, model="gpt-x", usage=usage)
    about: dict[str, Any] = {"conversation": place, "cause": event_id}
    return [
        arrives(place, event_id),
        TurnStart(run, event_ids=[event_id], attempt=1, **about),
        sample(LlmStart, run_id=run, messages=[ModelMessage(role="user", content=said)], model="", provider="p"),
        LlmEnd(run, response=response, usage=usage, provider="p", duration_ms=1234),
        ToolStart(run, call_id="c1", tool_name="look", tool_args={"number": 7}),
        ToolEnd(run, call_id="c1", tool_name="look", result="found it", duration_ms=7),
        EventSettled(run, conversation=place, event_ids=[event_id], how="answered", parts=["p1"], actions=[]),
        TurnEnd(run, conversation=place, stop_reason="answered", duration_ms=1500),
        sample(MessageSent, run_id=run, message_id="receipt-1", part_id="p1", call="sendMessage", **about),
    ]


def tell(bot: Bot, *events: ObservedEvent) -> None:
    for event in events:
        bot.feed.read(event)


async def stages(life: Locator) -> list[str]:
    """The name and the time since the arrival of each step of an open life."""
    await expect(life.locator(".stage .line").first).to_be_visible()
    lines = await life.locator(".stage .line").all()
    return [f"{await each.locator('.what').inner_text()} {await each.locator('.since').inner_text()}" for each in lines]


async def life_of(page: Page, title: str) -> Locator:
    life = page.locator(".run").filter(has=page.locator(".title", has_text=title))
    await expect(life).to_have_count(1)
    return life


async def test_a_confirmed_action_is_one_life_to_its_receipt(bot: Bot, start: Start, context: BrowserContext) -> None:
    run, action = run_id_of(TELEGRAM, "m1"), replace(ACTION, conversation=TELEGRAM, args={"card": 4}, preview="Pay?")
    about: dict[str, Any] = {"conversation": TELEGRAM}
    effect = action_event_id("a1")
    begun = answered(TELEGRAM, "m1", "pay with card 4", cost=None)[:4]
    asked = EventSettled(run, event_ids=["m1"], how="asked", parts=["p1"], actions=["a1"], **about)
    press: dict[str, Any] = {"event_ids": ["press"], "parts": [], "actions": ["a1"]}
    async with start():
        tell(bot, *begun, PendingStashed(run, action=action, call_id="c1"), asked)
        tell(bot, TurnEnd(run, stop_reason="asked", duration_ms=1500, **about))
        page = await opened(context, bot)
        life = await life_of(page, "pay with card 4")
        tell(bot, arrives(TELEGRAM, "press", "ButtonPress"))
        await expect(page.locator(".run")).to_have_count(2)
        tell(bot, PendingDecided(action=action, person="telegram:1:2", intent="confirm"))
        how = "decided by button"
        tell(bot, EventSettled(run_id_of(TELEGRAM, "press"), how=how, conversation=TELEGRAM, **press))
        tell(bot, PendingLaunched(action=action))
        tell(bot, EffectEnd(action=action, state="done", duration_ms=20), PendingResolved(action=action, status="done"))
        tell(bot, sample(MessageSent, run_id=run_id_of(TELEGRAM, effect), cause=effect, call="sendMessage", **about))
        await expect(page.locator(".run")).to_have_count(1)
        await expect(life.locator(".end")).to_have_text("done")
        await expect(life.locator(".sums")).to_have_text(
            "Message · 1.5 s · 1,234 tokens · cost unknown · tool calls: 1"
        )
        await life.locator("summary").click()
        assert await stages(life) == [
            "Received · Message +0 ms",
            "Turn begins +10 ms",
            "Model · gpt-x +20 ms",
            "Asked · pay +40 ms",
            "Turn ends · asked +50 ms",
            "Received · Press +70 ms",
            "Decided · confirmed +80 ms",
            "Launched · pay +100 ms",
            "Effect · pay +110 ms",
            "Sent · sendMessage +130 ms",
        ]
        assert await life.locator(".stage").nth(6).locator("dd").all_inner_texts() == [
            "pay", "telegram:1:2", "decided by button",
        ]  # fmt: skip
        await expect(life.locator(".id")).to_have_text(f"run {run}")


async def test_steps_told_while_a_life_opens_stand_below_the_first(
    bot: Bot, start: Start, context: BrowserContext
) -> None:
    """The browser tells of the opening only after steps that come in the same moment."""
    first, *others = answered(TELEGRAM, "m1", "hello")
    async with start():
        tell(bot, first)
        page = await opened(context, bot)
        await expect(page.locator(".run")).to_have_count(1)
        await page.locator("#pause").click()
        tell(bot, *others)
        await expect(page.locator("#pause")).to_have_text(re.compile(r"\(\d+\)"))
        await page.evaluate(
            """() => {
                document.querySelector(".run > details").open = true;
                document.querySelector("#pause").click();
            }"""
        )
        await expect(page.locator(".run .stage .what")).to_have_text(
            [
                "Received · Message",
                "Turn begins",
                "Model · gpt-x",
                "Tool · look",
                "Turn ends · answered",
                "Sent · sendMessage",
            ]
        )


async def test_commands_decisions_and_files_have_their_words(bot: Bot, start: Start, context: BrowserContext) -> None:
    action = replace(ACTION, conversation=TELEGRAM)
    run = run_id_of(TELEGRAM, "m1")
    async with start():
        tell(bot, arrives(TELEGRAM, "m0", said="/pending"))
        tell(bot, arrives(TELEGRAM, "m2", files=["a.pdf", "voice"]))
        tell(bot, arrives(TELEGRAM, "m1", said="pay it"), PendingStashed(run, action=action))
        tell(bot, arrives(TELEGRAM, "m3", said="OK K7P2", files=["b.pdf"]))
        tell(bot, PendingDecided(action=action, person="telegram:1:2", intent="confirm"))
        settled: dict[str, Any] = {"event_ids": ["m3"], "parts": [], "actions": ["a1"]}
        tell(bot, EventSettled(run_id_of(TELEGRAM, "m3"), how="decided by code", conversation=TELEGRAM, **settled))
        page = await opened(context, bot)
        await expect(page.locator(".run .title")).to_have_text(["pay it", "a.pdf, voice", "/pending"])
        life = await life_of(page, "pay it")
        await life.locator("summary").click()
        decided = life.locator(".stage").filter(has_text="OK K7P2")
        await expect(decided.locator("dt")).to_have_text(["words", "files"])
        await expect(decided.locator("dd")).to_have_text(["OK K7P2", "b.pdf"])


async def test_the_console_speaks_the_language_of_the_page(bot: Bot, start: Start, browser: Browser) -> None:
    context = await browser.new_context(locale="de-DE", viewport={"width": 1200, "height": 800})
    run, action = run_id_of(TELEGRAM, "m1"), replace(ACTION, conversation=TELEGRAM, args={"card": 4}, preview="Pay?")
    about: dict[str, Any] = {"conversation": TELEGRAM}
    async with start():
        tell(bot, *answered(TELEGRAM, "m1", "pay")[:6], PendingStashed(run, action=action, call_id="c9"))
        tell(bot, EventSettled(run, event_ids=["m1"], how="asked", parts=["p1"], actions=["a1"], **about))
        tell(bot, sample(MessageSent, run_id=run, message_id="receipt-1", cause="m1", call="sendMessage", **about))
        page = await context.new_page()
        await page.goto(f"{bot.url}/chat")
        life = page.locator(".run")
        await expect(life.locator(".end")).to_have_text("gefragt")
        await life.locator("summary").click()
        await expect(life.locator(".id")).to_have_text(f"Lauf {run}")
        labels = set(await life.locator("dt").all_inner_texts())
        assert labels >= {"Argumente", "Frage", "Quittung", "Ergebnis"}
        assert not labels & {"args", "preview", "receipt", "result", "content", "system prompt"}
    await context.close()


async def test_failures_are_red_with_mend_and_filtered(bot: Bot, start: Start, context: BrowserContext) -> None:
    run, about = run_id_of(TELEGRAM, "m1"), {"conversation": TELEGRAM, "cause": "m1", "part_id": "p9"}
    slack, sms = "bot/slack:T1:C2", "bot/sms:+1:+2"
    lost = sample(DeliveryFailed, run_id=run, reason="the chat is gone", suppressed=False, **about)
    async with start():
        tell(bot, *answered(slack, "m1", "all is well"))
        tell(bot, *answered(TELEGRAM, "m1", "tell me")[:-1])
        tell(bot, sample(DeliveryRetried, run_id=run, why="too many requests", call="sendMessage", **about), lost)
        tell(bot, arrives(sms, "m2"), sample(LlmError, run_id=run_id_of(sms, "m2"), error=ValueError("no model")))
        tell(
            bot, sample(ToolErrorRaised, run_id=run_id_of(sms, "m2"), error=broken(), tool_name="break_it", call_id="b")
        )
        tell(bot, DuplicateDropped(event_id="m1", address=Address.parse("telegram:1:2"), conversation=TELEGRAM))
        tell(bot, sample(WebhookRejected, channel="telegram", reason="Forged", why="the secret is another"))
        page = await opened(context, bot)
        lives, places = page.locator(".run:visible"), page.locator(".place:visible h3")
        await expect(places).to_have_text(["sms:+1:+2", "telegram:1:2", "slack:T1:C2"])
        life = await life_of(page, "tell me")
        await life.locator("summary").click()
        failed = life.locator(".stage.bad").last
        red = await page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--bad')")
        assert red == "#b3261e"
        await expect(failed.locator(".what")).to_have_css("color", "rgb(179, 38, 30)")
        await expect(failed.locator(".what")).to_have_text("Not delivered (Failed)")
        await expect(failed.locator("dd")).to_have_text("the chat is gone")
        await expect(failed.locator(".mend")).to_have_text("To mend it: askfirst dead replay p9")
        await expect(life.locator(".stage.wait .what")).to_have_text("Not sent yet · sendMessage")

        others = page.locator("#others")
        await others.locator("summary").first.click()
        await expect(others.locator(".what")).to_have_text(["webhook rejected (Failed)", "duplicate dropped"])

        await page.get_by_role("checkbox", name="Failed only").check()
        await expect(places).to_have_text(["sms:+1:+2", "telegram:1:2"])
        await page.get_by_label("Channel").select_option("telegram")
        await expect(lives).to_have_count(1)
        await expect(others.locator(".stage:visible")).to_have_count(1)
        await page.get_by_role("checkbox", name="Failed only").uncheck()
        await page.get_by_label("Channel").select_option("")
        await page.get_by_label("Filter by text").fill("ALL IS")
        await expect(places).to_have_text(["slack:T1:C2"])
        tell(bot, *answered(TELEGRAM, "m3", "another"))
        tell(bot, *answered(slack, "m4", "all is still well"))
        await expect(lives).to_have_count(2)
        await page.get_by_label("Filter by text").fill("nowhere")
        await expect(page.get_by_text("Nothing fits the filter.")).to_be_visible()
        await page.get_by_label("Filter by text").fill("")
        await expect(lives).to_have_count(5)
        bad = page.locator(".run.bad").last
        await bad.locator("summary").first.click()
        await expect(bad.locator(".traceback pre")).to_contain_text("ValueError: broken")
        await page.get_by_role("button", name="Clear").click()
        await expect(page.locator("#console .stage, .run, .place")).to_have_count(0)


def broken() -> ValueError:
    try:
        raise ValueError("broken")
    except ValueError as error:
        return error


async def test_hostile_fields_of_every_event_stay_text(bot: Bot, start: Start, context: BrowserContext) -> None:
    args: dict[str, Json] = {HOSTILE: [HOSTILE, "x" * 100_000]}
    hostile = {
        "error": ValueError(HOSTILE),
        "action": replace(ACTION, kind=HOSTILE, args=args, preview=HOSTILE * 1000, conversation=f"bot/{HOSTILE}"),
        "tool_args": args,
        "response": Response(content=HOSTILE * 1000, model=HOSTILE),
        "messages": [ModelMessage(role="user", content=HOSTILE * 100)],
    }
    async with start():
        for kind in sorted(bot.feed.kinds, key=lambda each: each.name):
            fields = {name: HOSTILE if isinstance(value, str) else [HOSTILE] for name, value in texts(kind).items()}
            known = {each.name for each in dataclasses.fields(kind)}  # type: ignore[arg-type]
            own = {"run_id": "r1"} if "run_id" in known else {}
            bot.feed.read(sample(kind, **fields | {name: hostile[name] for name in known & set(hostile)} | own))
        page = await opened(context, bot)
        shown = await page.locator(".run > details").evaluate_all(
            "all => all.map((one) => { one.open = true; }).length"
        )
        assert shown > 2
        await page.locator("#others").evaluate("others => { others.open = true; }")
        await expect(page.locator("#console").get_by_text("<script>").first).to_be_attached()
        names = await page.locator("#console .what").evaluate_all("all => all.map((one) => one.title)")
        assert set(names) | {"llm_start", "llm_end", "llm_error", "event_settled", "turn_end", "tool_start"} >= {
            kind.name for kind in bot.feed.kinds
        } - {"tool_end", "tool_error", "effect_end", "pending_resolved"}
        assert await page.title() == "Invoices"
        assert await page.locator("#console :is(script, img, a, iframe)").count() == 0
        assert await page.locator("#console").evaluate("it => it.scrollWidth <= it.clientWidth")
        longest = await page.locator("#console dd").evaluate_all(
            "all => Math.max(...all.map((one) => one.innerText.length))"
        )
        assert longest < 20_000


async def test_the_keyboard_opens_a_life_and_pause_holds_it_still(bot: Bot, start: Start, browser: Browser) -> None:
    context = await browser.new_context(locale="ar", viewport={"width": 390, "height": 700}, color_scheme="dark")
    async with start():
        tell(bot, *answered("bot/web:-:other", "m0", "one"), *answered(TELEGRAM, "m1", "two"))
        page = await context.new_page()
        await page.goto(f"{bot.url}/chat")
        await page.locator("#toggle").press("Enter")
        console = page.get_by_role("complementary")
        await expect(console).to_be_visible()
        await expect(page.locator("html")).to_have_attribute("dir", "rtl")
        one = await life_of(page, "one")
        await one.locator("summary").focus()
        await page.keyboard.press("Enter")
        await expect(one.locator(".stage")).to_have_count(6)
        tell(bot, *answered("bot/web:-:other", "m2", "three"))
        await expect(page.locator(".title")).to_have_text(["three", "one", "two"])
        await expect(one.locator("summary")).to_be_focused()
        pause = page.locator("#pause")
        await pause.click()
        await expect(pause).to_have_attribute("aria-pressed", "true")
        tell(bot, *answered(TELEGRAM, "m3", "four"))
        await expect(pause).to_contain_text("(")
        await expect(page.locator(".title")).to_have_text(["three", "one", "two"])
        await pause.click()
        await expect(page.locator(".title")).to_have_text(["four", "two", "three", "one"])
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert await page.locator("#console").evaluate("it => it.scrollWidth <= it.clientWidth")
    await context.close()


async def test_thousands_of_events_leave_a_bounded_page(bot: Bot, start: Start, context: BrowserContext) -> None:
    async with start():
        page = await opened(context, bot)
        for first in (0, 150):  # more at once than the feed remembers would not all come
            for number in range(first, first + 150):
                place = f"bot/telegram:1:{number % 20}"
                tell(bot, *answered(place, f"m{number}", f"question {number}", reply="word " * 500))
            newest = page.locator(".title").filter(has_text=f"question {first + 149}")
            await expect(newest).to_have_count(1, timeout=20_000)
        assert 200 < await page.locator(".run").count() <= 2000 / 9 + 1
        assert await page.locator(".place").count() == 20
        assert await page.locator("#console .stage").count() == 0
        tell(bot, *(sample(kind, run_id="r1") for kind in [EVENTS["tool_chunk"]] * 600))
        await expect(page.locator(".run").filter(has_text="r1")).to_have_count(1)
        await page.locator(".run summary").first.click()
        await expect(page.locator("#console .stage")).to_have_count(500)
