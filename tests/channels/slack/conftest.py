"""A fake Slack, and our channel connected to the fake."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from channels import Address
from channels.slack import SlackChannel
from tests.fakes.slack import FakeSlack


@pytest.fixture
async def slack() -> AsyncIterator[FakeSlack]:
    async with FakeSlack() as fake:
        yield fake


@pytest.fixture
async def channel(slack: FakeSlack) -> AsyncIterator[SlackChannel]:
    async with aiohttp.ClientSession() as http:
        channel = SlackChannel(slack.bot_token, slack.signing_secret, slack.app_token, slack.api_url)
        await channel.start(http)
        yield channel
        await channel.close()


@pytest.fixture
def ana(slack: FakeSlack) -> str:
    return slack.person("ana")


def place(slack: FakeSlack, channel: str, thread: str | None = None) -> Address:
    return Address(channel="slack", account=slack.team, place=channel, thread=thread, group=not channel.startswith("D"))
