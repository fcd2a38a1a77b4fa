"""Command ``askfirst dev``: serve the bot on this machine, restarted after every save."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import click

from channels.catalogue import polls
from gateway.app import Gateway
from gateway.channel_agent import ChannelAgent, LifespanFailed
from gateway.cli.bots import BotRef, NoBot, authors_traceback, bot_argument, load_settings
from gateway.cli.process import leave, log_to_stderr, run, until_signal
from gateway.cli.tools import in_short
from gateway.cli.webhooks import polled
from gateway.config.options import WrongOption
from gateway.config.suggestions import misspelt
from gateway.providers import ProviderConfigurationError
from gateway.tools import ToolSource, unasked

GRACE_SECONDS = 1.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")


@click.command()
@bot_argument
@click.option("--host", default="127.0.0.1", show_default=True, help="Any other lets other machines in.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="0: any free one.")
@click.option("--mcp", multiple=True, metavar="URL", help="Adds the tools of this MCP server, which ask. Repeatable.")
def dev(bot: BotRef, host: str, port: int, mcp: tuple[str, ...]) -> None:
    """Try BOT in the browser, with a console of its tool calls and asks.

    BOT is path.py or module:name. It starts anew with every save in its directory. Telegram comes in by long polling
    when TELEGRAM_BOT_TOKEN is set, Slack over Socket Mode when SLACK_BOT_TOKEN and SLACK_APP_TOKEN are, so no public
    address is needed. Without a model's key the offline demo answers.
    """
    # Python's bytecode cache misses a second save within one second that leaves the file's size the same.
    sys.dont_write_bytecode = True
    environ = dict(os.environ)
    servers = _servers(mcp)
    settings = load_settings(bot.directory)
    open_to_all = settings.allow is None
    # The page is served here, and not under the public URL of `serve`, whose cookies need https.
    own = {"public_url": None} | ({"allow": ("*",)} if open_to_all else {})
    settings = settings.model_copy(update=own)
    log_to_stderr(settings, settings.log_level if "log_level" in settings.model_fields_set else "WARNING")

    async def serve(agent: ChannelAgent, no_key: str | None, stopped: Callable[[], Awaitable[None]]) -> None:
        gateway = Gateway(agent, settings, way="polling", chat=True, console=True, chat_hosts=(*LOOPBACK, host))

        def announce(url: str) -> None:
            click.echo(f"{bot.written} is running: {url}/chat")
            for line in _about(gateway, host, open_to_all=open_to_all, no_key=no_key):
                click.echo(f"  {line}")

        await run(gateway, host, port, stopped=stopped, grace_seconds=GRACE_SECONDS, announce=announce)

    with asyncio.Runner() as runner:
        # Start watching before the bot is read, so that no save is missed.
        saving = runner.run(_watch(bot.directory))
        try:
            agent = bot.load()
            agent.agent = agent.agent.with_sources(*servers)
            no_key = _work_offline(agent)
            saved = runner.run(_until(saving, lambda stopped: serve(agent, no_key, stopped)))
        except (NoBot, LifespanFailed) as error:
            if not _sees_saves():
                raise
            more = f"\n{authors_traceback(error.error)}" if isinstance(error, LifespanFailed) else ""
            click.echo(f"{error}{more}\n\nIt starts with the next save. Ctrl-C ends.", err=True)
            saved = runner.run(_until(saving, lambda stopped: stopped()))
        # Inside the block, because at its end Python waits for every thread.
        if saved:
            click.echo("Saved: starting anew.")
            logging.shutdown()
            sys.stdout.flush()
            # Use the environment without the variables of .env, which may have changed.
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environ)  # noqa: S606 - our own command line
        leave()


def _servers(urls: tuple[str, ...]) -> list[ToolSource]:
    if not urls:
        return []
    try:
        from gateway.mcp import MCPServer

        return [MCPServer(url=url) for url in urls]
    except ImportError as error:
        raise click.UsageError(str(error)) from error
    except WrongOption as error:
        raise click.BadParameter(error.issues["url"], param_hint="--mcp") from error


def _sees_saves() -> bool:
    return find_spec("watchfiles") is not None


async def _watch(directory: Path) -> asyncio.Task[None]:
    """Return a task, finished by a change of a Python file or of the .env in this directory or below.

    Without the package watchfiles the task never ends.
    """

    async def change() -> None:
        if not _sees_saves():
            await asyncio.Event().wait()
        from watchfiles import PythonFilter, awatch

        async for _ in awatch(directory, watch_filter=PythonFilter(extra_extensions=[".env"])):
            return

    watching = asyncio.create_task(change())
    await asyncio.sleep(0)
    return watching


async def _until(saving: asyncio.Task[None], work: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]) -> bool:
    """Run `work` until a save or a signal. `stopped` waits for either. Return True after a save."""
    with until_signal() as signalled:
        ending = asyncio.create_task(signalled.wait())

        async def stopped() -> None:
            await asyncio.wait([saving, ending], return_when=asyncio.FIRST_COMPLETED)

        await work(stopped)
        return not signalled.is_set()


def _work_offline(agent: ChannelAgent) -> str | None:
    """Replace a model without a key by the demo model. Return the variable of the missing key, or None.

    Raises ProviderConfigurationError for any other fault.
    """
    try:
        agent.agent.provider  # noqa: B018 - made when first asked for
    except ProviderConfigurationError as error:
        if error.env_var not in _KEYS:
            raise
        agent.agent = agent.agent.using("demo")
        return error.env_var
    return None


def _about(gateway: Gateway, host: str, *, open_to_all: bool, no_key: str | None) -> Iterator[str]:
    anew = "It starts anew with every save." if _sees_saves() else "It sees no save: pip install 'askfirst[dev]'."
    model = gateway.bot.agent.provider.name
    instead = "" if no_key is None else f" in place of the bot's own, for {no_key} is not set"
    yield f"model: {model}" + (f" (offline; its tools and asks are real){instead}" if model == "demo" else "")
    agent = gateway.bot.agent
    yield f"tools: {in_short(gateway.bot)}"
    if (alone := unasked(agent.reach.values())) is not None:
        yield f"Careful: {alone}"
    for warning in misspelt():
        yield f"Careful: {warning}"
    for name in gateway.ways:
        how = polled(name) if polls(name) else "it only sends here, for its platform calls a webhook"
        yield f"{name}: {how}" + ("; everybody may write, ASKFIRST_ALLOW is not set" if open_to_all else "")
    if host not in LOOPBACK:
        yield f"Careful: whoever reaches {host} can use this chat and see what it does"
    yield f"{anew} Ctrl-C ends."
