"""The thirty-line bot of README.md works when it is driven as its author would."""

from __future__ import annotations

import pytest

from gateway import Agent, ChannelAgent, ToolContext, emit_artifact, tool
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall


class Invoices:
    def __init__(self) -> None:
        self.deleted: list[tuple[str, str]] = []

    def bot(self, **options: object) -> ChannelAgent:
        @tool(read_only=True)
        async def list_invoices() -> str:
            """List the invoices."""
            return "INV-7, INV-42"

        @tool(confirm="Delete invoice {invoice_id} for good?", idempotent=True)
        async def delete_invoice(invoice_id: str, ctx: ToolContext) -> str:
            """Delete an invoice."""
            self.deleted.append((invoice_id, ctx.idempotency_key))
            return f"Invoice {invoice_id} is deleted."

        @tool(read_only=True)
        async def send_invoice_pdf(invoice_id: str) -> str:
            """Send an invoice as PDF."""
            emit_artifact(content=b"%PDF-1.4 x", mime_type="application/pdf", filename=f"{invoice_id}.pdf")
            return "sent"

        agent = Agent([list_invoices, delete_invoice, send_invoice_pdf], instructions="You look after invoices.")
        return ChannelAgent(agent, **options)  # type: ignore[arg-type]


@pytest.fixture
def invoices() -> Invoices:
    return Invoices()


async def test_a_destructive_call_is_asked_confirmed_and_done_once(invoices: Invoices) -> None:
    script = ScriptedProvider([ToolCall("delete_invoice", {"invoice_id": "INV-42"})])
    async with ChatDriver(invoices.bot(), provider=script) as chat:
        await chat.says("ana", "delete invoice INV-42")
        assert "Delete invoice “INV\\-42” for good?" in chat.last.text
        assert chat.last.buttons == ["Confirm", "Cancel", "Change"]
        assert invoices.deleted == []
        await chat.presses("ana", "Confirm")
        assert [invoice for invoice, _ in invoices.deleted] == ["INV-42"]
        assert chat.last.text == "Invoice INV-42 is deleted."
        assert chat.alerts == ["Confirmed."]
        assert "Confirmed by Ana" in chat.messages[0].text
        assert chat.messages[0].buttons == []


async def test_a_bare_yes_counts_right_after_the_prompt(invoices: Invoices) -> None:
    script = ScriptedProvider([ToolCall("delete_invoice", {"invoice_id": "INV-42"})])
    async with ChatDriver(invoices.bot(), provider=script) as chat:
        await chat.says("ana", "delete invoice INV-42")
        await chat.says("ana", "yes")
        assert len(invoices.deleted) == 1
        await chat.says("ana", "yes")
        assert len(invoices.deleted) == 1
        assert "already done" in chat.last.text


@pytest.mark.ledger("PEND-44")
async def test_a_no_cancels_and_the_model_learns_it(invoices: Invoices) -> None:
    script = ScriptedProvider([ToolCall("delete_invoice", {"invoice_id": "INV-42"}), "As you like."])
    async with ChatDriver(invoices.bot(), provider=script) as chat:
        await chat.says("ana", "delete invoice INV-42")
        await chat.says("ana", "no")
        assert chat.last.text.startswith("Not done: ")
        await chat.says("ana", "thanks, what now?")
        assert chat.last.text == "As you like."
        told = [message.content for message in script.requests[-1].messages if message.role == "event"]
        assert any("refused by the person" in text for text in told)
    assert invoices.deleted == []


@pytest.mark.ledger("TEST-07")
async def test_an_ask_expires(invoices: Invoices) -> None:
    script = ScriptedProvider([ToolCall("delete_invoice", {"invoice_id": "INV-42"})])
    async with ChatDriver(invoices.bot(), provider=script) as chat:
        await chat.says("ana", "delete invoice INV-42")
        await chat.clock.advance(901)
        assert "expired" in chat.last.text
        await chat.says("ana", "yes")
        assert "expired" in chat.last.text
    assert invoices.deleted == []


async def test_a_file_comes_as_a_file(invoices: Invoices) -> None:
    script = ScriptedProvider([ToolCall("send_invoice_pdf", {"invoice_id": "INV-7"}), "Here it is."])
    async with ChatDriver(invoices.bot(), provider=script) as chat:
        await chat.says("ana", "send me INV-7 as PDF")
        assert [message.text for message in chat.messages] == ["Here it is.", ""]
        assert chat.last.artifacts[0].filename == "INV-7.pdf"


async def test_ask_channel_and_decide(invoices: Invoices) -> None:
    bot = invoices.bot()
    bot.agent = bot.agent.using(ScriptedProvider([ToolCall("delete_invoice", {"invoice_id": "INV-42"}), "Two."]))
    async with bot:
        asked = await bot.ask_channel("ana", "delete INV-42")
        assert asked.stop_reason == "asked"
        assert [action.kind for action in asked.pending] == ["delete_invoice"]
        assert asked.pending[0].shown_at is not None
        done = await bot.decide("app:-:ana", "confirm", action_id=asked.pending[0].pending_action_id)
        assert done.content == "Invoice INV-42 is deleted."
        assert (await bot.ask_channel("ana", "how many invoices?")).content == "Two."
