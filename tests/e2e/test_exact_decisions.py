"""The real ``askfirst serve``: another verb, a command, another language, and a row that somebody has changed."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tests.e2e.test_platforms import Served, served
from tests.fakes.openai import Call
from tests.fakes.telegram import Message


async def asked(house: Served, invoice: str) -> Message:
    """Return the question about this invoice."""
    house.model.script([Call("delete_invoice", {"invoice_id": invoice})])
    await house.telegram.person_says(house.ana, house.ana, f"delete invoice {invoice}")

    def prompt() -> Message | None:
        return next((sent for sent in house.telegram.sent if sent.buttons and invoice in sent.text), None)

    return await house.telegram.wait_for(prompt)


async def says(house: Served, text: str, containing: str, reply_to: Message | None = None) -> None:
    """Ana writes this, and the next message of the bot holds that."""
    before = len(house.telegram.sent)
    await house.telegram.person_says(house.ana, house.ana, text, reply_to=reply_to)
    await house.telegram.wait_for(lambda: any(containing in sent.text for sent in house.telegram.sent[before:]))


@pytest.mark.timeout(120)
async def test_wrong_verbs_and_changed_rows_confirm_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as house:
        telegram = house.telegram
        prompt = await asked(house, "INV-42")
        await says(house, "yes, pay it", "Please answer with the code")
        await says(house, "sim", "Please answer with the code")
        await says(house, "sim", "Not done yet")
        house.model.script(["I cannot cancel anything."])
        await says(house, "/cancel yes", "I cannot cancel anything.", reply_to=prompt)
        await telegram.press(prompt, "Confirm", house.ana)
        await telegram.wait_for(lambda: any("INV-42" in sent.text and "deleted" in sent.text for sent in telegram.sent))

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
    assert "was changed by somebody without the key" in house.process.said
