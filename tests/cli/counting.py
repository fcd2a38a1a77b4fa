"""A bot with previews that count their calls, so some previews differ from call to call."""

from __future__ import annotations

from pathlib import Path

_BOT = """
import itertools
from contextlib import asynccontextmanager
from typing import Annotated

from pydantic import Field

from gateway import Agent, ChannelAgent, Confirm, Preview, ToolContext, tool

calls = itertools.count()


@asynccontextmanager
async def folders():
    yield ["old"]


async def text():
    return f"Delete {next(calls)} invoices?"


async def table():
    return Preview(text=f"{next(calls)}?", table=[("Total", str(next(calls)))])


async def etag():
    return Preview(text=f"Delete {next(calls)} invoices?", precondition="etag")


async def clock():
    return Preview(text="Delete?", precondition=(next(calls),))


async def steady(folder: str, ctx: ToolContext):
    if folder not in ctx.deps:
        raise ValueError(f"There is no folder {folder}.")
    return f"Delete {folder}?"


async def broken():
    raise KeyError("canary")


def deleting(name, ask, example="old"):
    @tool(name=name, confirm=ask)
    async def delete(folder: Annotated[str, Field(examples=[example])]) -> str:
        "Delete."
        return ""

    return delete


@tool(confirm=steady)
async def unnamed(folder: str) -> str:
    "Delete."
    return ""


tools = [
    deleting("text", text),
    deleting("table", table),
    deleting("etag", etag),
    deleting("clock", clock),
    deleting("steady", steady),
    deleting("gone", steady, "new"),
    deleting("broken", broken),
    deleting("volatile", Confirm(text, volatile=True)),
    deleting("template", "Delete {folder}?"),
    unnamed,
]
bot = ChannelAgent(Agent(tools), lifespan=folders)
"""


def write_counting_bot(directory: Path) -> Path:
    file = directory / "bot.py"
    file.write_text(_BOT)
    return file
