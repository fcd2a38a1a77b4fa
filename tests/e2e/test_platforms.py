"""Several platforms in one real process: one that fails or is slow holds back no other, and heals by itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp

from tests.cli.processes import Process, forked
from tests.e2e.house import SECRET
from tests.fakes.openai import FakeOpenAI
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import FakeTelegram
from tests.fakes.twilio import FakeTwilio
from tests.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "invoices.py"


class Served:
    """One process with two platforms."""

    def __init__(self, process: Process, url: str, telegram: FakeTelegram, slack: FakeSlack, model: FakeOpenAI) -> None:
        self.process, self.url, self.telegram, self.slack, self.model = process, url, telegram, slack, model
        self.ana, self.ben = telegram.person("Ana"), slack.person("ben")

    async def ready(self) -> tuple[int, dict[str, Any]]:
        async with aiohttp.ClientSession() as http, http.get(f"{self.url}/readyz") as answer:
            return answer.status, await answer.json()

    async def until_ready(self, condition: Callable[[dict[str, Any]], bool]) -> int:
        """The status once `/readyz` says this."""
        async with asyncio.timeout(10):
            while True:
                status, checks = await self.ready()
                if condition(checks):
                    return status

    async def telegram_answers(self, words: str) -> None:
        self.model.script([words])
        await self.telegram.person_says(self.ana, self.ana, "hello")
        await self.telegram.wait_for(lambda: self.telegram.sent and self.telegram.sent[-1].text == words)


@contextlib.asynccontextmanager
async def served(directory: Path, *, failing: int = 0, sms: FakeTwilio | None = None) -> AsyncIterator[Served]:
    """`failing`: so many calls of Slack's that say whose the token is fail first. `sms`: a third platform."""
    async with FakeTelegram() as telegram, FakeSlack() as slack, FakeOpenAI() as model:
        slack.fail_next("auth.test", status=503, html=True, times=failing)
        port = free_port()
        env = {
            "ASKFIRST_STORE": f"sqlite:///{directory / 'askfirst.db'}",
            "ASKFIRST_ALLOW": "telegram:*,slack:*",
            "ASKFIRST_PROVIDER": "openai:test-model",
            "TELEGRAM_BOT_TOKEN": telegram.token,
            "TELEGRAM_WEBHOOK_SECRET": SECRET,
            "TELEGRAM_API_URL": telegram.url,
            "SLACK_BOT_TOKEN": slack.bot_token,
            "SLACK_SIGNING_SECRET": slack.signing_secret,
            "SLACK_API_URL": slack.api_url,
            "OPENAI_API_KEY": model.key,
            "OPENAI_BASE_URL": model.url,
        }
        if sms is not None:
            env |= {
                "ASKFIRST_ALLOW": "*",
                "ASKFIRST_PUBLIC_URL": f"http://127.0.0.1:{port}",
                "TWILIO_ACCOUNT_SID": sms.account_sid,
                "TWILIO_AUTH_TOKEN": sms.auth_token,
                "TWILIO_SMS_FROM": sms.sms,
                "TWILIO_API_URL": sms.url,
            }
        async with forked("serve", EXAMPLE, "--host=127.0.0.1", f"--port={port}", cwd=directory, env=env) as process:
            url = await process.url()
            telegram.webhook.update(url=f"{url}/webhooks/telegram", secret=SECRET)
            slack.webhook = f"{url}/webhooks/slack"
            yield Served(process, url, telegram, slack, model)


async def test_platform_unreachable_at_the_start_is_retried(tmp_path: Path) -> None:
    async with served(tmp_path, failing=100) as house:
        slack, telegram = house.slack, house.telegram
        await house.process.says(r"slack \(not reached yet: it is tried again until it is\): http\S+/webhooks/slack")
        channels = {"telegram": True, "slack": False}
        expected = {"store": True, "working": True, "new_messages": "taken", "channels": channels}
        assert await house.ready() == (200, expected)
        await house.telegram_answers("Hello Ana.")
        assert {status for _, status in telegram.deliveries} == {200}
        house.model.script(["Hello Ben."])
        await slack.says(house.ben, slack.direct(house.ben), "hello")
        assert [delivery.status for delivery in slack.deliveries] == [503] * 4

        slack._faults.clear()
        assert await house.until_ready(lambda checks: checks["channels"]["slack"]) == 200
        await slack.says(house.ben, slack.direct(house.ben), "hello again")
        answer = await slack.wait_for(lambda: slack.last(slack.direct(house.ben)))
        assert answer.text == "Hello Ben."
    assert house.process.said.count("slack cannot be reached (") == 1
    assert "slack is reached again" in house.process.said
    assert "Traceback" not in house.process.said


async def test_a_platform_that_hangs_holds_back_no_other(tmp_path: Path) -> None:
    async with served(tmp_path) as house:
        slack = house.slack
        people = [slack.person(f"person {number}") for number in range(70)]
        holds = [slack.hold("chat.postMessage", "before") for _ in people]
        for _ in people:
            house.model.script(["Hello."])
        for person in people:
            await slack.says(person, slack.direct(person), "hello")
        await holds[63].reached()  # as many calls as one process makes to a platform at once
        await house.telegram_answers("Hello Ana.")
        for hold in holds:
            hold.release()
        await slack.wait_for(lambda: len(slack.sent) == len(people))
        assert (await house.ready())[1]["channels"] == {"telegram": True, "slack": True}


async def test_however_many_platforms_hang_they_hold_back_no_other(tmp_path: Path) -> None:
    async with FakeTwilio() as twilio, served(tmp_path, sms=twilio) as house:
        slack, telegram = house.slack, house.telegram
        twilio.webhook_url = f"{house.url}/webhooks/twilio"
        holds = [slack.hold("chat.postMessage", "before") for _ in range(64)]
        holds += [telegram.hold("sendMessage", "before") for _ in range(64)]
        house.model.script(["Hello."] * 128)
        for number in range(64):
            here, there = slack.person(f"person {number}"), telegram.person(f"person {number}")
            await slack.says(here, slack.direct(here), "hello")
            await telegram.person_says(there, there, "hello")
        async with asyncio.timeout(20):
            await asyncio.gather(holds[63].reached(), holds[127].reached())  # all that one process makes at once
        house.model.script(["Hello Ana."])
        await twilio.person_says("+15557654321", "hello")
        await twilio.wait_for(lambda: twilio.last("+15557654321", containing="Hello Ana."))
        for hold in holds:
            hold.release()


async def test_failing_platform_is_reported_until_a_call_succeeds(tmp_path: Path) -> None:
    async with served(tmp_path) as house:
        slack = house.slack
        slack.fail_next("chat.postMessage", status=503, html=True)
        hold = None
        house.model.script(["Hello Ben."])
        await slack.says(house.ben, slack.direct(house.ben), "hello")
        hold = slack.hold("chat.postMessage")
        assert await house.until_ready(lambda checks: not checks["channels"]["slack"]) == 200
        await hold.reached()
        hold.release()
        await slack.wait_for(lambda: slack.last(slack.direct(house.ben)))
        assert await house.until_ready(lambda checks: checks["channels"]["slack"]) == 200
        assert [sent.text for sent in slack.sent] == ["Hello Ben."]


async def test_a_token_that_is_revoked_for_a_while_loses_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as house:
        telegram, token = house.telegram, house.telegram.token
        telegram.token = token.partition(":")[0] + ":revoked"
        house.model.script(["Hello Ana.", "Hello Cem."])
        cem = telegram.person("Cem")
        for person in (house.ana, cem):
            await telegram.person_says(person, person, "hello")
        await house.process.says("telegram takes nothing from us")
        assert await house.until_ready(lambda checks: not checks["channels"]["telegram"]) == 200
        telegram.token = token
        await telegram.wait_for(lambda: {sent.text for sent in telegram.sent} == {"Hello Ana.", "Hello Cem."})
        await house.process.says("telegram takes what we send again")
    assert house.process.said.count("TELEGRAM_BOT_TOKEN: Telegram does not know it (unauthorized)") == 1


async def test_a_firewall_that_answers_for_a_platform_blocks_nobody(tmp_path: Path) -> None:
    async with served(tmp_path) as house:
        house.telegram.fail_next("sendMessage", 403, html=True)
        house.slack.fail_next("chat.postMessage", status=403, html=True)
        await house.telegram_answers("Hello Ana.")
        house.model.script(["Hello Ben."])
        await house.slack.says(house.ben, house.slack.direct(house.ben), "hello")
        answer = await house.slack.wait_for(lambda: house.slack.last(house.slack.direct(house.ben)))
        assert answer.text == "Hello Ben."
