"""Every channel passes the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from channels import Address, Message
from channels.direct import DirectChannel
from gateway.testing import ChannelCase, ChannelContract
from tests.channels.slack.case import slack_case
from tests.channels.telegram.case import telegram_case
from tests.channels.twilio.case import twilio_case
from tests.webchat.case import webchat_case


class TestTelegram(ChannelContract):
    @pytest.fixture
    async def case(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChannelCase]:
        async with telegram_case(monkeypatch) as case:
            yield case


class TestDirect(ChannelContract):
    """A channel without a platform: `ask_channel` reads its output."""

    @pytest.fixture
    def case(self) -> ChannelCase:
        address = Address(channel="app", account="-", place="ana")
        asked = Message(event_ids=("1",), address=address, person=None, text="yes", message_id="1")
        return ChannelCase(
            channel=DirectChannel,
            settings={},
            address=address,
            answered=lambda receipt, later: replace(asked, after=receipt.message_id if later else "0"),
            webhook=None,
            platform=None,
            recognises_keys=True,
        )


class TestWebChat(ChannelContract):
    @pytest.fixture
    def case(self, tmp_path: Path) -> ChannelCase:
        return webchat_case(tmp_path)


class TestSlack(ChannelContract):
    @pytest.fixture
    async def case(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChannelCase]:
        async with slack_case(monkeypatch) as case:
            yield case


class TestSms(ChannelContract):
    @pytest.fixture
    async def case(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChannelCase]:
        async with twilio_case("sms", monkeypatch) as case:
            yield case


class TestWhatsApp(ChannelContract):
    @pytest.fixture
    async def case(self, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ChannelCase]:
        async with twilio_case("whatsapp", monkeypatch) as case:
            yield case
