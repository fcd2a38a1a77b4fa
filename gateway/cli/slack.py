"""Command ``askfirst slack``: the manifest for a new Slack app."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from channels import Json
from gateway.agent import Agent, AgentConfig
from gateway.channel_agent import ChannelAgent
from gateway.cli.bots import BotRef, load_settings
from gateway.cli.terminal import json_text
from gateway.cli.webhooks import bot_or_here

# Limits of https://github.com/slackapi/manifest-schema, in characters, and of the number of commands.
_LONGEST_NAME = 35
_LONGEST_COMMAND = 31
"""Length limit of a command name, without the slash."""
_LONGEST_DESCRIPTION = 2_000
_MOST_COMMANDS = 50

SCOPES = ["app_mentions:read", "chat:write", "commands", "files:read", "files:write", "im:history", "im:write"]
"""Scopes required for the bot's token."""
_EVENTS = ["app_mention", "message.im"]
_COMMAND = re.compile(r"[a-z0-9_]+")
_NOT_IN_A_NAME = re.compile(r"[^\w .'-]+")
_SLACKS_OWN = frozenset(
    """active apps archive away call canvas collapse commands dm dnd expand feed feedback help huddle invite join keys
    kick leave list me msg mute open part prefs pro remind remove rename search shortcuts shrug star status topic
    trigger who""".split()  # noqa: SIM905
)
"""Names of Slack's built-in commands. Slack refuses a manifest with a built-in name
(https://github.com/NousResearch/hermes-agent/pull/18456) and documents no list."""


@click.group()
def slack() -> None:
    """Set a Slack app up."""


@slack.command()
@bot_or_here
def manifest(bot: BotRef | None) -> None:
    """Print the app's manifest, for "Create New App", "From a manifest".

    It has the scopes, events and commands of BOT, at ASKFIRST_PUBLIC_URL; without one, or when SLACK_APP_TOKEN is set,
    the app speaks over Socket Mode.
    """
    settings = load_settings(bot.directory if bot is not None else Path.cwd())
    agent = bot.load() if bot is not None else ChannelAgent(Agent(config=AgentConfig(name="Askfirst")))
    url = f"{settings.public_url}/webhooks/slack" if settings.public_url else None
    if settings.slack_app_token is not None or url is None:
        why = "ASKFIRST_PUBLIC_URL is not set" if url is None else "SLACK_APP_TOKEN is set"
        click.echo(
            f"For Socket Mode, because {why}: `askfirst dev` and `askfirst serve --way polling` hear this app.",
            err=True,
        )
        url = None
    click.echo(json_text(_manifest(agent, url)))


def _manifest(agent: ChannelAgent, url: str | None) -> dict[str, Json]:
    """Return the manifest. Without a `url` the app uses Socket Mode."""
    name = " ".join(_NOT_IN_A_NAME.sub(" ", agent.name).split())[:_LONGEST_NAME].strip() or "Askfirst"
    at: dict[str, Json] = {"request_url": url} if url is not None else {}
    commands: list[Json] = [
        {"command": f"/{command}", "description": description, **({"url": url} if url is not None else {})}
        for command, description in _commands(agent, name)
    ]
    return {
        "display_information": {"name": name},
        "features": {
            "app_home": {"messages_tab_enabled": True, "messages_tab_read_only_enabled": False},
            "bot_user": {"display_name": name, "always_online": True},
            "slash_commands": commands[:_MOST_COMMANDS],
        },
        "oauth_config": {"scopes": {"bot": [*SCOPES]}},
        "settings": {
            "event_subscriptions": {**at, "bot_events": [*_EVENTS]},
            "interactivity": {"is_enabled": True, **at},
            "socket_mode_enabled": url is None,
        },
    }


def _commands(agent: ChannelAgent, name: str) -> Iterator[tuple[str, str]]:
    """Yield the bot's commands allowed by Slack, with descriptions. A name of Slack's own gets the bot's name as
    prefix."""
    prefix = "_".join(re.findall(r"[a-z0-9]+", name.lower())) or "bot"
    for command, description in agent.commands.described(agent.language or "en").items():
        registered = (
            command if command not in _SLACKS_OWN else f"{prefix[: _LONGEST_COMMAND - 1 - len(command)]}-{command}"
        )
        if _COMMAND.fullmatch(command) and len(registered) <= _LONGEST_COMMAND:
            yield registered, description.strip()[:_LONGEST_DESCRIPTION]
        else:
            click.echo(f"Slack takes no command /{command}: people write it to the bot, @{name} /{command}", err=True)
