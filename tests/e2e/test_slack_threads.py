"""A private chat on Slack: a question answered in the thread beneath, as usual there, and too many messages at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway import Gateway, Settings
from gateway.providers import make_provider
from gateway.store.sqlite import SqliteStore
from gateway.web import serve
from gateway.wording import say
from tests.e2e.house import SIGNING, Shop, delete
from tests.fakes.openai import FakeOpenAI, Say
from tests.fakes.slack import FakeSlack, Sent

MAX_WAITING = 5
"""The most waiting messages of one conversation."""


@dataclass
class Office:
    gateway: Gateway
    slack: FakeSlack
    model: FakeOpenAI
    shop: Shop
    ana: str

    @property
    def chat(self) -> str:
        return self.slack.direct(self.ana)

    async def says(self, text: str, under: Sent | None = None) -> Sent:
        before = len(self.slack.sent)
        await self.slack.says(self.ana, self.chat, text, thread=under.ts if under else None)
        await self.slack.wait_for(lambda: len(self.slack.sent) > before)
        return self.slack.sent[before]

    async def idle(self) -> None:
        while not await self.gateway.engine.idle():
            await asyncio.sleep(0.002)


@pytest.fixture
async def office(tmp_path: Path) -> AsyncIterator[Office]:
    async with FakeSlack() as slack, FakeOpenAI() as model:
        shop = Shop()
        environ = {"OPENAI_API_KEY": model.key, "OPENAI_BASE_URL": model.url}
        provider = await asyncio.to_thread(make_provider, "openai:test-model", environ=environ)
        settings = Settings(
            store=f"sqlite:///{tmp_path / 'keys.db'}",
            secret=SIGNING,
            allow="slack:*",
            slack_bot_token=slack.bot_token,
            slack_signing_secret=slack.signing_secret,
            slack_api_url=slack.api_url,
        )
        bot = shop.bot(provider, store=SqliteStore(str(tmp_path / "askfirst.db"), max_waiting=10 * MAX_WAITING))
        async with await asyncio.to_thread(Gateway, bot, settings) as gateway:
            listening = await serve(gateway.aiohttp_app(), "127.0.0.1", 0)
            slack.webhook = f"http://127.0.0.1:{listening.port}/webhooks/slack"
            yield Office(gateway, slack, model, shop, slack.person("ana"))
            await listening.cleanup()


@pytest.fixture
async def prompt(office: Office) -> Sent:
    office.model.script(delete("INV-42"))
    prompt = await office.says("delete INV-42")
    assert prompt.buttons
    await office.idle()
    return prompt


async def test_yes_in_the_prompts_thread_confirms_it(office: Office, prompt: Sent) -> None:
    await office.says("yes", under=prompt)
    await office.slack.wait_for(lambda: not prompt.buttons)
    assert office.shop.deleted == ["INV-42"]
    assert f"Confirmed by <@{office.ana}>" in prompt.shown, "by the name Slack has for them"
    assert len(office.model.requests) == 1


async def test_question_in_the_prompts_thread_is_the_same_conversation(office: Office, prompt: Sent) -> None:
    office.model.script(["It is **410 EUR**."])
    answer = await office.says("how much is it?", under=prompt)
    assert (answer.shown, answer.thread) == ("It is *410 EUR*.", prompt.ts)
    assert "delete INV-42" in str(office.model.requests[-1]["messages"])
    again = await office.slack.wait_for(lambda: next((m for m in office.slack.sent[1:] if m.buttons), None))
    assert again.thread == prompt.ts
    await office.slack.press(again, "Confirm", by=office.ana)
    await office.slack.wait_for(lambda: not again.buttons and not prompt.buttons)
    assert office.shop.deleted == ["INV-42"]


async def test_yes_after_a_later_thread_message_confirms_no_prompt(office: Office, prompt: Sent) -> None:
    """All messages beneath a message are in the thread: only the first can be the answer."""
    office.model.script(["It is 410 EUR. Shall I send you the PDF?"])
    await office.says("how much is it?", under=prompt)
    await office.slack.wait_for(lambda: len([m for m in office.slack.sent if m.buttons]) == 2)
    await office.idle()
    again = await office.says("yes", under=prompt)
    await office.idle()
    assert office.shop.deleted == []
    assert again.thread == prompt.ts
    assert again.buttons, "asked once more, with its code"


async def test_yes_while_a_thread_question_is_open_confirms_no_action(office: Office, prompt: Sent) -> None:
    hold = asyncio.Event()
    office.model.script([Say("It is 410 EUR. Shall I send you the PDF?", hold=hold)])
    await office.slack.says(office.ana, office.chat, "how much is it?", thread=prompt.ts)
    await office.model.wait_for(2)
    await office.slack.says(office.ana, office.chat, "yes", thread=prompt.ts)
    hold.set()
    await office.slack.wait_for(lambda: len([m for m in office.slack.sent if m.buttons]) >= 2)
    await office.idle()
    assert office.shop.deleted == []


async def test_a_yes_beneath_a_prompt_counts_while_it_is_open(office: Office, prompt: Sent) -> None:
    office.gateway.store.offset_seconds += 300
    await office.says("yes", under=prompt)
    await office.slack.wait_for(lambda: not prompt.buttons)
    assert office.shop.deleted == ["INV-42"]


async def test_a_yes_beneath_a_settled_prompt_gets_the_outcome(office: Office, prompt: Sent) -> None:
    await office.slack.press(prompt, "Cancel", by=office.ana)
    await office.slack.wait_for(lambda: not prompt.buttons)
    await office.idle()
    office.gateway.store.offset_seconds += 700
    told = await office.says("yes", under=prompt)
    assert "cancelled" in told.shown
    assert office.shop.deleted == []


async def test_another_thread_is_another_conversation(office: Office, prompt: Sent) -> None:
    office.model.script(["Hello."])
    hello = await office.says("hello")
    await office.idle()
    office.model.script(["Yes what?"])
    answer = await office.says("yes", under=hello)
    assert (answer.shown, answer.thread) == ("Yes what?", hello.ts)
    assert "delete INV-42" not in str(office.model.requests[-1]["messages"])
    await office.idle()
    assert office.shop.deleted == []


async def test_full_conversation_still_takes_a_slack_command(office: Office) -> None:
    """Slack delivers a message again, but a command once: https://docs.slack.dev/apis/events-api#retries."""
    hold, slack = asyncio.Event(), office.slack
    office.model.script([Say("Done.", hold=hold)])
    for number in range(MAX_WAITING):
        await slack.says(office.ana, office.chat, f"think of {number}")
        await office.model.wait_for(1)
    assert {delivery.status for delivery in slack.deliveries} == {200}
    await slack.says(office.ana, office.chat, "and of that")
    await slack.command(office.ana, office.chat, "/pending")
    assert [delivery.status for delivery in slack.deliveries[MAX_WAITING:]] == [503, 503, 503, 503, 200]
    office.model.script(["Enough."])
    hold.set()
    await slack.wait_for(lambda: slack.sent and slack.sent[-1].shown == say("pending_none", "en"))
