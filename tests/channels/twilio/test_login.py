"""How Twilio is called: with the account's token or an API key, and by a number or a messaging service."""

from __future__ import annotations

import aiohttp
import pytest

from channels import MissingSetting, Part, Undeliverable
from channels.twilio import SmsChannel, WhatsAppChannel
from tests.channels.twilio.conftest import place
from tests.fakes.twilio import FakeTwilio, sid

TEXT = Part(call="message", arguments={"body": "Delete INV-42?"})
KEY, SECRET = sid("SK", 1), "a-secret-of-a-key"
SERVICE = sid("MG", 1)


def settings(twilio: FakeTwilio, **more: str) -> dict[str, str]:
    return {
        "TWILIO_ACCOUNT_SID": twilio.account_sid,
        "TWILIO_AUTH_TOKEN": twilio.auth_token,
        "TWILIO_SMS_FROM": twilio.sms,
        "TWILIO_WHATSAPP_FROM": twilio.whatsapp,
        "TWILIO_API_URL": twilio.url,
        **more,
    }


async def test_with_a_standard_key_the_token_is_not_shown_to_twilio(twilio: FakeTwilio) -> None:
    twilio.api_keys[KEY] = SECRET
    given = settings(twilio, TWILIO_API_KEY=KEY, TWILIO_API_SECRET=SECRET)
    async with aiohttp.ClientSession() as http:
        channel = SmsChannel.from_settings(given, way="polling")
        await channel.start(http)
        await channel.send(place(channel), TEXT, key="1")
    assert [sent.body for sent in twilio.sent] == ["Delete INV-42?"]
    assert {call.authorization for call in twilio.calls} == {aiohttp.encode_basic_auth(KEY, SECRET)}


async def test_a_key_that_is_not_taken_is_named(twilio: FakeTwilio) -> None:
    given = settings(twilio, TWILIO_API_KEY=KEY, TWILIO_API_SECRET=SECRET)
    async with aiohttp.ClientSession() as http:
        with pytest.raises(MissingSetting, match="with TWILIO_API_KEY") as refused:
            await SmsChannel.from_settings(given, way="polling").start(http)
    assert refused.value.setting == "TWILIO_API_SECRET"
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({"TWILIO_API_KEY": KEY}, "TWILIO_API_SECRET"),
        ({"TWILIO_API_SECRET": SECRET}, "TWILIO_API_KEY"),
        ({"TWILIO_API_KEY": "AC1", "TWILIO_API_SECRET": SECRET}, "TWILIO_API_KEY"),
    ],
)
def test_half_a_key_is_refused(twilio: FakeTwilio, given: dict[str, str], setting: str) -> None:
    with pytest.raises(MissingSetting) as refused:
        SmsChannel.from_settings(settings(twilio, **given), way="polling")
    assert refused.value.setting == setting


async def test_messaging_service_sends_sms_and_not_whatsapp(twilio: FakeTwilio) -> None:
    twilio.service = SERVICE
    given = settings(twilio, TWILIO_MESSAGING_SERVICE_SID=SERVICE)
    async with aiohttp.ClientSession() as http:
        for kind in (SmsChannel, WhatsAppChannel):
            channel = kind.from_settings(given, way="polling")
            await channel.start(http)
            await channel.send(place(channel), TEXT, key="1")
    assert [(sent.from_, sent.service) for sent in twilio.sent] == [
        (twilio.sms, SERVICE),
        (f"whatsapp:{twilio.whatsapp}", ""),
    ]


async def test_number_outside_the_service_is_refused_with_its_code(twilio: FakeTwilio) -> None:
    given = settings(twilio, TWILIO_MESSAGING_SERVICE_SID=SERVICE)
    async with aiohttp.ClientSession() as http:
        channel = SmsChannel.from_settings(given, way="polling")
        await channel.start(http)
        with pytest.raises(Undeliverable, match="21712"):
            await channel.send(place(channel), TEXT, key="1")
