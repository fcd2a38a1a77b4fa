"""A gateway on Telegram and Slack, with people in a forum and in a channel."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gateway import Approvers, Confirm, Gateway, Settings
from gateway.tools.pending_action import PendingAction
from gateway.web import serve
from tests.engine.bots import Invoices
from tests.fakes.slack import FakeSlack
from tests.fakes.slack import Sent as InSlack
from tests.fakes.telegram import Chat, FakeTelegram, Message, User
from tests.stored import action_of

__all__ = ["World", "opened"]

SECRET = "kYq2c8Xv0mWn4Zt6"
ASK = "Delete invoice {invoice_id} for good?"


@dataclass
class World:
    """A gateway on both platforms, with Ana and Ben in a Telegram forum and in a Slack channel."""

    gateway: Gateway
    telegram: FakeTelegram
    slack: FakeSlack
    invoices: Invoices

    def __post_init__(self) -> None:
        self.ana, self.ben = self.telegram.person("Ana"), self.telegram.person("Ben")
        self.group = self.telegram.group("Ops")
        self.topic = self.telegram.topic(self.group)
        self.eva, self.channel = self.slack.person("Eva"), self.slack.channel()
        self.dan = self.slack.person("Dan")

    async def says(
        self,
        text: str,
        *,
        chat: Chat | User | None = None,
        by: User | None = None,
        mentions: bool = False,
        **more: object,
    ) -> None:
        """Write on Telegram, by default as Ana to the bot in the topic."""
        if chat is None:
            chat, mentions = self.group, True
            more |= {"thread": self.topic, "is_topic_message": True, "message_thread_id": self.topic}
        if mentions:
            text = f"{text} @{self.telegram.bot.username}"
        await self.telegram.person_says(chat, by or self.ana, text, **more)  # type: ignore[arg-type]
        await self.quiet()

    async def writes(self, text: str, *, thread: str | None = None, by: str | None = None) -> str:
        """Write in the Slack channel, by default as Eva."""
        ts = await self.slack.says(by or self.eva, self.channel, f"<@{self.slack.bot_user}> {text}", thread=thread)
        await self.quiet()
        return ts

    async def presses(self, message: Message | InSlack, label: str = "Confirm", by: User | str | None = None) -> str:
        """Press a button. Return the private answer."""
        if isinstance(message, InSlack):
            press = await self.slack.press(message, label, by=by if isinstance(by, str) else self.eva)
            await self.quiet()
            return str(press.answers[-1]["text"]) if press.answers else ""
        pressed = await self.telegram.press(message, label, by if isinstance(by, User) else self.ana)
        await self.telegram.wait_for(lambda: pressed.answered)
        await self.quiet()
        return pressed.text

    async def quiet(self) -> None:
        """Wait until all is done. The clock moves on for paced messages."""
        store, engine = self.gateway.store, self.gateway.engine
        async with asyncio.timeout(30):
            while True:
                while not await engine.idle():
                    await asyncio.sleep(0.002)
                if not (await store.stats()).parts:
                    return
                store.offset_seconds += 1
                await engine.due()

    async def actions(self) -> list[PendingAction]:
        return [action_of(record.value) for _, record in await self.gateway.store.scan("action/")]

    def read(self, chat: Chat | User) -> list[Message]:
        return [each for each in self.telegram.sent if each.chat.id == chat.id]

    @staticmethod
    def code(text: str) -> str:
        """Return the code in a question."""
        return str(re.findall(r"\bOK (\w{4})\b", text)[-1])

    def prompt(self, chat: Chat | User) -> Message:
        return next(each for each in reversed(self.read(chat)) if each.once_shown)


@contextlib.asynccontextmanager
async def opened(files: Path, *, allow: Sequence[str] = ("*",), **rule: object) -> AsyncIterator[World]:
    """Yield a world. `rule`: the approvers."""
    invoices = Invoices()
    async with FakeTelegram() as telegram, FakeSlack() as slack:
        confirm = Confirm(ASK, approvers=Approvers(**rule)) if rule else ASK  # type: ignore[arg-type]
        settings = Settings(
            store="sqlite:///:memory:",
            secret="uB3nT8kQ5rW1xZ6vC9mL2pD7sF4gH0jK",
            allow=list(allow),
            artifacts=str(files),
            **{name.lower(): value for name, value in {**telegram.settings(SECRET), **slack.settings}.items()},
        )
        gateway = await asyncio.to_thread(Gateway, invoices.bot(confirm=confirm), settings)
        async with gateway:
            running = await serve(gateway.aiohttp_app(), "127.0.0.1", 0)
            try:
                url = f"http://127.0.0.1:{running.port}/webhooks"
                telegram.webhook.update(url=f"{url}/telegram", secret=SECRET)
                slack.webhook = f"{url}/slack"
                yield World(gateway, telegram, slack, invoices)
            finally:
                await running.cleanup()
