"""Several platforms in one real process: a failing or slow platform delays no other, and recovers alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.wording import say
from tests.artifacts.test_pictures import png
from tests.cli.processes import Page, Process, forked
from tests.e2e.house import SECRET, env_of
from tests.fakes.openai import Call, FakeOpenAI, Say
from tests.fakes.slack import FakeSlack
from tests.fakes.telegram import FakeTelegram, Message
from tests.fakes.twilio import FakeTwilio, Media
from tests.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "invoices.py"


class Served:
    def __init__(self, process: Process, url: str, telegram: FakeTelegram, slack: FakeSlack, model: FakeOpenAI) -> None:
        self.process, self.url, self.telegram, self.slack, self.model = process, url, telegram, slack, model
        self.ana, self.ben = telegram.person("Ana"), slack.person("ben")

    async def ready(self) -> tuple[int, dict[str, Any]]:
        async with aiohttp.ClientSession() as http, http.get(f"{self.url}/readyz") as answer:
            return answer.status, await answer.json()

    async def until_ready(self, condition: Callable[[dict[str, Any]], bool]) -> int:
        """The status once `/readyz` says this."""
        async with asyncio.timeout(30):
            while True:
                status, checks = await self.ready()
                if condition(checks):
                    return status

    async def telegram_answers(self, words: str) -> None:
        self.model.script([words])
        await self.telegram.person_says(self.ana, self.ana, "hello")
        await self.telegram.wait_for(lambda: self.telegram.sent and self.telegram.sent[-1].text == words)


@contextlib.asynccontextmanager
async def served(
    directory: Path, *, failing: int = 0, twilio: FakeTwilio | None = None, **more: str
) -> AsyncIterator[Served]:
    """`failing` calls of Slack's auth.test fail first. `twilio` is a third platform, `more` further environment."""
    async with FakeTelegram() as telegram, FakeSlack() as slack, FakeOpenAI() as model:
        slack.fail_next("auth.test", status=503, html=True, times=failing)
        port = free_port()
        env = env_of(directory, telegram, slack, model, ASKFIRST_PUBLIC_URL=f"http://127.0.0.1:{port}", **more)
        if twilio is not None:
            env |= env_of(directory, twilio)
        async with forked("serve", EXAMPLE, "--host=127.0.0.1", f"--port={port}", cwd=directory, env=env) as process:
            url = await process.url()
            telegram.webhook.update(url=f"{url}/webhooks/telegram", secret=SECRET)
            slack.webhook = f"{url}/webhooks/slack"
            if twilio is not None:
                twilio.webhook_url = f"{url}/webhooks/twilio"
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
    async with FakeTwilio() as twilio, served(tmp_path, twilio=twilio) as house:
        slack, telegram = house.slack, house.telegram
        holds = [slack.hold("chat.postMessage", "before") for _ in range(64)]
        holds += [telegram.hold("sendMessage", "before") for _ in range(64)]
        house.model.script(["Hello."] * 128)
        for number in range(64):
            here, there = slack.person(f"person {number}"), telegram.person(f"person {number}")
            await slack.says(here, slack.direct(here), "hello")
            await telegram.person_says(there, there, "hello")
        async with asyncio.timeout(60):
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


async def test_a_token_that_is_revoked_for_a_while_loses_no_message(tmp_path: Path) -> None:
    async with served(tmp_path) as house:
        telegram, token = house.telegram, house.telegram.token
        telegram.token = token.partition(":")[0] + ":revoked"
        house.model.script(["Hello Ana.", "Hello Cem."])
        cem = telegram.person("Cem")
        for person in (house.ana, cem):
            await telegram.person_says(person, person, "hello")
        await house.process.says("telegram rejects our credentials")
        assert await house.until_ready(lambda checks: not checks["channels"]["telegram"]) == 200
        telegram.token = token
        await telegram.wait_for(lambda: {sent.text for sent in telegram.sent} == {"Hello Ana.", "Hello Cem."})
        await house.process.says("telegram takes what we send again")
    assert house.process.said.count("TELEGRAM_BOT_TOKEN: Telegram does not know it (unauthorized)") == 1


async def test_an_answer_of_a_firewall_suppresses_no_person(tmp_path: Path) -> None:
    async with served(tmp_path) as house:
        house.telegram.fail_next("sendMessage", 403, html=True)
        house.slack.fail_next("chat.postMessage", status=403, html=True)
        await house.telegram_answers("Hello Ana.")
        house.model.script(["Hello Ben."])
        await house.slack.says(house.ben, house.slack.direct(house.ben), "hello")
        answer = await house.slack.wait_for(lambda: house.slack.last(house.slack.direct(house.ben)))
        assert answer.text == "Hello Ben."


# ── late replies ──


DELETE = Call("delete_invoice", {"invoice_id": "INV-42"})
LATER: dict[str, dict[str, Any]] = {
    "of an earlier message": {"message_id": 1, "date": 1_700_000_000},
    "of an earlier time": {"date": 1_700_000_000},
    "quoting another chat": {"quote": {"text": "yes?", "position": 0}, "external_reply": {"origin": {}}},
    "about a story": {"reply_to_story": {"chat": {"id": 1, "type": "private"}, "id": 1}},
    "sent offline": {"is_from_offline": True},
    "struck through": {"entities": [{"type": "strikethrough", "offset": 0, "length": 3}]},
    "with a field that nobody knows": {"hologram": {"depth": 3}},
}


async def asked_again(house: Served, chat: Any, before: int) -> None:
    """Check that the question is shown again, with the code and the buttons."""
    await house.telegram.wait_for(lambda: len(house.telegram.sent) > before)
    again = house.telegram.sent[-1]
    assert "To be safe I need the code" in again.text
    assert again.buttons == ["Confirm", "Cancel", "Change"]


async def test_telegram_yes_typed_before_the_question_does_not_count(tmp_path: Path) -> None:
    async with served(tmp_path) as house:
        telegram, ana = house.telegram, house.ana
        house.model.script([DELETE])
        await telegram.person_says(ana, ana, "delete invoice INV-42")
        await telegram.wait_for(lambda: telegram.sent)
        prompt = telegram.sent[-1]
        for fields in list(LATER.values())[:2]:
            await telegram.person_says(ana, ana, "yes", **fields)
            await asked_again(house, ana, 1)
        assert len(telegram.sent) <= 4
        assert not any("is deleted" in message.text for message in telegram.sent)
        await telegram.press(prompt, "Confirm", ana)
        await telegram.wait_for(lambda: any("deleted" in message.text for message in telegram.sent))


@pytest.mark.parametrize("why", list(LATER)[2:])
async def test_telegram_words_not_typed_here_are_asked_again(tmp_path: Path, why: str) -> None:
    async with served(tmp_path) as house:
        telegram, ana = house.telegram, house.ana
        house.model.script([DELETE])
        await telegram.person_says(ana, ana, "delete invoice INV-42")
        await telegram.wait_for(lambda: telegram.sent)
        await telegram.person_says(ana, ana, "yes", **LATER[why])
        await asked_again(house, ana, 1)


async def test_slack_yes_typed_before_the_question_does_not_count(tmp_path: Path) -> None:
    async with served(tmp_path) as house:
        slack, ben = house.slack, house.ben
        direct = slack.direct(ben)
        earlier = slack.next_ts()
        house.model.script([DELETE])
        await slack.says(ben, direct, "delete invoice INV-42")
        await slack.wait_for(lambda: slack.last(direct))
        words: dict[str, Any] = {"type": "message", "user": ben, "text": "yes", "channel": direct, "channel_type": "im"}
        await slack.event({**words, "ts": earlier, "event_ts": earlier, "team": slack.team})
        await slack.wait_for(lambda: any("To be safe I need the code" in message.text for message in slack.sent))
        shared = slack.next_ts()
        share = {"is_share": True, "text": "somebody's words", "channel_id": "C1"}
        await slack.event({**words, "ts": shared, "event_ts": shared, "attachments": [share]})
        house.model.script([Say("I see.")])
        await slack.says(ben, direct, "and now?")
        await slack.wait_for(lambda: any("I see." in message.text for message in slack.sent))
        assert not any("is deleted" in message.text for message in slack.sent)


# ── wrong verbs and changed rows ──


async def asked(house: Served, invoice: str) -> Message:
    house.model.script([Call("delete_invoice", {"invoice_id": invoice})])
    await house.telegram.person_says(house.ana, house.ana, f"delete invoice {invoice}")

    def prompt() -> Message | None:
        return next((sent for sent in house.telegram.sent if sent.buttons and invoice in sent.text), None)

    return await house.telegram.wait_for(prompt)


async def says(house: Served, text: str, containing: str, reply_to: Message | None = None) -> None:
    before = len(house.telegram.sent)
    await house.telegram.person_says(house.ana, house.ana, text, reply_to=reply_to)
    await house.telegram.wait_for(lambda: any(containing in sent.text for sent in house.telegram.sent[before:]))


@pytest.mark.timeout(120)
async def test_words_of_another_verb_confirm_no_action(tmp_path: Path) -> None:
    async with served(tmp_path) as house:
        telegram = house.telegram
        prompt = await asked(house, "INV-42")
        await says(house, "yes, pay it", "To be safe I need the code")
        await says(house, "sim", "To be safe I need the code")
        await says(house, "sim", "Still open")
        house.model.script(["I cannot cancel anything."])
        await says(house, "/cancel yes", "I cannot cancel anything.", reply_to=prompt)
        await telegram.press(prompt, "Confirm", house.ana)
        await telegram.wait_for(lambda: any("INV-42" in sent.text and "deleted" in sent.text for sent in telegram.sent))


@pytest.mark.timeout(120)
async def test_changed_rows_confirm_no_action(tmp_path: Path) -> None:
    async with served(tmp_path) as house:
        telegram = house.telegram
        edited = await asked(house, "INV-7")
        kept = await asked(house, "INV-15")
        with sqlite3.connect(tmp_path / "askfirst.db", timeout=10) as db:
            rows = db.execute("SELECT name, value FROM record WHERE name LIKE 'action/%'").fetchall()
            for name, value in rows:
                stored = json.loads(value)
                if '"invoice_id":"INV-7"' in stored["body"]:
                    stored["body"] = stored["body"].replace("INV-7", "INV-666")
                    db.execute("UPDATE record SET value = ? WHERE name = ?", (json.dumps(stored), name))
        db.close()
        await telegram.press(edited, "Confirm", house.ana)
        await telegram.wait_for(lambda: any("changed from outside the chat" in sent.text for sent in telegram.sent))
        await telegram.press(kept, "Confirm", house.ana)
        await telegram.wait_for(lambda: any("INV-15" in sent.text and "deleted" in sent.text for sent in telegram.sent))
        assert not any("INV-666" in sent.text for sent in telegram.sent)
    assert "seal check failed" in house.process.said


# ── A photo reaches the model through a real ``askfirst serve``, from each platform, and the answer grows ──


PNG = png(640, 480) + b"pixels"

pytestmark = pytest.mark.timeout(180)


def serve(port: int) -> tuple[Any, ...]:
    return ("serve", EXAMPLE, "--host", "127.0.0.1", "--port", str(port))


def shown(model: FakeOpenAI) -> bool:
    return "iVBORw0KGgo" in str(model.requests[-1]["messages"][-1]["content"])


async def test_on_telegram_a_photo_is_seen_and_the_answer_grows(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, FakeOpenAI() as model:
        hold, words = asyncio.Event(), "A black cat that sleeps on a **pile of invoices**."
        model.script([Say(words, hold=hold, holds_after=6)])
        async with forked(*serve(0), cwd=tmp_path, env=env_of(tmp_path, telegram, model)) as bot:
            telegram.webhook.update(url=f"{await bot.url()}/webhooks/telegram", secret=SECRET)
            ana = telegram.person("Ana")
            photo = telegram.upload("photo", PNG, "", "image/png")
            await telegram.person_says(ana, ana, "what is this?", file=photo)
            await telegram.wait_for(lambda: bool(telegram.drafts))
            draft = telegram.drafts[-1]
            assert draft.text
            assert "A black cat that sleeps on a pile of invoices.".startswith(draft.text)
            assert not telegram.sent
            hold.set()
            answer = await telegram.wait_for(lambda: telegram.last(ana))
            assert answer.text == "A black cat that sleeps on a pile of invoices."
            assert shown(model)


async def test_on_slack_a_photo_is_seen_and_a_login_page_is_none(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FakeOpenAI() as model:
        model.script(["A cat."])
        async with forked(*serve(0), cwd=tmp_path, env=env_of(tmp_path, slack, model)) as bot:
            slack.webhook = f"{await bot.url()}/webhooks/slack"
            ana = slack.person("ana")
            photo = slack.upload("cat.png", PNG, "image/png")
            await slack.says(ana, slack.direct(ana), "what is this?", files=[photo])
            await slack.wait_for(lambda: slack.sent)
            assert [sent.shown for sent in slack.sent] == ["A cat."]
            assert shown(model)


async def test_on_whatsapp_a_photo_is_seen_and_a_lost_one_is_told(tmp_path: Path) -> None:
    async with FakeTwilio() as twilio, FakeOpenAI() as model:
        port = free_port()
        twilio.webhook_url = f"http://127.0.0.1:{port}/webhooks/twilio"
        env = env_of(tmp_path, twilio, model, ASKFIRST_PUBLIC_URL=f"http://127.0.0.1:{port}")
        model.script(["A cat.", "I see nothing."])
        async with forked(*serve(port), cwd=tmp_path, env=env) as bot:
            await bot.url()
            photo = Media(PNG, "image/png", "")
            await twilio.person_says("+15557654321", "what is this?", whatsapp=True, files=[photo])
            await twilio.wait_for(lambda: [sent.body for sent in twilio.sent] == ["A cat."])
            assert shown(model)
            await twilio.person_says("+15557654321", "and this?", whatsapp=True, files=[Media(b"", "image/png", "")])
            told = say("file_not_read", "en", name="image")
            await twilio.wait_for(lambda: told in [sent.body for sent in twilio.sent])
            assert "not read: it is empty" in str(model.requests[-1]["messages"][-1]["content"])


async def test_on_the_page_a_photo_is_seen_and_anothers_is_not(tmp_path: Path) -> None:
    async with FakeOpenAI() as model:
        model.script(["A cat.", "I see nothing."])
        bot_file = tmp_path / "invoices.py"
        bot_file.write_text(EXAMPLE.read_text())
        dev = ("dev", bot_file, "--port", "0")
        async with forked(*dev, cwd=tmp_path, env=env_of(tmp_path, model)) as bot:
            url = await bot.url()
            async with browser(url) as page:
                photo = await page.uploads("cat.png", PNG)
                await page.says("what is this?", photo)
                await page.sees("A cat.")
                assert shown(model)
            async with browser(url) as thief:
                await thief.says("and this?", photo)
                await thief.sees(say("file_not_read", "en", name="cat.png"))
                assert "iVBORw0KGgo" not in str(model.requests[-1])


@asynccontextmanager
async def browser(url: str) -> AsyncIterator[Page]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        page = Page(http, url)
        await page.open()
        yield page
