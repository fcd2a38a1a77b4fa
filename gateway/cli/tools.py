"""Command ``askfirst tools``: list the tools that run, ask or never run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from gateway.channel_agent import ChannelAgent
from gateway.cli.bots import BotRef, bot_argument, load_settings
from gateway.cli.terminal import json_text
from gateway.tools import Permission, permissions, unasked, unclear


@click.command()
@bot_argument
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
def tools(bot: BotRef, *, as_json: bool) -> None:
    """List the tools of BOT: which run at once, which ask first and which never run, and why.

    What the model has to guess about a tool is told as an advice: a parameter that nobody describes, choices in words.
    MCP servers are asked for their tools. What one says about the effects of a tool decides nothing.
    """
    load_settings(bot.directory)
    agent = bot.load()
    list_sources(agent)
    found = permissions(agent.agent.reach.values())
    if as_json:
        click.echo(json_text([asdict(each) for each in found]))
        return
    for line in listed(found):
        click.echo(line)
    warning = unasked(agent.agent.reach.values())
    if warning is not None:
        click.echo(f"warning: {warning}", err=True)
    for advice in unclear(agent.agent.reach.values()):
        click.echo(f"advice: {advice}", err=True)


def list_sources(agent: ChannelAgent) -> None:
    """Ask the sources of the agent's tools, such as MCP servers, for their lists once. Failures are logged."""

    async def once() -> None:
        try:
            await agent.agent.refresh_tools()
        finally:
            await agent.agent.close_sources()

    if agent.agent.sources:
        asyncio.run(once())


def in_short(agent: ChannelAgent) -> str:
    """Return, in a line, whether each tool runs, asks or is denied."""
    return ", ".join(f"{each.tool} {each.how}" for each in permissions(agent.agent.reach.values())) or "none"


def listed(found: Sequence[Permission]) -> Iterator[str]:
    """Yield a line for each tool, in columns."""
    width = max((len(each.tool) for each in found), default=0)
    for each in found:
        yield f"{each.tool:<{width}}  {each.how:<5}  {each.why}"
    if not found:
        yield "It has no tools."
