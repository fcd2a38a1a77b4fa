"""The bot of two releases. The tool has the version RELEASE and returns the release of the run."""

from __future__ import annotations

import os

import aiohttp

from gateway import Agent, ChannelAgent, ToolContext, tool

RELEASE = os.environ.get("RELEASE", "1")


@tool(confirm="Pay invoice {invoice_id}?", version=RELEASE)
async def pay_invoice(invoice_id: str, ctx: ToolContext) -> str:
    """Pay an invoice."""
    body = {"what": RELEASE, "invoice_id": invoice_id, "key": ctx.idempotency_key}
    async with aiohttp.ClientSession() as http, http.post(f"{os.environ['BUSINESS_URL']}/do", json=body) as answer:
        await answer.read()
    return f"paid by {RELEASE}"


bot = ChannelAgent(Agent([pay_invoice], provider="openai:test-model"))
