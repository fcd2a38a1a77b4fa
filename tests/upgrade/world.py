"""A gateway over a store, with Telegram beside it: what the fixtures were written through, and are looked at through.

Everything here that reaches below the public surface of the gateway is in `World.idle`, `World.later`,
`World.actions` and `World.letters`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from channels import Json, Pace
from gateway import ChannelAgent, Gateway, Settings
from gateway.operations.dead_letters import LETTERS_A_PAGE
from gateway.operations.operator import Operator
from gateway.tools.pending_action import PendingAction
from gateway.web import serve
from tests.fakes.telegram import Chat, FakeTelegram, Message, Press, User
from tests.stored import action_of
from tests.upgrade.books import BOT_TOKEN, Books

__all__ = ["Phones", "World", "open_world"]

_SECRET = "kYq2c8Xv0mWn4Zt6"
_UNPACED = Pace(account_per_second=1e6, place_per_second=1e6, group_per_minute=1e6)
_AT_ONCE = 64


class Phones(FakeTelegram):
    """Telegram, which can be given the chats and messages of another one."""

    def __init__(self) -> None:
        super().__init__(BOT_TOKEN)

    def join(self, user: User) -> User:
        """A person with a chat of their own, which they have begun."""
        self._chat(user)
        return user

    def gather(self, chat: Chat) -> Chat:
        """A group, or anything else that has an id already."""
        self._chats[chat.id] = chat
        return chat

    @property
    def numbers(self) -> tuple[int, int]:
        """Ids that no message and no update has had."""
        return next(self._ids), next(self._update_ids)

    def go_on_from(self, numbers: Iterable[int]) -> None:
        """Number messages and updates from here on."""
        messages, updates = numbers
        self._ids, self._update_ids = iter(range(messages, 10**9)), iter(range(updates, 2 * 10**9))  # type: ignore[assignment]

    def remember(self, chat_id: int, message_id: int, buttons: Mapping[str, str]) -> None:
        """A message of the bot, with its buttons: label -> token."""
        message = Message(self._chats[chat_id], message_id, self.bot, text=".")
        message.show([[{"text": label, "callback_data": token}] for label, token in buttons.items()])
        self._messages[chat_id, message_id] = message
        self.sent.append(message)

    def bearing(self, token: str) -> tuple[Message, str]:
        """The newest message that ever had this button, and the button's label. Raises LookupError."""
        for message in reversed(self.sent):
            if token in message.once_sent:
                return message, message.once_sent[token]
        raise LookupError(f"no message ever had the button {token}")


class World:
    """One running gateway, its bot and its people."""

    def __init__(self, gateway: Gateway, phones: Phones, books: Books) -> None:
        self.gateway, self.phones, self.books = gateway, phones, books

    @property
    def bot(self) -> ChannelAgent:
        return self.gateway.bot

    # ── people ──

    async def says(self, chat: Chat | User, user: User, text: str, **more: Any) -> Message:
        return await self.phones.person_says(chat, user, text, **more)

    async def presses(self, token: str, user: User) -> Press:
        """Press the button with this token; returns when the press was taken."""
        message, label = self.phones.bearing(token)
        return await self.phones.press(message, label, user, data=token)

    def texts(self, chat_id: int) -> list[str]:
        """What the bot has written in a chat, as it looks now."""
        return [message.text for message in self.phones.sent if message.chat.id == chat_id]

    # ── below the surface ──

    async def idle(self) -> None:
        """Nothing is left to do this moment."""
        async with asyncio.timeout(60):
            while not await self.gateway.engine.idle():
                await asyncio.sleep(0.005)

    async def drained(self) -> None:
        """All that waited is done, also what a slow machine put off for a moment."""
        async with asyncio.timeout(60):
            while (stats := await self.gateway.store.stats()).waiting or stats.parts:
                await asyncio.sleep(0.005)
        await self.idle()

    async def later(self, seconds: float) -> None:
        """Time passes, and what fell due is worked off."""
        self.gateway.store.offset_seconds += seconds
        await self.gateway.engine.due()
        await self.idle()

    async def actions(self) -> dict[str, PendingAction]:
        """Every action there is, by its id."""
        found = await self.gateway.store.scan("action/")
        actions = [action_of(record.value) for _, record in found]
        return {action.pending_action_id: action for action in actions}

    async def letters(self) -> list[dict[str, Json]]:
        """The dead letters, as an operator is shown them."""
        shared = self.gateway.engine.context
        operator = Operator(shared.store, shared.channels, shared.keyring, bot=shared.bot.name)
        letters: list[dict[str, Json]] = []
        while page := await operator.dead(str(letters[-1]["seq"] if letters else 0)):
            letters += [letter for letter in page if letter["seq"] is not None]
            if len(page) < LETTERS_A_PAGE:
                break
        return letters


@contextlib.asynccontextmanager
async def open_world(
    directory: Path, books: Books, phones: Phones, *, store: Any = None, secret: str = "", now: datetime | None = None
) -> AsyncIterator[World]:
    """A gateway on ``askfirst.db`` in this directory, or on `store`; its clock begins at `now`."""
    settings = Settings(
        store=f"sqlite:///{directory / 'askfirst.db'}",
        secret=secret,
        artifacts=directory / "artifacts",
        allow="*",
        telegram_bot_token=phones.token,
        telegram_webhook_secret=_SECRET,
        telegram_api_url=phones.url,
    )
    gateway = await asyncio.to_thread(Gateway, books.bot(store=store), settings)
    if now is not None:
        gateway.store.offset_seconds = (now - datetime.now(UTC)).total_seconds()
    for channel in gateway.channels.values():
        channel.capabilities = replace(channel.capabilities, pace=_UNPACED)
    async with gateway:
        running = await serve(gateway.aiohttp_app(), "127.0.0.1", 0)
        try:
            register: Any = gateway.channels["telegram"]
            await register.register(f"http://127.0.0.1:{running.port}/webhooks/telegram")
            yield World(gateway, phones, books)
        finally:
            await running.cleanup()
