"""The measured bot for asks: asking tools, and a model with immediate answers. `bot` is served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from bench.messages import ANSWER
from channels import Pace
from channels.telegram import TelegramChannel
from gateway import Agent, ChannelAgent, tool
from gateway.providers import Request, Response, ToolCall

__all__ = ["TOOLS", "Instant", "bot", "delete", "shop"]

# Rates above every platform's limit. Pacing still counts, and never waits.
TelegramChannel.capabilities = replace(
    TelegramChannel.capabilities, pace=Pace(account_per_second=1e6, place_per_second=1e6)
)


async def delete(invoice_id: str) -> str:
    """Delete an invoice."""
    return f"Invoice {invoice_id} is deleted."


TOOLS = [tool(name=f"delete_{number}", confirm="Delete invoice {invoice_id} for good?")(delete) for number in range(4)]
"""Identical tools. Only 32 effects of a tool run at once, so several tools are needed for more."""


class Instant:
    """Model: "delete NUMBER" leads to a call of one of `TOOLS`, selected by the number. Any other message gets
    `ANSWER`."""

    name = "instant"

    async def complete(self, request: Request) -> Response:
        text = next(message.content for message in reversed(request.messages) if message.role == "user")
        if request.messages[-1].role == "tool" or not text.startswith("delete "):
            return Response(content=ANSWER)
        invoice = text.split()[1]
        call = ToolCall(call_id="call", name=TOOLS[int(invoice) % len(TOOLS)].name, args={"invoice_id": invoice})
        return Response(tool_calls=(call,), finish="tools")

    async def stream(self, request: Request) -> AsyncIterator[str | Response]:
        yield await self.complete(request)

    async def close(self) -> None:
        """Do nothing: there are no connections to close."""


def shop(store: Any = None) -> ChannelAgent:
    """Return the bot on a store: a URL, or None for a store in memory."""
    return ChannelAgent(Agent(TOOLS, provider=Instant()), store=store)


bot = shop()
