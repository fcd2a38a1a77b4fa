"""``askfirst serve``: the bot on its platforms, by webhooks."""

from __future__ import annotations

import asyncio

import click

from gateway.app import Gateway
from gateway.cli.bots import BotRef, bot_argument, load_settings
from gateway.cli.running import leave, log_to_stderr, run, until_signal
from gateway.settings import Role

__all__ = ["serve"]

GRACE_SECONDS = 20.0


@click.command()
@bot_argument
@click.option("--host", default="0.0.0.0", show_default=True, help="The address to listen on.")  # noqa: S104 - a server's
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="0: any free one.")
@click.option(
    "--role",
    type=click.Choice(["all", "web", "worker"]),
    default="all",
    show_default=True,
    help="web: only take and decide; worker: also run turns and actions. Other than all needs Redis.",
)
def serve(bot: BotRef, host: str, port: int, role: Role) -> None:
    """Serve BOT on every channel whose settings are there.

    BOT is path.py or module:name. Settings come from the environment and from the .env file beside the bot. SIGTERM
    or Ctrl-C lets running turns finish for 20 seconds; a second one ends it at once.
    """
    settings = load_settings(bot.directory)
    settings.check_serve(role)
    log_to_stderr(settings, settings.log_level)
    agent = bot.load()
    provider = agent.agent.provider.name
    gateway = Gateway(agent, settings, role=role)

    def announce(url: str) -> None:
        click.echo(f"{bot.written} is served on {url}")
        for channel in gateway.channels:
            click.echo(f"  {channel}: {settings.public_url or url}/webhooks/{channel}")
        for warning in _warnings(gateway, provider):
            click.echo(f"  Note: {warning}", err=True)

    async def main() -> None:
        with until_signal() as signalled:
            await run(gateway, host, port, stopped=signalled.wait, grace_seconds=GRACE_SECONDS, announce=announce)

    asyncio.run(main())
    leave()


def _warnings(gateway: Gateway, provider: str) -> list[str]:
    warnings = []
    if not gateway.channels:
        warnings.append("no channel is on: set TELEGRAM_BOT_TOKEN and TELEGRAM_WEBHOOK_SECRET, for example")
    elif gateway.settings.public_url is None:
        warnings.append("ASKFIRST_PUBLIC_URL is not set: `askfirst webhooks set` needs it")
    if provider == "demo":
        warnings.append("the offline demo model answers: set ASKFIRST_PROVIDER, for example to openai:gpt-5-mini")
    return warnings
