"""The real ``askfirst serve`` by SMS and by WhatsApp: the whole story in words, with a restart in the middle."""

from __future__ import annotations

import io
import re
import signal
from pathlib import Path

import aiohttp
import pytest
from pypdf import PdfReader

from tests.cli.processes import forked, running
from tests.e2e.house import SIGNING
from tests.fakes.openai import Call, FakeOpenAI
from tests.fakes.twilio import Answer, FakeTwilio, Sent
from tests.ports import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "invoices.py"
ANA = "+15557654321"
TAKEN = Answer(200, '<?xml version="1.0" encoding="UTF-8"?><Response></Response>', "text/xml")
DONE = "Invoice INV-42 of Café Aurora is deleted."


class Phone:
    """Ana's phone: what she writes, and what comes next."""

    def __init__(self, twilio: FakeTwilio, *, whatsapp: bool) -> None:
        self.twilio, self.whatsapp = twilio, whatsapp

    async def answered(self, text: str, containing: str) -> Sent:
        """The first message of the bot after this one that has these words in it."""
        before = len(self.twilio.sent)
        assert await self.twilio.person_says(ANA, text, whatsapp=self.whatsapp) == TAKEN
        return await self.next(before, containing)

    async def next(self, before: int, containing: str) -> Sent:
        def found() -> Sent | None:
            return next((sent for sent in self.twilio.sent[before:] if containing in sent.body), None)

        sent = await self.twilio.wait_for(found)
        assert sent.to == (f"whatsapp:{ANA}" if self.whatsapp else ANA)
        return sent


@pytest.mark.timeout(300)
@pytest.mark.parametrize("whatsapp", [False, True], ids=["sms", "whatsapp"])
async def test_the_whole_story(tmp_path: Path, whatsapp: bool) -> None:
    async with FakeTwilio() as twilio, FakeOpenAI() as model, aiohttp.ClientSession() as http:
        port = free_port()
        base = f"http://127.0.0.1:{port}"
        twilio.webhook_url = f"{base}/webhooks/twilio"
        serve = ("serve", EXAMPLE, "--host", "127.0.0.1", "--port", str(port))
        env = {
            "ASKFIRST_STORE": f"sqlite:///{tmp_path / 'askfirst.db'}",
            "ASKFIRST_SECRET": SIGNING,
            "ASKFIRST_ALLOW": "sms:*,whatsapp:*",
            "ASKFIRST_LOG_LEVEL": "DEBUG",
            "ASKFIRST_PROVIDER": "openai:test-model",
            "ASKFIRST_PUBLIC_URL": base,
            "TWILIO_ACCOUNT_SID": twilio.account_sid,
            "TWILIO_AUTH_TOKEN": twilio.auth_token,
            "TWILIO_SMS_FROM": twilio.sms,
            "TWILIO_WHATSAPP_FROM": f"whatsapp:{twilio.whatsapp}",
            "TWILIO_API_URL": twilio.url,
            "OPENAI_API_KEY": model.key,
            "OPENAI_BASE_URL": model.url,
        }
        phone = Phone(twilio, whatsapp=whatsapp)

        model.script([Call("list_invoices", {"state": "open"}), "**INV-7** and **INV-42** are open."])
        model.script([Call("delete_invoice", {"invoice_id": "INV-42"})])
        async with running(*serve, cwd=tmp_path, env=env) as first:
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
            assert f"Please answer with the code {asked[1]}." in early.body
            first.signal(signal.SIGTERM)
            assert await first.ended() == 0

        async with forked(*serve, cwd=tmp_path, env=env) as second:
            await second.url()
            mistyped = await phone.answered("YES 0000", "Delete invoice INV-42 for good?")
            assert f"Please answer with the code {asked[1]}." in mistyped.body
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
