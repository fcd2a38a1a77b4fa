"""Approval by a manager, as on the page: asked by SMS, approved on Slack and Telegram, by two real processes."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import aiohttp
import pytest

from tests.cli.processes import forked
from tests.fakes.model_server import Call
from tests.fakes.openai import FakeOpenAI
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import FakeTelegram, Message, User
from tests.fakes.twilio import FakeTwilio
from tests.ports import free_port
from tests.story.phones import SECRET
from tests.story.test_story import SIGNING, opened, settings_of

PAGE = Path(__file__).parents[2] / "docs" / "approval.md"
ANA = "+15557654321"


def ends(telegram: FakeTelegram, chat: User) -> bool:
    """Return True once this manager's question is edited and the outcome reported, once each."""
    return sum("✅ Confirmed by" in message.text for message in telegram.sent if message.chat.id == chat.id) == 2


def question_to(telegram: FakeTelegram, manager: User, asked: str) -> Message | None:
    return next((each for each in telegram.sent if each.chat.id == manager.id and asked in each.text), None)


def link_in(twilio: FakeTwilio) -> str | None:
    found = re.search(r"http\S+/artifacts/\S+", "\n".join(message.body for message in twilio.sent))
    return found[0] if found is not None else None


@pytest.mark.ledger("POL-19")
@pytest.mark.timeout(300)
async def test_two_of_three_managers_approve_a_refund_asked_by_sms(tmp_path: Path) -> None:
    bot = tmp_path / "bot.py"
    bot.write_text(re.search(r"```python\n(# bot\.py\n.*?)```", PAGE.read_text(), re.DOTALL)[1])  # type: ignore[index]
    first_port, second_port = free_port(), free_port()
    first_url, second_url = (f"http://127.0.0.1:{port}" for port in (first_port, second_port))
    async with (
        FakeTwilio() as twilio,
        FakeSlack() as slack,
        FakeTelegram() as telegram,
        FakeOpenAI() as model,
        opened("redis", tmp_path) as kept,
    ):
        eva, ben, cat = slack.person("Eva"), telegram.person("Ben"), telegram.person("Cat")
        managers = [f"slack:{slack.team}:{eva}", *(f"telegram:{telegram.bot.id}:{each.id}" for each in (ben, cat))]
        env = {
            "ASKFIRST_SECRET": SIGNING,
            "ASKFIRST_ALLOW": f"{','.join(managers)},sms:*",
            "ASKFIRST_PUBLIC_URL": first_url,
            "REFUND_MANAGERS": ",".join(managers),
            "TWILIO_ACCOUNT_SID": twilio.account_sid,
            "TWILIO_AUTH_TOKEN": twilio.auth_token,
            "TWILIO_API_URL": twilio.url,
            "TWILIO_SMS_FROM": twilio.sms,
            **slack.settings,
            **telegram.settings(SECRET),
            **kept,
            **settings_of("openai", model),
        }
        twilio.webhook_url = f"{first_url}/webhooks/twilio"
        slack.webhook = f"{second_url}/webhooks/slack"
        telegram.webhook.update(url=f"{second_url}/webhooks/telegram", secret=SECRET)
        serves = [("serve", bot, "--host=127.0.0.1", f"--port={port}") for port in (first_port, second_port)]
        async with (
            forked(*serves[0], cwd=tmp_path, env=env) as first,
            forked(*serves[1], cwd=tmp_path, env=env) as second,
        ):
            await first.url()
            await second.url()
            for manager in (ben, cat):  # the bot cannot write to them first
                await telegram.person_says(manager, manager, "/start")
            await telegram.wait_for(lambda: len(telegram.sent) == 2)

            model.script([Call("refund_order", {"order": "A-17"})])
            await twilio.person_says(ANA, "please refund A-17")
            own = await twilio.wait_for(lambda: next((m for m in twilio.sent if "Refund order" in m.body), None))
            assert "if it should not be done" in own.body and "to confirm" not in own.body
            asked = "asks for your approval"
            to_eva = await slack.wait_for(lambda: next((m for m in slack.sent if asked in m.text), None))
            to_ben, to_cat = [  # the two are asked at once: either may be written to first
                await telegram.wait_for(partial(question_to, telegram, manager, asked)) for manager in (ben, cat)
            ]

            await slack.press(to_eva, "Confirm", by=eva)
            await slack.wait_for(lambda: any("1 of 2" in m.text for m in slack.sent))
            assert not any("on their way" in m.body for m in twilio.sent)
            code = re.search(r"\bOK (\w{4})\b", to_ben.text)
            assert code is not None
            await telegram.person_says(ben, ben, f"OK {code[1]}")

            told = await twilio.wait_for(lambda: next((m for m in twilio.sent if "on their way" in m.body), None))
            assert "40 EUR for order A-17" in told.body
            link = await twilio.wait_for(partial(link_in, twilio))
            async with aiohttp.ClientSession() as http, http.get(link) as file:
                assert await file.read() == b"Refund of order A-17: 40 EUR\n"
            for chat in (ben, cat):
                await telegram.wait_for(partial(ends, telegram, chat))
            await slack.wait_for(lambda: sum("Confirmed by" in m.text for m in slack.sent) == 2)
            await telegram.wait_for(lambda: not to_cat.buttons and not to_ben.buttons)
            assert [m.body for m in twilio.sent if "on their way" in m.body] == [told.body]
    assert "Traceback" not in first.said + second.said
