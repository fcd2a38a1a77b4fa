"""A whole house: a gateway behind the real web server, with Telegram, a model and a movable clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import aiohttp
import pytest
from fpdf import FPDF

from gateway import Agent, AgentConfig, ChannelAgent, Gateway, Settings, ToolContext, emit_artifact, tool
from gateway.providers import make_provider
from gateway.providers.base import Provider
from gateway.store.types import Key
from gateway.testing import ChannelCase
from gateway.tools.pending_action import PendingAction
from gateway.web import serve
from tests.channels.slack.case import slack_case
from tests.channels.telegram.case import telegram_case
from tests.channels.twilio.case import twilio_case
from tests.fakes.openai import Answer, Call, FakeOpenAI
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import Chat, FakeTelegram, Message, Press, User
from tests.fakes.twilio import FakeTwilio
from tests.stored import action_of

T = TypeVar("T")

SECRET = "kYq2c8Xv0mWn4Zt6"
SIGNED = {"X-Telegram-Bot-Api-Secret-Token": SECRET}
"""The headers of a request from Telegram."""
SIGNING = "uB3nT8kQ5rW1xZ6vC9mL2pD7sF4gH0jK"
TYPING_SECONDS = 3.0


def delete(*invoices: str) -> list[Answer]:
    """Return the model's answer with the calls that delete these invoices."""
    return [Call("delete_invoice", {"invoice_id": invoice}) for invoice in invoices]


def env_of(
    directory: Path, *servers: FakeTelegram | FakeSlack | FakeTwilio | FakeOpenAI, **more: str
) -> dict[str, str]:
    """Return the environment of a served bot with these platforms and this model."""
    store = f"sqlite:///{directory / 'askfirst.db'}"
    env = {"ASKFIRST_STORE": store, "ASKFIRST_SECRET": SIGNING, "ASKFIRST_ALLOW": "*"}
    for each in servers:
        match each:
            case FakeTelegram():
                env |= {"TELEGRAM_BOT_TOKEN": each.token, "TELEGRAM_API_URL": each.url}
                env["TELEGRAM_WEBHOOK_SECRET"] = SECRET
            case FakeSlack():
                env |= {"SLACK_BOT_TOKEN": each.bot_token, "SLACK_API_URL": each.api_url}
                env["SLACK_SIGNING_SECRET"] = each.signing_secret
            case FakeTwilio():
                env |= {"TWILIO_ACCOUNT_SID": each.account_sid, "TWILIO_AUTH_TOKEN": each.auth_token}
                env |= {"TWILIO_SMS_FROM": each.sms, "TWILIO_WHATSAPP_FROM": f"whatsapp:{each.whatsapp}"}
                env["TWILIO_API_URL"] = each.url
            case FakeOpenAI():
                env |= {"OPENAI_API_KEY": each.key, "OPENAI_BASE_URL": each.url}
                env["ASKFIRST_PROVIDER"] = "openai:test-model"
    return env | more


class House:
    def __init__(self, gateway: Gateway, url: str, telegram: FakeTelegram, model: FakeOpenAI, shop: Shop) -> None:
        self.gateway, self.url = gateway, url
        self.telegram, self.model, self.shop = telegram, model, shop
        self.ana = telegram.person("Ana")

    @property
    def webhook(self) -> str:
        return f"{self.url}/webhooks/telegram"

    # ── people ──

    async def says(self, text: str, *, to: Chat | User | None = None, by: User | None = None, **more: Any) -> Message:
        """A person writes, by default Ana, in three seconds."""
        by = by or self.ana
        await self.later(TYPING_SECONDS)
        return await self.telegram.person_says(to or by, by, text, **more)

    async def asks(self, text: str, *answers: Answer, to: Chat | User | None = None, **more: Any) -> Message:
        """As `says`, with the model's answers, addressed to the bot in a group. Returns the bot's message."""
        chat = to or more.get("by") or self.ana
        if chat.id < 0 and not text.startswith("/"):
            text = f"@{self.telegram.bot.username} {text}"
        before = len(self.messages(chat))
        self.model.script(answers)
        await self.says(text, to=to, **more)
        return await self.next(chat, before)

    async def prompt(self, invoice: str = "INV-42", *, to: Chat | User | None = None, **more: Any) -> Message:
        """A person asks for the deletion of an invoice. Returns the prompt once the prompt's arrival is known."""
        prompt = await self.asks(f"delete {invoice}", *delete(invoice), to=to, **more)
        assert prompt.buttons
        await self.idle()
        return prompt

    async def post(self, body: bytes, headers: Mapping[str, str] = SIGNED) -> tuple[int, str]:
        """Post to the webhook, repeated like by Telegram after 503. Returns the last status and answer."""
        async with aiohttp.ClientSession() as http:
            while True:
                async with http.post(self.webhook, data=body, headers=headers) as answer:
                    if answer.status != 503:
                        return answer.status, await answer.text()

    async def presses(self, message: Message, label: str = "Confirm", by: User | None = None) -> Press:
        """Press a button. Returns after the answer to the press."""
        press = await self.telegram.press(message, label, by or self.ana)
        await self.telegram.wait_for(lambda: press.answered)
        return press

    # ── the screen ──

    def messages(self, chat: Chat | User | None = None) -> list[Message]:
        chat = chat or self.ana
        return [message for message in self.telegram.sent if message.chat.id == chat.id]

    def texts(self, chat: Chat | User | None = None) -> list[str]:
        return [message.text for message in self.messages(chat)]

    async def next(self, chat: Chat | User, before: int) -> Message:
        """Return the first message of the bot in this chat after `before` messages."""
        await self.telegram.wait_for(lambda: len(self.messages(chat)) > before)
        return self.messages(chat)[before]

    async def until(self, condition: Callable[[], T | None]) -> T:
        return await self.telegram.wait_for(condition)

    async def idle(self) -> None:
        while not await self.gateway.engine.idle():
            await asyncio.sleep(0.002)

    async def later(self, seconds: float) -> None:
        self.gateway.store.offset_seconds += seconds
        await self.gateway.engine.due()

    async def log(self, name: str) -> list[dict[str, Any]]:
        store = self.gateway.store
        return [cast("dict[str, Any]", entry.value) for entry in await store.read(Key(store.partition(""), name))]

    async def actions(self) -> list[PendingAction]:
        return [action_of(record.value) for _, record in await self.gateway.store.scan("action/")]


@contextlib.asynccontextmanager
async def open_house(
    directory: Path,
    *,
    allow: str = "telegram:*",
    way: Literal["webhook", "polling"] = "webhook",
    options: Mapping[str, Any] | None = None,
    **further: Any,
) -> AsyncIterator[House]:
    """A house with the store in this directory. `options` are the bot's, and `further` are settings."""
    async with contextlib.AsyncExitStack() as stack:
        telegram = await stack.enter_async_context(FakeTelegram())
        model = await stack.enter_async_context(FakeOpenAI())
        shop = Shop()
        environ = {"OPENAI_API_KEY": model.key, "OPENAI_BASE_URL": model.url}
        provider = await asyncio.to_thread(make_provider, "openai:test-model", environ=environ)
        settings = Settings(
            store=f"sqlite:///{directory / 'askfirst.db'}",
            secret=SIGNING,
            allow=allow,
            telegram_bot_token=telegram.token,
            telegram_webhook_secret=SECRET,
            telegram_api_url=telegram.url,
            **further,
        )
        bot = shop.bot(provider, **(options or {}))
        gateway = await stack.enter_async_context(await asyncio.to_thread(Gateway, bot, settings, way=way))
        running = await serve(gateway.aiohttp_app(), "127.0.0.1", 0)
        stack.push_async_callback(running.cleanup)
        house = House(gateway, f"http://127.0.0.1:{running.port}", telegram, model, shop)
        if way == "webhook":
            await gateway.channels["telegram"].register(house.webhook)  # type: ignore[attr-defined]
        yield house


# ── The bot of these tests: a shop's invoices ──


def pdf_of(invoice_id: str) -> bytes:
    """Return a PDF of one page with the invoice's number, always the same bytes."""
    pdf = FPDF()
    pdf.set_creation_date(datetime(2026, 1, 1, tzinfo=UTC))
    pdf.add_page()
    pdf.set_font("Helvetica", size=14)
    pdf.text(20, 30, f"Invoice {invoice_id}")
    return bytes(pdf.output())


class Shop:
    """The invoices. `hold`: a deletion waits for this event."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.reached = asyncio.Event()
        self.hold: asyncio.Event | None = None
        self.error: Exception | None = None

    def bot(self, provider: Provider, **options: Any) -> ChannelAgent:
        @tool(read_only=True)
        async def list_invoices() -> str:
            """List the invoices."""
            return "INV-7, INV-42"

        @tool(confirm="Delete invoice {invoice_id} for good?")
        async def delete_invoice(invoice_id: str) -> str:
            """Delete an invoice."""
            self.reached.set()
            if self.hold is not None:
                await self.hold.wait()
            if self.error is not None:
                raise self.error
            self.deleted.append(invoice_id)
            return f"Invoice {invoice_id} is deleted."

        @tool(read_only=True)
        async def send_invoice_pdf(invoice_id: str) -> str:
            """Send an invoice as PDF."""
            emit_artifact(content=pdf_of(invoice_id), mime_type="application/pdf", filename=f"{invoice_id}.pdf")
            return "sent"

        @tool(confirm="Archive invoice {invoice_id}?")
        async def archive_invoice(invoice_id: str, ctx: ToolContext) -> str:
            """Archive an invoice as PDF."""
            ctx.emit_artifact(content=pdf_of(invoice_id), mime_type="application/pdf", filename=f"{invoice_id}.pdf")
            return f"Invoice {invoice_id} is archived."

        tools = [list_invoices, delete_invoice, send_invoice_pdf, archive_invoice]
        bot = ChannelAgent(Agent(tools, provider=provider, config=AgentConfig(name="Shop")), **options)

        @bot.command("total", description="What is still open")
        async def total(ctx: ToolContext, text: str) -> str:
            return f"**410.20 {text or 'EUR'}** is open."

        return bot


# ── A test of every channel that takes webhooks, with a gateway that has it on ──


CASES: dict[str, Callable[[pytest.MonkeyPatch], AbstractAsyncContextManager[ChannelCase]]] = {
    "telegram": telegram_case,
    "slack": slack_case,
    "sms": lambda patch: twilio_case("sms", patch),
    "whatsapp": lambda patch: twilio_case("whatsapp", patch),
}


@pytest.fixture(params=CASES)
async def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChannelCase]:
    async with CASES[request.param](monkeypatch) as case:
        yield case


def settings_of(case: ChannelCase, directory: Path) -> Settings:
    """Return the settings of a gateway with this channel. The directory is for keys; the bot brings the store."""
    return Settings(
        store=f"sqlite:///{directory / 'keys.db'}",
        secret=SIGNING,
        allow="*",
        **{name.lower().removeprefix("askfirst_"): value for name, value in case.settings.items()},
    )
