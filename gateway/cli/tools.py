"""Command ``askfirst tools``: list what each tool may do without confirmation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

from gateway.channel_agent import ChannelAgent
from gateway.cli.bots import BotRef, bot_argument, load_settings
from gateway.cli.terminal import json_text
from gateway.tools import Permission, permissions, unasked

__all__ = ["in_short", "listed", "tools"]


@click.command()
@bot_argument
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
def tools(bot: BotRef, *, as_json: bool) -> None:
    """List the tools of BOT: which run at once, which ask first and which never run, and why."""
    load_settings(bot.directory)
    agent = bot.load()
    found = permissions(agent.agent.reach.values())
    if as_json:
        click.echo(json_text([asdict(each) for each in found]))
        return
    for line in listed(found):
        click.echo(line)
    warning = unasked(agent.agent.reach.values())
    if warning is not None:
        click.echo(f"warning: {warning}", err=True)


def in_short(agent: ChannelAgent) -> str:
    """Return, in one line, whether each tool runs, asks or is denied."""
    return ", ".join(f"{each.tool} {each.how}" for each in permissions(agent.agent.reach.values())) or "none"


def listed(found: Sequence[Permission]) -> Iterator[str]:
    """Yield a line for each tool, in columns."""
    width = max((len(each.tool) for each in found), default=0)
    for each in found:
        yield f"{each.tool:<{width}}  {each.how:<5}  {each.why}"
    if not found:
        yield "It has no tools."
