"""A test of every channel that takes webhooks, with a gateway that has it on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from gateway import Settings
from gateway.testing import ChannelCase
from tests.channels.slack.case import slack_case
from tests.channels.telegram.case import telegram_case
from tests.channels.twilio.case import twilio_case
from tests.e2e.house import SIGNING

__all__ = ["case", "settings_of"]

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
    """Those of a gateway with this channel, for whose keys the directory is; the bot brings its store."""
    return Settings(
        store=f"sqlite:///{directory / 'keys.db'}",
        secret=SIGNING,
        allow="*",
        **{name.lower().removeprefix("askfirst_"): value for name, value in case.settings.items()},
    )
