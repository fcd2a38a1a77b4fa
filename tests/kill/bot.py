"""The killed bot. Another process runs the effects and records them."""

from __future__ import annotations

import json
import os
import urllib.request

import aiohttp

from gateway import Agent, ChannelAgent, Confirm, ToolContext, tool

BUSINESS_URL = os.environ.get("BUSINESS_URL", "")


async def _call(what: str, ctx: ToolContext, invoice_id: str) -> str:
    body = {"what": what, "invoice_id": invoice_id, "key": ctx.idempotency_key}
    async with aiohttp.ClientSession() as http, http.post(f"{BUSINESS_URL}/do", json=body) as answer:
        return await answer.text()


@tool(confirm="Pay invoice {invoice_id}?")
async def pay_invoice(invoice_id: str, ctx: ToolContext) -> str:
    """Pay an invoice."""
    return await _call("pay", ctx, invoice_id)


@tool(confirm="Delete invoice {invoice_id}?", idempotent=True)
async def delete_invoice(invoice_id: str, ctx: ToolContext) -> str:
    """Delete an invoice."""
    return await _call("delete", ctx, invoice_id)


async def _was_sent(invoice_id: str) -> str:
    url = f"{BUSINESS_URL}/probe"
    async with aiohttp.ClientSession() as http, http.post(url, json={"invoice_id": invoice_id}) as answer:
        return await answer.text()


@tool(confirm=Confirm("Send invoice {invoice_id}?", probe=_was_sent), timeout_seconds=2)  # type: ignore[arg-type]
async def send_invoice(invoice_id: str, ctx: ToolContext) -> str:
    """Send an invoice."""
    return await _call("send", ctx, invoice_id)


@tool(confirm=Confirm("Mail invoice {invoice_id}?", probe=_was_sent), timeout_seconds=2)  # type: ignore[arg-type]
def mail_invoice(invoice_id: str, ctx: ToolContext) -> str:
    """Mail an invoice."""
    body = json.dumps({"what": "mail", "invoice_id": invoice_id, "key": ctx.idempotency_key}).encode()
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(f"{BUSINESS_URL}/do", body, headers)) as answer:
        text: str = answer.read().decode()
    return text


@tool
async def note(text: str, ctx: ToolContext) -> str:
    """Write a note."""
    return await _call("note", ctx, text)


@tool(lock="stock:{item}")
async def reserve(item: str, ctx: ToolContext) -> str:
    """Reserve an item."""
    return await _call("reserve", ctx, item)


tools = [pay_invoice, delete_invoice, send_invoice, mail_invoice, note, reserve]
bot = ChannelAgent(Agent(tools, provider="openai:test-model"))
