"""A fake Telegram, and our channel connected to the fake."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from channels import Address
from channels.telegram import TelegramChannel
from tests.fakes.telegram import Chat, FakeTelegram, User

SECRET = "secret_of_the_webhook-0123456789"


class Pauses:
    """A clock's sleep that takes no time and notes the requested duration."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as fake:
        yield fake


@pytest.fixture
async def channel(telegram: FakeTelegram, pauses: Pauses) -> AsyncIterator[TelegramChannel]:
    async with aiohttp.ClientSession() as http:
        channel = TelegramChannel(telegram.token, SECRET, telegram.url, sleep=pauses)
        await channel.start(http)
        yield channel
        await channel.close()


@pytest.fixture
async def ana(telegram: FakeTelegram) -> User:
    ana = telegram.person("Ana", language="es")
    await telegram.person_says(ana, ana, "/start")
    return ana


def private(channel: TelegramChannel, user: User) -> Address:
    return Address(channel="telegram", account=channel.account, place=str(user.id))


def group(channel: TelegramChannel, chat: Chat, thread: int | None = None) -> Address:
    return Address(
        channel="telegram",
        account=channel.account,
        place=str(chat.id),
        thread=None if thread is None else str(thread),
        group=True,
    )
