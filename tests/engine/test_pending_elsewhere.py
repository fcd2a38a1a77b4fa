"""/pending in a person's own chat: it also lists the questions that wait for them in groups."""

from __future__ import annotations

import pytest

from gateway import Agent, Approvers, ChannelAgent, Confirm, tool
from gateway.testing import ChatDriver, ScriptedProvider, ToolCall


@tool(confirm="Delete invoice {invoice_id}?")
async def delete_invoice(invoice_id: str) -> str:
    """Delete an invoice."""
    return f"Deleted {invoice_id}."


@tool(confirm=Confirm("Pay {amount}?", approvers=Approvers(people=["test:bot:ben"])))
async def pay(amount: int) -> str:
    """Pay."""
    return f"Paid {amount}."


DELETE = ToolCall("delete_invoice", {"invoice_id": "INV-7"})


def bot() -> ChannelAgent:
    return ChannelAgent(Agent([delete_invoice, pay]))


async def listed(chat: ChatDriver, person: str, group: str | None = None) -> str:
    await chat.says(person, "/pending", group=group)
    return chat.last.text.replace("\\", "")


async def test_question_in_a_group_is_listed_in_the_own_chat() -> None:
    async with ChatDriver(bot(), provider=ScriptedProvider([DELETE])) as chat:
        await chat.says("ana", "delete INV-7", group="sales")
        assert "Delete invoice “INV-7”? (test:bot:#sales)" in await listed(chat, "ana")
        assert "INV-7" not in await listed(chat, "ben")  # it waits for ana
        assert "INV-7" not in await listed(chat, "ana", group="other")  # others read it there
        await chat.presses("ana", "Confirm")
        assert "INV-7" not in await listed(chat, "ana")


async def test_approver_of_a_group_reads_it_too() -> None:
    async with ChatDriver(bot(), provider=ScriptedProvider([ToolCall("pay", {"amount": 5})])) as chat:
        await chat.says("ana", "pay 5", group="sales")
        assert "Pay 5? (test:bot:#sales)" in await listed(chat, "ben")
        assert "Pay 5? (test:bot:#sales)" in await listed(chat, "ana")


async def test_question_of_the_own_chat_has_its_code_and_is_told_once() -> None:
    async with ChatDriver(bot(), provider=ScriptedProvider([DELETE])) as chat:
        await chat.says("ana", "delete INV-7")
        told = await listed(chat, "ana")
        assert told.count("INV-7") == 1
        assert "test:bot" not in told


@pytest.mark.parametrize("many", [25])
async def test_only_the_last_questions_are_kept(many: int) -> None:
    script = ScriptedProvider([ToolCall("delete_invoice", {"invoice_id": f"N-{n}"}) for n in range(many)])
    async with ChatDriver(bot(), provider=script) as chat:
        for number in range(many):
            await chat.says("ana", "delete it", group=f"g{number}")
        told = await listed(chat, "ana")
        assert (told.count("N-"), "“N-24”" in told, "“N-4”" in told) == (20, True, False)
