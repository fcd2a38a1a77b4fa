"""An MCP server of the `mcp` package, with every ability: ``python -m tests.mcp.busy_server [port]``.

Without a port the server speaks over the standard input and output. The environment has the orders.
"""

from __future__ import annotations

import asyncio
import base64
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import mcp_types
from mcp.server import MCPServer
from mcp.server.mcpserver import Context, Elicit, Resolve
from pydantic import BaseModel, Field

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
STATE = Path(os.environ.get("STATE", "."))

server = MCPServer("busy", log_level="CRITICAL")
if os.environ.get("STDERR"):
    print(os.environ["STDERR"], file=sys.stderr, flush=True)


def done(what: str) -> None:
    with (STATE / "done").open("a", encoding="utf-8") as file:
        file.write(f"{what}\n")


@server.tool(annotations=mcp_types.ToolAnnotations(read_only_hint=True))
def look(place: str, deep: bool = False) -> str:
    """Look at a place."""
    return f"{place} is {'deep' if deep else 'flat'}"


@server.tool()
def pay(amount: Annotated[int, Field(ge=1)]) -> dict[str, Any]:
    """Pay an amount."""
    done(f"pay {amount}")
    return {"paid": amount}


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("the shop is closed")


@server.tool(structured_output=False)
def media() -> list[Any]:
    """Give files."""
    resource = mcp_types.BlobResourceContents(
        uri="file:///x/notes.pdf", mime_type="application/pdf", blob=base64.b64encode(b"%PDF-1.7").decode()
    )
    return [
        mcp_types.TextContent(text="Two files."),
        mcp_types.ImageContent(data=base64.b64encode(PNG).decode(), mime_type="image/png"),
        mcp_types.EmbeddedResource(resource=resource),
        mcp_types.ImageContent(data="%%%", mime_type="image/png"),
        mcp_types.ResourceLink(name="more", uri="https://example.org/more"),
    ]


@server.tool(structured_output=False)
def flood(size: int) -> str:
    """Say much."""
    return "x" * size


@server.tool()
async def hang() -> str:
    """Hang."""
    done("hang")
    await asyncio.sleep(3600)
    return ""


@server.tool()
def die() -> str:
    """Die."""
    done("die")
    os._exit(1)


class Seat(BaseModel):
    row: int
    window: bool


async def ask_seat() -> Elicit[Seat]:
    return Elicit("Which seat?", Seat)


@server.tool()
async def book(seat: Annotated[Seat, Resolve(ask_seat)]) -> str:
    """Book a seat."""
    done(f"book {seat.row} {seat.window}")
    return "booked"


@server.tool()
async def change(ctx: Context) -> str:
    """Change what the server offers, while this runs."""
    server.remove_tool("look")

    def other(place: str, depth: int) -> str:
        """Look at a place, otherwise."""
        return f"{place} {depth}"

    server.add_tool(other, name="look")
    await ctx.notify_tools_changed()
    return "changed"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
