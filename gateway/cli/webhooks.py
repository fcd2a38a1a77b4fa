"""Commands ``askfirst webhooks``: register the URLs of the webhooks with the platforms."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import click

from channels import AskfirstError, CanRegister, CanShowCommands, Channel, MissingSetting, SharesWebhook, Way
from channels.catalogue import load
from gateway.app import started
from gateway.channel_agent import ChannelAgent
from gateway.cli.bots import BotRef, load_settings
from gateway.config.environment import proxied
from gateway.config.settings import Settings
from gateway.wording import LANGUAGES

_LONGEST_DESCRIPTION = 256
"""Characters: https://core.telegram.org/bots/api#botcommand."""

bot_or_here = click.argument("bot", type=BotRef.parse, metavar="[BOT]", required=False)


@click.group()
def webhooks() -> None:
    """Register ASKFIRST_PUBLIC_URL with the platforms, as the place to send messages to.

    The settings are read beside BOT, or else from this directory and the environment.
    """


@webhooks.command("set")
@bot_or_here
def set_webhooks(bot: BotRef | None) -> None:
    """Register the public address, and with BOT also the menu of its commands, in every language we speak."""
    settings = _settings(bot)
    base = settings.public_url
    if base is None:
        mend = "set it to how the platforms reach the server, for example https://bot.example.com"
        raise MissingSetting("ASKFIRST_PUBLIC_URL", mend)
    agent = bot.load() if bot is not None else None

    async def register() -> None:
        called = {name: way for name, way in settings.channels_on().items() if way == "webhook"}
        async with _registering(settings, called) as channels:
            for name, channel in channels.items():
                url = webhook_url(base, name, channel)
                await channel.register(url)
                click.echo(f"{name}: {url}")
                if agent is not None and isinstance(channel, CanShowCommands):
                    await channel.set_commands(_menu(agent))
                    click.echo(f"{name}: {len(agent.commands.described('en'))} commands in the menu")

    asyncio.run(register())


@webhooks.command("show")
@bot_or_here
@click.option("--json", "as_json", is_flag=True, help="Answer in JSON.")
def show_webhooks(bot: BotRef | None, *, as_json: bool) -> None:
    """Show the URLs that the platforms have registered."""
    settings = _settings(bot)

    async def registered() -> dict[str, str | None]:
        async with _registering(settings, settings.channels_on()) as channels:
            return {name: await channel.registered() for name, channel in channels.items()}

    found = asyncio.run(registered())
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for name, url in found.items():
        click.echo(f"{name}: {url or 'nothing is registered'}")


@webhooks.command("delete")
@bot_or_here
def delete_webhooks(bot: BotRef | None) -> None:
    """Remove the registered URLs: Telegram can be polled only without a webhook."""
    settings = _settings(bot)

    async def unregister() -> None:
        async with _registering(settings, settings.channels_on()) as channels:
            for name, channel in channels.items():
                await channel.unregister()
                click.echo(f"{name}: deleted")

    asyncio.run(unregister())


def polled(name: str) -> str:
    """Return how a channel's messages come in without a webhook."""
    return {"telegram": "by long polling", "slack": "over Socket Mode"}.get(name, "by polling")


def webhook_url(base: str, name: str, channel: CanRegister | Channel) -> str:
    """Return the URL of a channel's webhook."""
    return f"{base}/webhooks/{channel.webhooks[0] if isinstance(channel, SharesWebhook) else name}"


def _settings(bot: BotRef | None) -> Settings:
    return load_settings(bot.directory if bot is not None else Path.cwd())


@asynccontextmanager
async def _registering(settings: Settings, ways: Mapping[str, Way]) -> AsyncIterator[Mapping[str, CanRegister]]:
    """Start the channels, and yield the channels able to register a webhook. For the others, print the URL to enter by
    hand.

    Raises AskfirstError when no channel is on.
    """
    on: dict[str, Channel] = {
        name: load(name).from_settings(settings.channel_settings(name), way=way) for name, way in ways.items()
    }
    able = {name: channel for name, channel in on.items() if isinstance(channel, CanRegister)}
    for name in (name for name in on if name not in able and ways[name] == "webhook"):
        url = webhook_url(settings.public_url or "ASKFIRST_PUBLIC_URL", name, on[name])
        click.echo(f"{name}: enter {url} in the platform's console", err=True)
    if not on:
        mend = "set what one needs, such as TELEGRAM_BOT_TOKEN and TELEGRAM_WEBHOOK_SECRET"
        raise AskfirstError(f"no channel with a webhook is on: {mend}")
    async with aiohttp.ClientSession(trust_env=proxied()) as http:
        for name in able:
            await started(on[name], http)
        try:
            yield able
        except AskfirstError as error:
            raise AskfirstError(f"a platform refused ({error})") from error
        finally:
            for name in able:
                await on[name].close()


def _menu(bot: ChannelAgent) -> dict[str, dict[str, str]]:
    """Return language -> command -> description. The language "" is the default of all others."""
    languages = {"": bot.language or "en"} | {language: bot.language or language for language in LANGUAGES}
    return {
        shown_to: {name: _line(description) for name, description in bot.commands.described(language).items()}
        for shown_to, language in languages.items()
    }


def _line(description: str) -> str:
    return description.strip().split("\n")[0][:_LONGEST_DESCRIPTION]
