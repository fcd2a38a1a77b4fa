"""A whole house: a gateway behind its real web server, with Telegram, a model and a clock that a test moves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import aiohttp

from gateway import Gateway, Settings
from gateway.providers import make_provider
from gateway.store.types import Key
from gateway.tools.pending_action import PendingAction
from gateway.web import serve
from tests.e2e.shop import Shop
from tests.fakes.openai import Answer, Call, FakeOpenAI
from tests.fakes.telegram import Chat, FakeTelegram, Message, Press, User
from tests.stored import action_of

__all__ = ["SECRET", "SIGNED", "SIGNING", "House", "delete", "open_house"]

T = TypeVar("T")

SECRET = "kYq2c8Xv0mWn4Zt6"
SIGNED = {"X-Telegram-Bot-Api-Secret-Token": SECRET}
"""The headers of a request that is Telegram's."""
SIGNING = "uB3nT8kQ5rW1xZ6vC9mL2pD7sF4gH0jK"
TYPING_SECONDS = 3.0


def delete(*invoices: str) -> list[Answer]:
    """The model's answer that has these invoices deleted."""
    return [Call("delete_invoice", {"invoice_id": invoice}) for invoice in invoices]


class House:
    """One running gateway and everybody who has to do with it."""

    def __init__(self, gateway: Gateway, url: str, telegram: FakeTelegram, model: FakeOpenAI, shop: Shop) -> None:
        self.gateway, self.url = gateway, url
        self.telegram, self.model, self.shop = telegram, model, shop
        self.ana = telegram.person("Ana")

    @property
    def webhook(self) -> str:
        return f"{self.url}/webhooks/telegram"

    # ── people ──

    async def says(self, text: str, *, to: Chat | User | None = None, by: User | None = None, **more: Any) -> Message:
        """Somebody writes, Ana unless it is said; it takes them three seconds."""
        by = by or self.ana
        await self.later(TYPING_SECONDS)
        return await self.telegram.person_says(to or by, by, text, **more)

    async def asks(self, text: str, *answers: Answer, to: Chat | User | None = None, **more: Any) -> Message:
        """As `says`, with the model's answers to it, in a group addressed to the bot; returns the bot's message."""
        chat = to or more.get("by") or self.ana
        if chat.id < 0 and not text.startswith("/"):
            text = f"@{self.telegram.bot.username} {text}"
        before = len(self.messages(chat))
        self.model.script(answers)
        await self.says(text, to=to, **more)
        return await self.next(chat, before)

    async def prompt(self, invoice: str = "INV-42", *, to: Chat | User | None = None, **more: Any) -> Message:
        """Somebody asks for an invoice to be deleted; returns the prompt once its arrival is known."""
        prompt = await self.asks(f"delete {invoice}", *delete(invoice), to=to, **more)
        assert prompt.buttons
        await self.idle()
        return prompt

    async def post(self, body: bytes, headers: Mapping[str, str] = SIGNED) -> tuple[int, str]:
        """A request to the webhook; delivered again, as Telegram does, while it is answered 503. Status and answer."""
        async with aiohttp.ClientSession() as http:
            while True:
                async with http.post(self.webhook, data=body, headers=headers) as answer:
                    if answer.status != 503:
                        return answer.status, await answer.text()

    async def presses(self, message: Message, label: str = "Confirm", by: User | None = None) -> Press:
        """Returns when the press is answered."""
        press = await self.telegram.press(message, label, by or self.ana)
        await self.telegram.wait_for(lambda: press.answered)
        return press

    # ── what is seen ──

    def messages(self, chat: Chat | User | None = None) -> list[Message]:
        chat = chat or self.ana
        return [message for message in self.telegram.sent if message.chat.id == chat.id]

    def texts(self, chat: Chat | User | None = None) -> list[str]:
        return [message.text for message in self.messages(chat)]

    async def next(self, chat: Chat | User, before: int) -> Message:
        """The first message of the bot in this chat after so many."""
        await self.telegram.wait_for(lambda: len(self.messages(chat)) > before)
        return self.messages(chat)[before]

    async def until(self, condition: Callable[[], T | None]) -> T:
        return await self.telegram.wait_for(condition)

    async def idle(self) -> None:
        """Nothing is left to do this moment."""
        while not await self.gateway.engine.idle():
            await asyncio.sleep(0.002)

    async def later(self, seconds: float) -> None:
        """Time passes, and what fell due is worked off."""
        self.gateway.store.offset_seconds += seconds
        await self.gateway.engine.due()

    async def log(self, name: str) -> list[dict[str, Any]]:
        """The lines of a log."""
        store = self.gateway.store
        return [cast("dict[str, Any]", entry.value) for entry in await store.read(Key(store.partition(""), name))]

    async def actions(self) -> list[PendingAction]:
        """Every action there is, in no order."""
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
    """A house whose store is in this directory. `options` are the bot's, and `further` are settings."""
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
