"""The four flows of the documents behind the project, offline: asking over two turns, buttons, files, long results."""

from __future__ import annotations

import pytest

from gateway import Agent, ChannelAgent, PendingAction, ToolContext, tool
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall

pytestmark = pytest.mark.ledger("TEST-06")

DELETE = ToolCall("delete_invoice", {"invoice_id": "INV-42"})


class Invoices:
    """A bot with a tool that asks, a tool that makes a file and a tool with a very long result."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.ended: list[PendingAction] = []

        @tool(confirm="Delete invoice {invoice_id}?")
        async def delete_invoice(invoice_id: str) -> str:
            """Delete an invoice."""
            self.deleted.append(invoice_id)
            return f"{invoice_id} is deleted."

        @tool(read_only=True)
        async def invoice_file(invoice_id: str, ctx: ToolContext) -> str:
            """Send an invoice as a file."""
            ctx.emit_artifact(content=b"%PDF-1.7 410.20 EUR", filename=f"{invoice_id}.pdf", mime_type="application/pdf")
            return "The file has 1 page."

        @tool(read_only=True)
        async def every_line() -> str:
            """List every line of every invoice."""
            return "first line\n" + "a line of an invoice\n" * 50_000

        self.bot = ChannelAgent(Agent([delete_invoice, invoice_file, every_line]))

        @self.bot.on_outcome
        async def note(action: PendingAction) -> None:
            self.ended.append(action)


async def test_a_tool_asks_in_one_turn_and_runs_in_the_next() -> None:
    invoices = Invoices()
    model = ScriptedProvider([DELETE, "It is gone, as you wished."])
    async with ChatDriver(invoices.bot, provider=model) as chat:
        await chat.says("ana", "delete INV-42")
        assert "Delete invoice “INV\\-42”?" in chat.last.text
        assert invoices.deleted == [], "the turn has ended, and nothing has happened"

        await chat.says("ana", "yes")
        assert invoices.deleted == ["INV-42"]
        assert chat.last.text == "INV-42 is deleted."
        assert len(model.requests) == 1, "the answer did not go through the model"

        await chat.says("ana", "is it gone?")
        told = [message.content for message in model.requests[-1].messages if message.role == "event"]
        assert "INV-42" in told[-1] and "done" in told[-1]
    assert [(action.kind, action.state) for action in invoices.ended] == [("delete_invoice", "done")]
    model.assert_used_up()


async def test_buttons_decide_once() -> None:
    invoices = Invoices()
    async with ChatDriver(invoices.bot, provider=ScriptedProvider([DELETE, DELETE])) as chat:
        await chat.says("ana", "delete INV-42")
        question = chat.last
        assert len(question.buttons) == 3
        no, yes = question.buttons[1], question.buttons[0]
        await chat.presses("ana", no)
        assert (invoices.deleted, question.buttons) == ([], [])
        await chat.says("ana", "delete INV-42 after all")
        await chat.presses("ana", yes)
        assert invoices.deleted == ["INV-42"]
        with pytest.raises(LookupError, match="none at all"):
            await chat.presses("ana", yes)


async def test_the_result_goes_to_the_model_and_the_file_to_the_person() -> None:
    model = ScriptedProvider([ToolCall("invoice_file", {"invoice_id": "INV-42"}), "Here it is."])
    async with ChatDriver(Invoices().bot, provider=model) as chat:
        await chat.says("ana", "send me INV-42")
        [file] = [file for message in chat.messages for file in message.artifacts]
        assert (file.filename, file.mime_type, file.size) == ("INV-42.pdf", "application/pdf", 19)
    told = model.requests[-1].messages[-1]
    assert told.role == "tool" and told.content.startswith("The file has 1 page.")
    assert "%PDF" not in "".join(message.content for message in model.requests[-1].messages)


async def test_a_result_too_long_for_the_model_is_cut_and_says_so() -> None:
    model = ScriptedProvider([ToolCall("every_line", {}), "Fifty thousand lines."])
    async with ChatDriver(Invoices().bot, provider=model) as chat:
        await chat.says("ana", "list every line")
        assert chat.last.text == "Fifty thousand lines."
    told = model.requests[-1].messages[-1].content
    assert told.startswith("first line\n")
    assert len(told) < 101_000 and told.endswith("(cut: it has 1050011 characters)")
