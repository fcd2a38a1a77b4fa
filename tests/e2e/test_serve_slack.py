"""The real ``askfirst serve`` and ``askfirst dev`` on Slack: the whole story, with a restart in the middle."""

from __future__ import annotations

import asyncio
import io
import signal
from pathlib import Path

from pypdf import PdfReader

from gateway.wording import say
from tests.cli.processes import forked, running
from tests.e2e.house import SIGNING
from tests.fakes.openai import Call, FakeOpenAI
from tests.fakes.slack import FakeSlack, Sent
from tests.fakes.slack_limits import as_markdown

EXAMPLE = Path(__file__).parents[2] / "examples" / "invoices.py"
SERVE = ("serve", EXAMPLE, "--host", "127.0.0.1", "--port")


def sent_to(slack: FakeSlack, channel: str) -> list[Sent]:
    return [message for message in slack.sent if message.channel == channel]


async def answered(slack: FakeSlack, by: str, channel: str, text: str, thread: str | None = None) -> Sent:
    """What the bot says next where somebody writes this."""
    before = len(sent_to(slack, channel))
    await slack.says(by, channel, text, thread=thread)
    await slack.wait_for(lambda: len(sent_to(slack, channel)) > before)
    return sent_to(slack, channel)[before]


def served(slack: FakeSlack, model: FakeOpenAI, directory: Path) -> dict[str, str]:
    return {
        "ASKFIRST_STORE": f"sqlite:///{directory / 'askfirst.db'}",
        "ASKFIRST_SECRET": SIGNING,
        "ASKFIRST_ALLOW": "slack:*",
        "ASKFIRST_LOG_LEVEL": "DEBUG",
        "ASKFIRST_PROVIDER": "openai:test-model",
        "SLACK_BOT_TOKEN": slack.bot_token,
        "SLACK_SIGNING_SECRET": slack.signing_secret,
        "SLACK_API_URL": slack.api_url,
        "OPENAI_API_KEY": model.key,
        "OPENAI_BASE_URL": model.url,
    }


async def test_the_whole_story(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FakeOpenAI() as model:
        env = served(slack, model, tmp_path)
        ana, ben, team = slack.person("ana"), slack.person("ben"), slack.channel()
        bot = f"<@{slack.bot_user}>"

        model.script([Call("list_invoices", {"state": "open"}), "**INV-7** and **INV-42** are open."])
        model.script([Call("delete_invoice", {"invoice_id": "INV-42"})])
        async with running(*SERVE, "0", cwd=tmp_path, env=env) as first:
            url = await first.url()
            slack.webhook = f"{url}/webhooks/slack"
            answer = await answered(slack, ana, slack.direct(ana), "list the open invoices")
            assert (answer.shown, answer.thread) == ("*INV-7* and *INV-42* are open.", None)
            prompt = await answered(slack, ana, team, f"{bot} delete invoice INV-42")
            assert prompt.shown.startswith("*Delete invoice INV-42 for good?*")
            assert list(prompt.buttons) == ["Confirm", "Cancel", "Change"]
            assert prompt.thread is not None
            first.signal(signal.SIGTERM)
            assert await first.ended() == 0

        async with forked(*SERVE, url.rpartition(":")[2], cwd=tmp_path, env=env) as second:
            await second.url()
            waiting = await answered(slack, ana, team, f"{bot} /pending", thread=prompt.thread)
            assert "Delete invoice INV-42 for good?" in waiting.shown
            refused = await slack.press(prompt, "Confirm", by=ben)
            await slack.wait_for(lambda: refused.answers)
            [told] = refused.answers
            assert as_markdown(told["blocks"]) == say("not_yours", "en")
            assert (told["response_type"], told["thread_ts"]) == ("ephemeral", prompt.thread)
            assert list(prompt.buttons) == ["Confirm", "Cancel", "Change"]

            done = "Invoice INV-42 of Café Aurora is deleted."
            await asyncio.gather(*(slack.press(prompt, "Confirm", by=ana) for _ in range(2)))
            await slack.wait_for(lambda: not prompt.buttons)
            await slack.wait_for(lambda: slack.sent[-1].shown == done)
            assert "Confirmed by ana" in prompt.shown

            model.script([Call("send_invoice_pdf", {"invoice_id": "INV-7"}), "Here is **INV-7**."])
            answer = await answered(slack, ana, team, f"{bot} send me INV-7 as PDF", thread=prompt.thread)
            assert (answer.shown, answer.thread) == ("Here is *INV-7*.", prompt.thread)
            file = await slack.wait_for(lambda: slack.files[0] if slack.files else None)
            assert (file.name, file.channel, file.thread) == ("INV-7.pdf", team, prompt.thread)
            assert "Blue Bakery" in PdfReader(io.BytesIO(file.content or b"")).pages[0].extract_text()
            told_model = str(model.requests[-1]["messages"])
            assert "delete invoice INV-42" in told_model and "confirmed by the person and done" in told_model
            second.signal(signal.SIGTERM)
            assert await second.ended() == 0

        assert [message.shown for message in slack.sent].count(done) == 1
        assert {(delivery.status, delivery.body) for delivery in slack.deliveries} == {(200, b"")}
        assert slack.called("apps.connections.open") == []
    said = first.said + second.said
    for hidden in (
        slack.bot_token,
        slack.signing_secret,
        SIGNING,
        model.key,
        "Aurora",
        "Bakery",
        "the open",
        "/actions/",
    ):
        assert hidden not in said
    assert "Traceback" not in said


def in_dev(slack: FakeSlack, directory: Path) -> dict[str, str]:
    return {
        "ASKFIRST_STORE": f"sqlite:///{directory / 'askfirst.db'}",
        "ASKFIRST_LOG_LEVEL": "DEBUG",
        "SLACK_BOT_TOKEN": slack.bot_token,
        "SLACK_APP_TOKEN": slack.app_token,
        "SLACK_API_URL": slack.api_url,
    }


async def test_message_sent_before_a_kill_is_found_and_not_resent(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FakeOpenAI() as model:
        env, ana = served(slack, model, tmp_path), slack.person("ana")
        hold = slack.hold("chat.postMessage", "after")
        model.script(["Hello."])
        async with forked(*SERVE, "0", cwd=tmp_path, env=env) as first:
            url = await first.url()
            slack.webhook = f"{url}/webhooks/slack"
            await slack.says(ana, slack.direct(ana), "hello")
            await hold.reached()
            first.signal(signal.SIGKILL)
            await first.ended()
        async with forked(*SERVE, url.rpartition(":")[2], cwd=tmp_path, env=env) as second:
            await second.url()
            model.script(["Hello again."])
            await slack.says(ana, slack.direct(ana), "hello again")
            await slack.wait_for(lambda: slack.sent[-1].shown == "Hello again.", timeout_seconds=20)
        assert [message.shown for message in slack.sent] == ["Hello.", "Hello again."]


async def test_dev_hears_slack_without_an_address(tmp_path: Path) -> None:
    async with FakeSlack() as slack:
        ana = slack.person("ana")
        async with running("dev", EXAMPLE, "--port", "0", cwd=tmp_path, env=in_dev(slack, tmp_path)) as process:
            await process.says("slack: over Socket Mode; everybody may write")
            await slack.wait_for(lambda: slack.connected)
            prompt = await answered(slack, ana, slack.direct(ana), "delete invoice INV-42")
            assert list(prompt.buttons) == ["Confirm", "Cancel", "Change"]
            await slack.disconnect("refresh_requested")
            await slack.wait_for(lambda: len(slack.connected) == 2)
            await slack.connected[0].close()
            await slack.press(prompt, "Confirm", by=ana)
            await slack.wait_for(lambda: any("is deleted" in message.shown for message in slack.sent))
            await slack.command(ana, slack.direct(ana), "/pending")
            await slack.wait_for(lambda: slack.sent[-1].shown == say("pending_none", "en"))
            process.signal(signal.SIGINT)
            assert await process.ended() == 0
        assert len(slack.acknowledged) == 3
        assert slack.deliveries == []
    for hidden in (slack.bot_token, slack.app_token, "ticket", "INV-42"):
        assert hidden not in process.said
    assert "Traceback" not in process.said


async def test_dev_asks_for_a_connection_no_sooner_than_it_may(tmp_path: Path) -> None:
    async with FakeSlack() as slack:
        slack.fail_next("apps.connections.open", "ratelimited", status=429, retry_after=3)
        async with running("dev", EXAMPLE, "--port", "0", cwd=tmp_path, env=in_dev(slack, tmp_path)) as process:
            clock = asyncio.get_running_loop().time
            await slack.wait_for(lambda: slack.called("apps.connections.open"))
            refused = clock()
            await slack.wait_for(lambda: slack.connected)
            assert clock() - refused > 2
            await process.says("slack: ratelimited")
            process.signal(signal.SIGINT)
            assert await process.ended() == 0
