"""A refund that a Slack channel and a Telegram group approve, asked by a customer in a private chat."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

from tests.cli.processes import forked
from tests.fakes.model_server import Call
from tests.fakes.openai import FakeOpenAI
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import FakeTelegram
from tests.ports import free_port
from tests.story.phones import SECRET
from tests.story.test_story import SIGNING, opened, settings_of

BOT = '''
import os
from askfirst import Agent, Approvers, ChannelAgent, Confirm, tool

places = Approvers(people=os.environ["PLACES"].split(","), need=2, name="our team")

@tool(confirm=Confirm("Refund order {order}?", approvers=places))
async def refund(order: str) -> str:
    """Refund an order."""
    return f"Order {order} is refunded."

bot = ChannelAgent(Agent([refund]))
'''


@pytest.mark.timeout(300)
async def test_a_channel_and_a_group_approve_a_refund(tmp_path: Path) -> None:
    (tmp_path / "bot.py").write_text(BOT)
    url = f"http://127.0.0.1:{(port := free_port())}"
    async with (
        FakeSlack() as slack,
        FakeTelegram() as telegram,
        FakeOpenAI() as model,
        opened("sqlite", tmp_path) as kept,
    ):
        eva, dan, guest = slack.person("Eva"), slack.person("Dan"), slack.person("Gus", team="T0OTHER")
        ana, ben, group, channel = (
            telegram.person("Ana"),
            telegram.person("Ben"),
            telegram.group("Ops"),
            slack.channel(),
        )
        env = {
            "ASKFIRST_SECRET": SIGNING,
            "ASKFIRST_ALLOW": f"telegram:{telegram.bot.id}:{ana.id}",
            "ASKFIRST_PUBLIC_URL": url,
            "PLACES": f"place:slack:{slack.team}:{channel},place:telegram:{telegram.bot.id}:{group.id}",
            **slack.settings,
            **telegram.settings(SECRET),
            **kept,
            **settings_of("openai", model),
        }
        slack.webhook = f"{url}/webhooks/slack"
        telegram.webhook.update(url=f"{url}/webhooks/telegram", secret=SECRET)
        serve = ("serve", tmp_path / "bot.py", "--host=127.0.0.1", f"--port={port}")
        async with forked(*serve, cwd=tmp_path, env=env) as served:
            await served.url()
            model.script([Call("refund", {"order": "A-17"})])
            await telegram.person_says(ana, ana, "please refund A-17")
            in_slack = await slack.wait_for(partial(slack.last, channel, button="Confirm"))
            in_group = await telegram.wait_for(
                lambda: next((each for each in telegram.sent if each.chat.id == group.id), None)
            )
            own = await telegram.wait_for(lambda: next((m for m in telegram.sent if m.chat.id == ana.id), None))
            assert "our team" in own.text and "place:" not in own.text
            code = re.search(r"\bOK (\w{4})\b", in_slack.text)
            assert code is not None

            outside = await slack.press(in_slack, "Confirm", by=guest)
            await slack.wait_for(lambda: outside.answers)
            assert "This is not yours to answer." in str(outside.answers)
            await slack.says(guest, channel, f"OK {code[1]}")
            await slack.says(eva, channel, "good morning all")
            await slack.says(eva, channel, f"OK {code[1]}")
            await slack.wait_for(lambda: any("1 of 2" in m.text for m in slack.sent))
            await slack.says(eva, channel, f"OK {code[1]}", thread=in_slack.ts)
            await slack.says(dan, channel, "yes")
            await telegram.person_says(group, ana, "yes", reply_to=in_group)
            assert not any("is refunded" in m.text for m in telegram.sent)

            await telegram.person_says(group, ben, "yes", reply_to=in_group)
            await telegram.wait_for(lambda: any("Order A-17 is refunded." in m.text for m in telegram.sent))
            await slack.wait_for(lambda: sum("Confirmed by Ben" in m.text for m in slack.sent) == 2)
            assert not in_slack.buttons
    assert "Traceback" not in served.said
