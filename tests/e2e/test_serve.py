"""The real ``askfirst serve`` with the example bot: the whole story over HTTP, with a restart in the middle."""

from __future__ import annotations

import io
import signal
from pathlib import Path

from pypdf import PdfReader

from tests.cli.processes import askfirst, running
from tests.e2e.house import SECRET, SIGNING
from tests.fakes.openai import Call, FakeOpenAI
from tests.fakes.telegram import FakeTelegram

EXAMPLE = Path(__file__).parents[2] / "examples" / "invoices.py"
SERVE = ("serve", EXAMPLE, "--host", "127.0.0.1", "--port")


async def test_the_whole_story(tmp_path: Path) -> None:
    async with FakeTelegram() as telegram, FakeOpenAI() as model:
        env = {
            "ASKFIRST_STORE": f"sqlite:///{tmp_path / 'askfirst.db'}",
            "ASKFIRST_SECRET": SIGNING,
            "ASKFIRST_ALLOW": "telegram:*",
            "ASKFIRST_LOG_LEVEL": "DEBUG",
            "ASKFIRST_PROVIDER": "openai:test-model",
            "TELEGRAM_BOT_TOKEN": telegram.token,
            "TELEGRAM_WEBHOOK_SECRET": SECRET,
            "TELEGRAM_API_URL": telegram.url,
            "OPENAI_API_KEY": model.key,
            "OPENAI_BASE_URL": model.url,
        }
        ana = telegram.person("Ana")

        async def answered(text: str) -> str:
            """What the bot says next when Ana writes this."""
            before = len(telegram.sent)
            await telegram.person_says(ana, ana, text)
            await telegram.wait_for(lambda: len(telegram.sent) > before)
            return telegram.sent[before].text

        model.script([Call("list_invoices", {"state": "open"}), "**INV-7** and **INV-42** are open."])
        model.script([Call("delete_invoice", {"invoice_id": "INV-42"})])
        async with running(*SERVE, "0", cwd=tmp_path, env=env) as first:
            url = await first.url()
            public = {"ASKFIRST_PUBLIC_URL": url}
            code, _, error = await askfirst("webhooks", "set", EXAMPLE, cwd=tmp_path, env=env | public)
            assert code == 0, error
            assert await answered("list the open invoices") == "INV-7 and INV-42 are open."
            assert "Café Aurora" in str(model.requests[-1]["messages"][-1])
            assert (await answered("delete invoice INV-42")).startswith("Delete invoice INV-42 for good?")
            prompt = telegram.sent[-1]
            assert prompt.buttons == ["Confirm", "Cancel"]
            first.signal(signal.SIGTERM)
            assert await first.ended() == 0

        async with running(*SERVE, url.rpartition(":")[2], cwd=tmp_path, env=env) as second:
            assert "Delete invoice INV-42 for good?" in await answered("/pending")
            press = await telegram.press(prompt, "Confirm", by=ana)
            await telegram.wait_for(lambda: press.answered)
            assert press.text == "Confirmed."
            await telegram.wait_for(lambda: telegram.sent[-1].text == "Invoice INV-42 of Café Aurora is deleted.")
            await telegram.wait_for(lambda: not prompt.buttons)
            assert "Confirmed by Ana" in prompt.text

            model.script([Call("send_invoice_pdf", {"invoice_id": "INV-7"}), "Here is **INV-7**."])
            assert await answered("send me INV-7 as PDF") == "Here is INV-7."
            document = await telegram.wait_for(lambda: telegram.sent[-1].file)
            assert document is not None
            assert (document.filename, document.mime_type) == ("INV-7.pdf", "application/pdf")
            assert "Blue Bakery" in PdfReader(io.BytesIO(document.content)).pages[0].extract_text()
            told = str(model.requests[-1]["messages"])
            assert "list the open invoices" in told and "confirmed by the person and done" in told
            second.signal(signal.SIGTERM)
            assert await second.ended() == 0

        assert telegram.called("getUpdates") == []
        assert {status for _, status in telegram.deliveries if status is not None} == {200}
    said = first.said + second.said
    for hidden in (telegram.token.partition(":")[2], SECRET, SIGNING, model.key, "Aurora", "Bakery", "list the open"):
        assert hidden not in said
    assert "Traceback" not in said
