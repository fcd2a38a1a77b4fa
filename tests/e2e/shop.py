"""The bot of these tests: a shop's invoices, and what became of them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from fpdf import FPDF

from gateway import Agent, AgentConfig, ChannelAgent, ToolContext, emit_artifact, tool
from gateway.providers.base import Provider

__all__ = ["Shop", "pdf_of"]


def pdf_of(invoice_id: str) -> bytes:
    """A PDF of one page that names the invoice; the same bytes each time."""
    pdf = FPDF()
    pdf.set_creation_date(datetime(2026, 1, 1, tzinfo=UTC))
    pdf.add_page()
    pdf.set_font("Helvetica", size=14)
    pdf.text(20, 30, f"Invoice {invoice_id}")
    return bytes(pdf.output())


class Shop:
    """The invoices. `hold`, when there is one, holds a deletion back before it happens."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.reached = asyncio.Event()
        self.hold: asyncio.Event | None = None
        self.error: Exception | None = None

    def bot(self, provider: Provider, **options: Any) -> ChannelAgent:
        @tool(read_only=True)
        async def list_invoices() -> str:
            """List the invoices."""
            return "INV-7, INV-42"

        @tool(confirm="Delete invoice {invoice_id} for good?")
        async def delete_invoice(invoice_id: str) -> str:
            """Delete an invoice."""
            self.reached.set()
            if self.hold is not None:
                await self.hold.wait()
            if self.error is not None:
                raise self.error
            self.deleted.append(invoice_id)
            return f"Invoice {invoice_id} is deleted."

        @tool(read_only=True)
        async def send_invoice_pdf(invoice_id: str) -> str:
            """Send an invoice as PDF."""
            emit_artifact(content=pdf_of(invoice_id), mime_type="application/pdf", filename=f"{invoice_id}.pdf")
            return "sent"

        @tool(confirm="Archive invoice {invoice_id}?")
        async def archive_invoice(invoice_id: str, ctx: ToolContext) -> str:
            """Archive an invoice as PDF."""
            ctx.emit_artifact(content=pdf_of(invoice_id), mime_type="application/pdf", filename=f"{invoice_id}.pdf")
            return f"Invoice {invoice_id} is archived."

        tools = [list_invoices, delete_invoice, send_invoice_pdf, archive_invoice]
        bot = ChannelAgent(Agent(tools, provider=provider, config=AgentConfig(name="Shop")), **options)

        @bot.command("total", description="What is still open")
        async def total(ctx: ToolContext, text: str) -> str:
            return f"**410.20 {text or 'EUR'}** is open."

        return bot
