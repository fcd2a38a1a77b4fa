"""The real ``askfirst serve`` and ``askfirst dev`` on Slack, by SMS and by WhatsApp: whole stories, with restarts."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import io
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from pypdf import PdfReader

from gateway.wording import say
from tests.cli.processes import askfirst, forked, running
from tests.cli.test_audit import bytes_in
from tests.e2e.house import SIGNING, env_of
from tests.fakes.openai import Call, FakeOpenAI
from tests.fakes.slack import FakeSlack, Sent, as_markdown
from tests.fakes.twilio import Answer, FakeTwilio
from tests.fakes.twilio import Sent as Texted
from tests.fakes.waiting import listen
from tests.ports import free_port
from tests.test_docs import python_files

EXAMPLE = Path(__file__).parents[2] / "examples" / "invoices.py"
SERVE = ("serve", EXAMPLE, "--host", "127.0.0.1", "--port")


def sent_to(slack: FakeSlack, channel: str) -> list[Sent]:
    return [message for message in slack.sent if message.channel == channel]


async def answered(slack: FakeSlack, by: str, channel: str, text: str, thread: str | None = None) -> Sent:
    before = len(sent_to(slack, channel))
    await slack.says(by, channel, text, thread=thread)
    await slack.wait_for(lambda: len(sent_to(slack, channel)) > before)
    return sent_to(slack, channel)[before]


def served(slack: FakeSlack, model: FakeOpenAI, directory: Path) -> dict[str, str]:
    return env_of(directory, slack, model, ASKFIRST_LOG_LEVEL="DEBUG")


async def test_the_whole_story_on_slack(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FakeOpenAI() as model:
        env = served(slack, model, tmp_path)
        ana, ben, team = slack.person("ana"), slack.person("ben"), slack.channel()
        bot = f"<@{slack.bot_user}>"

        model.script([Call("list_invoices", {"state": "open"}), "**INV-7** and **INV-42** are open."])
        model.script([Call("delete_invoice", {"invoice_id": "INV-42"})])
        async with forked(*SERVE, "0", cwd=tmp_path, env=env) as first:
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
        # A slow machine puts a delivery off, and Slack delivers it again.
        assert {(each.status, each.body) for each in slack.deliveries if each.status != 503} == {(200, b"")}
        assert slack.called("apps.connections.open") == []
    said = first.said + second.said
    secrets = (slack.bot_token, slack.signing_secret, SIGNING, model.key)
    for hidden in (*secrets, "Aurora", "Bakery", "the open", "/actions/"):
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
        async with forked("dev", EXAMPLE, "--port", "0", cwd=tmp_path, env=in_dev(slack, tmp_path)) as process:
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
        async with forked("dev", EXAMPLE, "--port", "0", cwd=tmp_path, env=in_dev(slack, tmp_path)) as process:
            clock = asyncio.get_running_loop().time
            await slack.wait_for(lambda: slack.called("apps.connections.open"))
            refused = clock()
            await slack.wait_for(lambda: slack.connected)
            assert clock() - refused > 2
            await process.says("slack: ratelimited")
            process.signal(signal.SIGINT)
            assert await process.ended() == 0


# ── SMS and WhatsApp ──


ANA = "+15557654321"
TAKEN = Answer(200, '<?xml version="1.0" encoding="UTF-8"?><Response></Response>', "text/xml")
DONE = "Invoice INV-42 of Café Aurora is deleted."


class Phone:
    def __init__(self, twilio: FakeTwilio, *, whatsapp: bool) -> None:
        self.twilio, self.whatsapp = twilio, whatsapp

    async def answered(self, text: str, containing: str) -> Texted:
        """Send a text. Returns the bot's first later message with these words."""
        before = len(self.twilio.sent)
        assert await self.twilio.person_says(ANA, text, whatsapp=self.whatsapp) == TAKEN
        return await self.next(before, containing)

    async def next(self, before: int, containing: str) -> Texted:
        def found() -> Texted | None:
            return next((sent for sent in self.twilio.sent[before:] if containing in sent.body), None)

        sent = await self.twilio.wait_for(found)
        assert sent.to == (f"whatsapp:{ANA}" if self.whatsapp else ANA)
        return sent


@pytest.mark.timeout(300)
@pytest.mark.parametrize("whatsapp", [False, True], ids=["sms", "whatsapp"])
async def test_the_whole_story_by_sms_and_whatsapp(tmp_path: Path, whatsapp: bool) -> None:
    async with FakeTwilio() as twilio, FakeOpenAI() as model, aiohttp.ClientSession() as http:
        port = free_port()
        base = f"http://127.0.0.1:{port}"
        twilio.webhook_url = f"{base}/webhooks/twilio"
        serve = ("serve", EXAMPLE, "--host", "127.0.0.1", "--port", str(port))
        env = env_of(tmp_path, twilio, model, ASKFIRST_LOG_LEVEL="DEBUG", ASKFIRST_PUBLIC_URL=base)
        phone = Phone(twilio, whatsapp=whatsapp)

        model.script([Call("list_invoices", {"state": "open"}), "**INV-7** and **INV-42** are open."])
        model.script([Call("delete_invoice", {"invoice_id": "INV-42"})])
        async with forked(*serve, cwd=tmp_path, env=env) as first:
            await first.says(re.escape(f"sms, whatsapp: {base}/webhooks/twilio\n"))
            shown = "*INV-7* and *INV-42* are open." if whatsapp else "INV-7 and INV-42 are open."
            assert (await phone.answered("list the open invoices", "are open")).body == shown
            prompt = await phone.answered("delete invoice INV-42", "Delete invoice INV-42 for good?")
            asked = re.search(r"Reply \*?OK (\w{4})\*? to confirm or \*?NO \1\*? to cancel\.", prompt.body)
            assert (
                asked
                and re.search('Customer: ["“]Café Aurora["”]', prompt.body)
                and "You have 30 minutes" in prompt.body
            )
            await twilio.wait_for(lambda: ("delivered", 200) in prompt.reports)
            early = await phone.answered("yes", "Delete invoice")  # SMS has no bare yes, nor has WhatsApp this early
            assert f"To be safe I need the code {asked[1]} with your answer." in early.body
            first.signal(signal.SIGTERM)
            assert await first.ended() == 0

        async with forked(*serve, cwd=tmp_path, env=env) as second:
            await second.url()
            mistyped = await phone.answered("YES 0000", "Delete invoice INV-42 for good?")
            assert f"To be safe I need the code {asked[1]} with your answer." in mistyped.body
            before = len(twilio.sent)
            yes = twilio.form(ANA, f"yes {asked[1].lower()}", whatsapp=whatsapp)
            assert [await twilio.deliver(yes) for _ in range(3)] == [TAKEN] * 3
            await phone.next(before, DONE)

            model.script([Call("send_invoice_pdf", {"invoice_id": "INV-7"}), "Here is **INV-7**."])
            await phone.answered("send me INV-7 as PDF", "INV-7")
            if whatsapp:
                file = await twilio.wait_for(lambda: next((sent for sent in twilio.sent if sent.media), None))
                (media,) = file.media
                content, mime_type = media.content, media.mime_type
            else:
                file = await phone.next(before, "INV-7.pdf: http")
                async with http.get(file.body.partition(": ")[2]) as found:
                    content, mime_type = await found.read(), found.content_type
            assert mime_type == "application/pdf"
            assert "Blue Bakery" in PdfReader(io.BytesIO(content)).pages[0].extract_text()

            model.script([Call("delete_invoice", {"invoice_id": "INV-15"})])
            again = await phone.answered("delete INV-15", "Delete invoice INV-15 for good?")
            code = re.search(r"OK (\w{4})", again.body)
            assert code
            assert await twilio.person_says(ANA, "STOP", whatsapp=whatsapp) == TAKEN
            if whatsapp:
                await phone.next(before, "You will hear nothing more from me.")
            told = len(twilio.sent)
            for text in (f"ok {code[1]}", "are you there?"):
                assert await twilio.person_says(ANA, text, whatsapp=whatsapp) == TAKEN
            await second.says('"how": "not answered: they have opted out"')
            assert len(twilio.sent) == told
            model.script(["Welcome back."])
            assert await twilio.person_says(ANA, "START", whatsapp=whatsapp) == TAKEN
            await phone.answered("what is still there?", "Welcome back.")
            heard = str(model.requests[-1]["messages"])
            assert "confirmed by the person and done" in heard and "are you there?" not in heard
            assert "(Delete invoice INV-15 for good?): withdrawn: it was NOT done" in heard
            second.signal(signal.SIGTERM)
            assert await second.ended() == 0

        assert [sent.body for sent in twilio.sent].count(DONE) == 1
        assert {answer for sent in twilio.sent for _, answer in sent.reports} <= {200, None}
    said = first.said + second.said
    for hidden in (twilio.auth_token, SIGNING, model.key, "Aurora", "Bakery", "list the open", "there?", "/artifacts/"):
        assert hidden not in said
    assert "Traceback" not in said


# ── export and forget ──


def code(asked: Sent, command: str) -> str:
    (found,) = re.findall(rf"/{command} (\S+)", asked.shown)
    return str(found)


async def listed(directory: Path, env: dict[str, str]) -> list[str]:
    exit_code, out, err = await askfirst("conversations", "list", "--json", cwd=directory, env=env)
    assert exit_code == 0, err
    found: list[str] = json.loads(out)
    return found


async def test_person_on_slack_exports_and_forgets_themselves(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FakeOpenAI() as model:
        env, ana = served(slack, model, tmp_path), slack.person("ana")
        home = slack.direct(ana)
        model.script(["You like quokkas.", Call("delete_invoice", {"invoice_id": "INV-42"})])
        async with forked(*SERVE, "0", cwd=tmp_path, env=env) as server:
            slack.webhook = f"{await server.url()}/webhooks/slack"
            await answered(slack, ana, home, "I like quokkas")
            question = await answered(slack, ana, home, "delete invoice INV-42")
            assert list(question.buttons) == ["Confirm", "Cancel", "Change"]
            asked = await answered(slack, ana, home, "/export")
            await slack.says(ana, home, f"/export {code(asked, 'export')}")
            file = await slack.wait_for(lambda: slack.files[0] if slack.files else None)
            assert file.content and b"I like quokkas" in file.content
            asked = await answered(slack, ana, home, "/forget")
            told = await answered(slack, ana, home, f"/forget {code(asked, 'forget')}")
            assert told.shown == say("forget_begun", "en")
            await slack.wait_for(lambda: b"quokkas" not in bytes_in(tmp_path))
            assert await listed(tmp_path, env) == []
            pressed = await slack.press(question, "Confirm", by=ana)
            await slack.wait_for(lambda: pressed.answers)
            model.script(["Hello."])
            assert (await answered(slack, ana, home, "hello")).shown == "Hello."
            assert not any("is deleted" in each.shown for each in sent_to(slack, home))


async def test_operator_forgets_a_person_of_a_running_server(tmp_path: Path) -> None:
    async with FakeSlack() as slack, FakeOpenAI() as model:
        env, ana, ben = served(slack, model, tmp_path), slack.person("ana"), slack.person("ben")
        model.script(["You like quokkas.", "You like wombats."])
        async with forked(*SERVE, "0", cwd=tmp_path, env=env) as server:
            slack.webhook = f"{await server.url()}/webhooks/slack"
            await answered(slack, ana, slack.direct(ana), "I like quokkas")
            await answered(slack, ben, slack.direct(ben), "I like wombats")
            name = next(each for each in await listed(tmp_path, env) if each.endswith(slack.direct(ana)))
            exit_code, out, err = await askfirst("conversations", "forget", name, "--yes", cwd=tmp_path, env=env)
            assert (exit_code, out.partition(":")[0]) == (0, "Gone"), err
            assert len(await listed(tmp_path, env)) == 1
            kept = bytes_in(tmp_path)
            assert (b"quokkas" in kept, b"wombats" in kept) == (False, True)
            model.script(["Hello."])
            assert (await answered(slack, ana, slack.direct(ana), "hello")).shown == "Hello."


# ── The real ``askfirst serve`` runs a channel of another distribution: the one that the documents build ──


ROOT = Path(__file__).parents[2]
KEY = "the key of the tests"


def install(site: Path) -> None:
    """Write the files of an installed distribution."""
    (site / "pager.py").write_text(python_files("channels.md")["pager.py"], encoding="utf-8")
    about = site / "askfirst_pager-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: askfirst-pager\nVersion: 1.0\n", encoding="utf-8")
    (about / "entry_points.txt").write_text("[askfirst.channels]\npager = pager:PagerChannel\n", encoding="utf-8")


class Service:
    def __init__(self) -> None:
        self.pages: list[str] = []
        self.url = ""
        self._changed = asyncio.Event()

    async def take(self, request: web.Request) -> web.Response:
        assert request.headers["Authorization"] == f"Bearer {KEY}"
        if text := (await request.json()).get("text"):
            self.pages.append(text)
            self._changed.set()
        return web.json_response({"id": f"page-{len(self.pages)}"})

    async def page(self, number: int) -> str:
        async with asyncio.timeout(20):
            while len(self.pages) <= number:
                self._changed.clear()
                await self._changed.wait()
        return self.pages[number]


@asynccontextmanager
async def service() -> AsyncIterator[Service]:
    fake, app = Service(), web.Application()
    app.router.add_post("/{path}", fake.take)
    runner, fake.url = await listen(app)
    yield fake
    await runner.cleanup()


def signed(body: bytes) -> dict[str, str]:
    stamp = str(int(time.time()))
    signature = hmac.new(KEY.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {"X-Pager-Time": stamp, "X-Pager-Signature": signature}


async def test_a_question_is_asked_and_answered_on_a_strangers_channel(tmp_path: Path) -> None:
    install(tmp_path)
    async with service() as pager, aiohttp.ClientSession() as http:
        env = {
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, tmp_path))),
            "ASKFIRST_STORE": f"sqlite:///{tmp_path / 'askfirst.db'}",
            "ASKFIRST_ALLOW": "pager:service:4711",
            "ASKFIRST_PROVIDER": "demo",
            "PAGER_KEY": KEY,
            "PAGER_API_URL": pager.url,
        }
        example = ROOT / "examples" / "invoices.py"
        async with running("serve", example, "--host", "127.0.0.1", "--port", "0", cwd=tmp_path, env=env) as server:
            webhook = f"{await server.url()}/webhooks/pager"

            async def says(page_id: str, text: str, *, proven: bool = True) -> int:
                body = json.dumps({"id": page_id, "sender": "4711", "text": text}).encode()
                async with http.post(webhook, data=body, headers=signed(body) if proven else {}) as response:
                    return response.status

            assert await says("p-0", "delete invoice INV-42", proven=False) == 401
            assert await says("p-1", "delete invoice INV-42") == 200
            asked = await pager.page(0)
            assert "Delete invoice INV-42" in asked
            code = re.search(r"\bOK ([A-Z0-9]{4})\b", asked)
            assert code is not None, asked
            for _ in range(2):  # the second time as a twin
                assert await says("p-2", f"ok {code[1]}") == 200
            assert "is deleted" in await pager.page(1)
            assert await says("p-3", f"ok {code[1]}") == 200
            assert "already" in await pager.page(2)
            assert KEY not in server.said
