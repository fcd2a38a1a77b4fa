"""examples/invoices.py sends an invoice as a file, and asks before recording a payment."""

from __future__ import annotations

import io

from pypdf import PdfReader

from gateway.testing import ChatDriver, ScriptedProvider, ToolCall
from tests.examples.loading import load


async def test_an_invoice_is_sent_as_a_pdf_of_one_page() -> None:
    example = load("invoices")
    model = ScriptedProvider([ToolCall("send_invoice_pdf", {"invoice_id": "inv-7"}), "Here it is."])
    async with ChatDriver(example.bot, provider=model) as chat:
        await chat.says("ana", "send me INV-7")
        [file] = [file for message in chat.messages for file in message.artifacts]
        assert (file.filename, file.mime_type) == ("INV-7.pdf", "application/pdf")
        pdf = example.draw(example.bot.deps["INV-7"])
        assert file.size == len(pdf)
    [page] = PdfReader(io.BytesIO(pdf)).pages
    text = page.extract_text()
    assert all(word in text for word in ("Invoice INV-7", "Blue Bakery", "1,280.00 EUR", "open"))


async def test_a_payment_is_recorded_after_a_yes() -> None:
    example = load("invoices")
    paid = {"invoice_id": "INV-42", "method": "transfer", "paid_on": "2026-07-01"}
    async with ChatDriver(example.bot, provider=ScriptedProvider([ToolCall("record_payment", paid)])) as chat:
        await chat.says("ana", "INV-42 was paid")
        assert r"Record INV\-42 of Café Aurora \(410\.20 EUR\) as paid?" in chat.last.text
        assert example.bot.deps["INV-42"].state == "open"
        await chat.says("ana", "yes")
        assert chat.last.text == "Invoice INV-42 was paid by transfer on 01 July 2026."
        assert example.bot.deps["INV-42"].state == "paid"
