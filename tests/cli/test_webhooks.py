"""``askfirst webhooks`` for Twilio's two channels, of which one can be registered from here."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.store.sqlite import SqliteStore
from tests.cli.processes import askfirst
from tests.fakes.telegram import FakeTelegram
from tests.fakes.twilio import FakeTwilio

URL = "https://bot.example.com/webhooks/twilio"
BY_HAND = f"whatsapp: enter {URL} in the platform's console\n"


@pytest.fixture
async def twilio() -> AsyncIterator[FakeTwilio]:
    async with FakeTwilio() as fake:
        yield fake


def env(twilio: FakeTwilio, *numbers: str) -> dict[str, str]:
    senders = {"sms": twilio.sms, "whatsapp": f"whatsapp:{twilio.whatsapp}"}
    return {
        "ASKFIRST_PUBLIC_URL": "https://bot.example.com",
        "TWILIO_ACCOUNT_SID": twilio.account_sid,
        "TWILIO_AUTH_TOKEN": twilio.auth_token,
        "TWILIO_API_URL": twilio.url,
        **{f"TWILIO_{name.upper()}_FROM": senders[name] for name in numbers},
    }


async def test_sms_webhook_is_set_and_whatsapps_is_left_to_the_person(here: Path, twilio: FakeTwilio) -> None:
    both = env(twilio, "sms", "whatsapp")
    assert await askfirst("webhooks", "set", "bot.py", cwd=here, env=both) == (0, f"sms: {URL}\n", BY_HAND)
    assert twilio.webhook_url == f"{URL}#rc=3&rp=all"
    code, out, _ = await askfirst("webhooks", "show", "--json", cwd=here, env=both)
    assert (code, json.loads(out)) == (0, {"sms": URL})
    assert await askfirst("webhooks", "delete", cwd=here, env=both) == (0, "sms: deleted\n", BY_HAND)
    assert twilio.webhook_url == ""


async def test_whatsapp_alone_is_no_error(here: Path, twilio: FakeTwilio) -> None:
    alone = env(twilio, "whatsapp")
    assert await askfirst("webhooks", "set", cwd=here, env=alone) == (0, "", BY_HAND)


async def test_a_number_of_somebody_else_is_named(here: Path, twilio: FakeTwilio) -> None:
    settings = env(twilio, "sms") | {"TWILIO_SMS_FROM": "+15559990000"}
    code, _, err = await askfirst("webhooks", "set", cwd=here, env=settings)
    assert code == 1 and "+15559990000 is no number of this account" in err
    assert twilio.auth_token not in err


async def test_webhook_commands_ignore_channels_set_up_another_way(here: Path, twilio: FakeTwilio) -> None:
    """Slack is set up for a server, Telegram for a laptop: neither keeps anybody from looking."""
    async with FakeTelegram() as telegram:
        settings = env(twilio, "sms") | {
            "TELEGRAM_BOT_TOKEN": telegram.token,
            "TELEGRAM_API_URL": telegram.url,
            "SLACK_BOT_TOKEN": "xoxb-1234567890-abcdefghij",
            "SLACK_SIGNING_SECRET": "8f742231b10e8888abcd99yyyzzz85a5",
        }
        code, out, _ = await askfirst("webhooks", "show", "--json", cwd=here, env=settings)
        assert (code, json.loads(out)) == (0, {"sms": None, "telegram": None})
        code, out, _ = await askfirst("webhooks", "delete", cwd=here, env=settings)
        assert (code, set(out.splitlines())) == (0, {"sms: deleted", "telegram: deleted"})
        store = SqliteStore(here / ".askfirst" / "askfirst.db")
        await store.open()
        await store.close()
        code, out, _ = await askfirst("pending", "list", "--json", "--bot", "bot.py", cwd=here, env=settings)
        assert (code, json.loads(out)) == (0, [])
        code, _, err = await askfirst("webhooks", "show", cwd=here, env={"SLACK_SIGNING_SECRET": "8" * 32})
        assert code == 78 and "SLACK_BOT_TOKEN: set it" in err
