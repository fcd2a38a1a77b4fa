"""The MCP server of the killed bot. The effects happen in the process of the test."""

from __future__ import annotations

import json
import os
import urllib.request

from mcp.server import MCPServer

server = MCPServer("business", log_level="CRITICAL")


def _call(what: str, invoice_id: str) -> str:
    body = json.dumps({"what": what, "invoice_id": invoice_id, "key": "mcp"}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{os.environ['BUSINESS_URL']}/do", body, headers)
    with urllib.request.urlopen(request) as answer:
        text: str = answer.read().decode()
    return text


@server.tool()
def pay(invoice_id: str) -> str:
    """Pay an invoice."""
    return _call("pay", invoice_id)


@server.tool()
def note(invoice_id: str) -> str:
    """Note an invoice."""
    return _call("note", invoice_id)


if __name__ == "__main__":
    server.run("stdio")
