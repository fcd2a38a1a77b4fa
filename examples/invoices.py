"""A bot for invoices. It lists them and makes PDFs freely; it asks before it records a payment or deletes.

Run it with: askfirst dev examples/invoices.py
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Literal

from fpdf import FPDF

from askfirst import Agent, AgentConfig, ChannelAgent, Label, Preview, ToolContext, tool


@dataclass
class Invoice:
    number: str
    customer: str
    amount: Decimal
    due: date
    state: Literal["open", "paid"] = "open"

    @property
    def total(self) -> str:
        return f"{self.amount:,.2f} EUR"


@asynccontextmanager
async def open_books() -> AsyncIterator[dict[str, Invoice]]:
    """Open the books, once per process. A real bot would open its database here. Tools find it in ``ctx.deps``."""
    invoices = [
        Invoice("INV-7", "Blue Bakery", Decimal("1280.00"), date(2026, 7, 1)),
        Invoice("INV-15", "Harbour Books", Decimal("96.50"), date(2026, 6, 15), "paid"),
        Invoice("INV-42", "Café Aurora", Decimal("410.20"), date(2026, 8, 20)),
    ]
    yield {invoice.number: invoice for invoice in invoices}


def find(ctx: ToolContext, invoice_id: str) -> Invoice:
    """Return an invoice, however its number is written. The model reads the error and can ask again."""
    invoices: dict[str, Invoice] = ctx.deps
    if (number := invoice_id.strip().upper()) not in invoices:
        raise ValueError(f"There is no invoice {invoice_id}.")
    return invoices[number]


@tool(read_only=True)
async def list_invoices(ctx: ToolContext, state: Literal["all", "open", "paid"] = "all") -> list[dict[str, object]]:
    """List the invoices: number, customer, amount, due date and state."""
    return [asdict(invoice) for invoice in ctx.deps.values() if state in ("all", invoice.state)]


@tool(read_only=True)
def send_invoice_pdf(invoice_id: str, ctx: ToolContext) -> str:
    """Send an invoice as a PDF file."""
    invoice = find(ctx, invoice_id)
    ctx.emit_artifact(content=draw(invoice), mime_type="application/pdf", filename=f"{invoice.number}.pdf")
    return f"Here is invoice {invoice.number}."


async def about_to_delete(invoice_id: str, ctx: ToolContext) -> Preview:
    """Return the question. Its precondition is compared again right before the deletion."""
    invoice = find(ctx, invoice_id)
    table = [("Customer", invoice.customer), ("Amount", invoice.total)]
    return Preview(text=f"Delete invoice {invoice.number} for good?", table=table, precondition=str(invoice))


@tool(confirm=about_to_delete, idempotent=True)
async def delete_invoice(invoice_id: Annotated[str, Label("Invoice")], ctx: ToolContext) -> str:
    """Delete an invoice for good."""
    invoice = ctx.deps.pop(find(ctx, invoice_id).number)
    return f"Invoice {invoice.number} of {invoice.customer} is deleted."


async def about_to_record(invoice_id: str, ctx: ToolContext) -> str:
    """Return the question. A sentence is enough: the arguments are listed under it."""
    invoice = find(ctx, invoice_id)
    return f"Record {invoice.number} of {invoice.customer} ({invoice.total}) as paid?"


@tool(confirm=about_to_record)
async def record_payment(
    invoice_id: str, method: Literal["transfer", "card", "cash"], paid_on: date, ctx: ToolContext
) -> str:
    """Record that an invoice was paid."""
    invoice = find(ctx, invoice_id)
    invoice.state = "paid"
    return f"Invoice {invoice.number} was paid by {method} on {paid_on:%d %B %Y}."


def draw(invoice: Invoice) -> bytes:
    """Return the invoice as a PDF of one page."""
    pdf = FPDF()
    pdf.add_page()
    pdf.set_fill_color(32, 76, 110)
    pdf.set_text_color(255)
    pdf.set_font("Helvetica", "B", 26)
    pdf.cell(0, 30, f"  Invoice {invoice.number}", fill=True, new_x="LMARGIN", new_y="NEXT")
    pdf.set_text_color(40)
    rows = [("Customer", invoice.customer), ("Due", f"{invoice.due:%d %B %Y}"), ("State", invoice.state)]
    for name, value in [*rows, ("Amount", invoice.total)]:
        pdf.set_font("Helvetica", "B" if name == "Amount" else "", 13)
        pdf.cell(60, 14, name, border="B")
        pdf.cell(0, 14, value, border="B", align="R", new_x="LMARGIN", new_y="NEXT")
    return bytes(pdf.output())


bot = ChannelAgent(
    Agent(
        [list_invoices, send_invoice_pdf, delete_invoice, record_payment],
        instructions="You look after the invoices of a small shop. Be brief.",
        config=AgentConfig(name="Invoices"),
    ),
    lifespan=open_books,
    greeting="Hello! Try **list invoices**, **send me INV-7 as PDF** or **delete invoice INV-42**.",
)
