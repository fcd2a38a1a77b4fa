"""Bots for the engine's tests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from gateway import Agent, ChannelAgent, ToolContext, emit_artifact, tool
from gateway.providers.base import ModelMessage, Request, Response, ToolCall

__all__ = ["Invoices", "Model", "Whole"]


class Whole:
    """A model without streaming: `complete` makes each whole reply."""

    name = "test"

    async def complete(self, request: Request) -> Response:
        raise NotImplementedError

    async def stream(self, request: Request) -> Any:
        yield await self.complete(request)

    async def close(self) -> None:
        """Close no connection."""


class Model(Whole):
    """Answers by the words of the last user message, so that many conversations can go on at once.

    ``delete X`` calls delete_invoice, ``wait`` waits for `let_go`, any other text is echoed.
    """

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.waiting = asyncio.Event()
        self.requests: list[Request] = []

    async def complete(self, request: Request) -> Response:
        self.requests.append(request)
        last = request.messages[-1]
        if last.role == "tool":
            return Response(content=f"The tool said: {last.content}")
        text = _newest(request.messages)
        if text.startswith("delete "):
            calls = [
                ToolCall(call_id=f"c{number}", name="delete_invoice", args={"invoice_id": invoice})
                for number, invoice in enumerate(text.split()[1:])
            ]
            return Response(tool_calls=tuple(calls), finish="tools")
        if text == "wait":
            self.waiting.set()
            await self.let_go.wait()
        return Response(content=f"You said: {text}")


def _newest(messages: Sequence[ModelMessage]) -> str:
    return next((message.content for message in reversed(messages) if message.role == "user"), "")


class Invoices:
    """A bot with an irreversible tool, and the record of the calls."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        self.keys: list[str] = []
        self.hold: asyncio.Event | None = None
        self.running = asyncio.Event()
        self.error: BaseException | None = None
        self.outcome = "Invoice {} is deleted."
        self.model = Model()

    def bot(
        self, *, confirm: Any = "Delete invoice {invoice_id} for good?", idempotent: bool = False, **options: Any
    ) -> ChannelAgent:
        @tool(confirm=confirm, idempotent=idempotent)
        async def delete_invoice(invoice_id: str, ctx: ToolContext) -> str:
            """Delete an invoice."""
            self.running.set()
            if self.hold is not None:
                await self.hold.wait()
            if self.error is not None:
                raise self.error
            self.deleted.append(invoice_id)
            self.keys.append(ctx.idempotency_key)
            return self.outcome.format(invoice_id)

        @tool(read_only=True)
        async def send_invoice_pdf(invoice_id: str) -> str:
            """Send an invoice as PDF."""
            emit_artifact(content=b"%PDF-1.4 x", mime_type="application/pdf", filename=f"{invoice_id}.pdf")
            return "sent"

        return ChannelAgent(Agent([delete_invoice, send_invoice_pdf], provider=self.model), **options)
