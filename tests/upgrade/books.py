"""The bot of the upgrade fixtures: bookkeeping that asks before it acts, and a record of what it did.

The tools here are part of the fixtures: an open action holds the hash of its tool's name and parameters. A change to a
tool needs new fixtures.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from typing import Any, Literal

from channels import Json
from gateway import Agent, Approvers, ChannelAgent, Confirm, Preview, tool
from gateway.providers import ModelMessage, Request, Response, ToolCall
from tests.fakes.telegram import User

__all__ = ["APPROVERS", "BOT_TOKEN", "Books"]

BOT_TOKEN = "7000001:AAFakeTokenOfTests_0123456789abcdefg"
APPROVERS = (User(501, "Carla"), User(502, "Dora"))
_APPROVERS = [f"telegram:{BOT_TOKEN.partition(':')[0]}:{user.id}" for user in APPROVERS]
_DAY = 86400.0
_CALL = re.compile(r"(\w+) (\{.*\})")


class Books:
    """The bot's tools. An effect is (tool, arguments)."""

    def __init__(self) -> None:
        self.effects: list[tuple[str, dict[str, Json]]] = []
        self.hanging: list[str] = []
        """The invoices whose effect has begun and never ends."""
        self.never_end: set[str] = set()
        """The invoices whose effect is to hang."""
        self.model = _Model()

    async def _act(self, name: str, invoice_id: str, **more: Json) -> str:
        if invoice_id in self.never_end:
            self.hanging.append(invoice_id)
            await asyncio.Event().wait()
        if invoice_id.startswith("FAILED"):
            raise LookupError("no such invoice")
        self.effects.append((name, {"invoice_id": invoice_id, **more}))
        return f"{name} of {invoice_id} is finished."

    def bot(self, *, store: Any = None) -> ChannelAgent:
        """A bot that is put together as a bot author does it."""
        tools = [*self._plain_tools(), *self._tools_with_previews(), *self._tools_with_approvers()]
        return ChannelAgent(Agent(tools, provider=self.model), store=store)

    def _plain_tools(self) -> list[Any]:
        @tool(confirm=Confirm("Delete invoice {invoice_id} for good?", ttl_seconds=_DAY))
        async def delete_invoice(invoice_id: str) -> str:
            """Delete an invoice."""
            return await self._act("delete_invoice", invoice_id)

        @tool(confirm=Confirm("Archive invoice {invoice_id}?", ttl_seconds=_DAY), idempotent=True)
        async def archive_invoice(invoice_id: str) -> str:
            """Archive an invoice."""
            return await self._act("archive_invoice", invoice_id)

        @tool(confirm=Confirm("Cancel order {invoice_id}?", ttl_seconds=_DAY, after="resume"))
        async def cancel_order(invoice_id: str) -> str:
            """Cancel an order."""
            return await self._act("cancel_order", invoice_id)

        @tool(confirm="Void receipt {invoice_id}?")
        async def void_receipt(invoice_id: str) -> str:
            """Void a receipt; its question lives for 15 minutes."""
            return await self._act("void_receipt", invoice_id)

        @tool
        async def note_down(invoice_id: str) -> str:
            """Write a note; nobody is asked."""
            return await self._act("note_down", invoice_id)

        return [delete_invoice, archive_invoice, cancel_order, void_receipt, note_down]

    def _tools_with_previews(self) -> list[Any]:
        async def payment(invoice_id: str, amount: float, note: str) -> Preview:
            table = [("Invoice", invoice_id), ("Amount", f"{amount:.2f} EUR"), ("Note", note)]
            return Preview(text=f"Pay {invoice_id}", table=table, precondition={"open": [amount, True]})

        async def reminder(invoice_id: str, lines: list[str]) -> str:
            return f"Send {len(lines)} lines about {invoice_id}"

        async def probe(invoice_id: str) -> Literal["done", "not_done", "unknown"]:
            return "done" if invoice_id.endswith("1") else "not_done"

        @tool(confirm=Confirm(payment, ttl_seconds=_DAY, done="Paid {amount} for {invoice_id}."))
        async def pay_invoice(invoice_id: str, amount: float, note: str) -> str:
            """Pay an invoice."""
            return await self._act("pay_invoice", invoice_id, amount=amount, note=note)

        @tool(confirm=Confirm(reminder, ttl_seconds=_DAY))
        async def send_reminder(invoice_id: str, lines: list[str]) -> str:
            """Send a reminder."""
            return await self._act("send_reminder", invoice_id, lines=[*lines])

        @tool(confirm=Confirm("Book invoice {invoice_id}?", ttl_seconds=_DAY, probe=probe))
        async def book_invoice(invoice_id: str) -> str:
            """Book an invoice."""
            return await self._act("book_invoice", invoice_id)

        return [pay_invoice, send_reminder, book_invoice]

    def _tools_with_approvers(self) -> list[Any]:
        one, two = Approvers(people=_APPROVERS), Approvers(people=_APPROVERS, need=2)

        @tool(confirm=Confirm("Refund {amount} EUR on invoice {invoice_id}?", ttl_seconds=_DAY, approvers=one))
        async def refund_invoice(invoice_id: str, amount: float) -> str:
            """Refund an invoice."""
            return await self._act("refund_invoice", invoice_id, amount=amount)

        @tool(confirm=Confirm("Close the books of {invoice_id}?", ttl_seconds=_DAY, approvers=two))
        async def close_books(invoice_id: str) -> str:
            """Close the books."""
            return await self._act("close_books", invoice_id)

        return [refund_invoice, close_books]


class _Model:
    """Calls the tools that new messages name, as ``tool {"argument": ...}`` line by line, and repeats anything else."""

    name = "books"

    async def complete(self, request: Request) -> Response:
        new = _since_it_spoke(request.messages)
        if "crash" in new:
            raise RuntimeError("a model that breaks")
        calls = [
            ToolCall(call_id=f"call{number}", name=found[1], args=json.loads(found[2]))
            for number, line in enumerate(new.splitlines())
            if (found := _CALL.search(line)) is not None
        ]
        return Response(tool_calls=tuple(calls), finish="tools") if calls else Response(content=f"Noted: {new}")

    def stream(self, request: Request) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        """Nothing is held."""


def _since_it_spoke(messages: Sequence[ModelMessage]) -> str:
    """What people wrote after the model's last word."""
    spoke = [number for number, message in enumerate(messages) if message.role in ("assistant", "tool")]
    new = messages[spoke[-1] + 1 :] if spoke else messages
    return "\n".join(message.content for message in new if message.role == "user")
