"""A fake Twilio, and our two channels connected to the fake."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest

from channels import Address
from channels.twilio import SmsChannel, WhatsAppChannel
from tests.fakes.twilio import FakeTwilio

ANA = "+15557654321"


class Moment:
    """A clock that stands still until set."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def moment() -> Moment:
    return Moment()


@pytest.fixture
async def twilio() -> AsyncIterator[FakeTwilio]:
    async with FakeTwilio() as fake:
        yield fake


@pytest.fixture
async def sms(twilio: FakeTwilio) -> AsyncIterator[SmsChannel]:
    async with aiohttp.ClientSession() as http:
        channel = SmsChannel(twilio.account_sid, twilio.auth_token, twilio.sms, api_url=twilio.url)
        await channel.start(http)
        yield channel
        await channel.close()


@pytest.fixture
async def whatsapp(twilio: FakeTwilio, moment: Moment) -> AsyncIterator[WhatsAppChannel]:
    async with aiohttp.ClientSession() as http:
        channel = WhatsAppChannel(
            twilio.account_sid, twilio.auth_token, twilio.whatsapp, api_url=twilio.url, clock=moment
        )
        await channel.start(http)
        yield channel
        await channel.close()


def place(channel: SmsChannel | WhatsAppChannel, number: str = ANA) -> Address:
    return Address(channel=channel.name, account=channel.account, place=number)
