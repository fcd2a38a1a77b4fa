"""The launch compares the preview that was shown with the one it would show now."""

from __future__ import annotations

from typing import Any

from gateway.agent import Agent
from gateway.channel_agent import ChannelAgent
from gateway.testing import ChatDriver
from gateway.tools import Preview, tool
from tests.engine.bots import Invoices


def deleting(seen: list[Any], done: list[str]) -> ChannelAgent:
    """A bot whose preview saw what is in `seen` at that moment."""

    async def look(invoice_id: str) -> Preview:
        return Preview(text=f"Delete {invoice_id}?", precondition=seen[0])

    @tool(confirm=look)
    async def delete_invoice(invoice_id: str) -> str:
        """Delete an invoice."""
        done.append(invoice_id)
        return "gone"

    return ChannelAgent(Agent([delete_invoice], provider=Invoices().model))


async def test_a_tuple_as_precondition_is_no_change() -> None:
    seen, done = [("etag", 3)], list[str]()
    async with ChatDriver(deleting(seen, done)) as chat:
        await chat.says("ana", "delete INV-1")
        await chat.presses("ana", "Confirm")
        assert done == ["INV-1"]
        await chat.says("ana", "delete INV-2")
        seen[0] = ("etag", 4)
        await chat.presses("ana", "Confirm")
        assert done == ["INV-1"]
