"""Command ``askfirst serve``: serve the bot on its platforms."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import click
from click.core import ParameterSource

from gateway.access.entries import EVERYBODY, vain_entries
from gateway.app import Gateway
from gateway.cli.bots import BotRef, bot_argument, load_settings
from gateway.cli.process import base_url, event_loop, leave, leave_after, log_to_stderr, run, until_signal
from gateway.cli.tools import in_short
from gateway.cli.webhooks import polled, webhook_url
from gateway.config.settings import Role, ServeWay
from gateway.config.suggestions import misspelt
from gateway.providers.prices import age_warning
from gateway.tools import unasked

LOOPBACK = ("127.0.0.1", "localhost", "::1")
GRACE_SECONDS = 20.0
LAST_SECONDS = 10.0
"""Time after the grace period for releasing leases, closing, and the bot's own cleanup. Then the process ends."""


@click.command()
@bot_argument
@click.option("--host", default="0.0.0.0", show_default=True, help="The address to listen on.")  # noqa: S104 - a server's
@click.option(
    "--port",
    default=8080,
    show_default=True,
    envvar="PORT",
    show_envvar=True,
    type=click.IntRange(0, 65535),
    help="0: any free one.",
)
@click.option(
    "--role",
    type=click.Choice(["all", "web", "worker"]),
    default="all",
    show_default=True,
    help="web: receive events and decide; worker: also run turns and actions. Other than all needs Redis.",
)
@click.option(
    "--way",
    type=click.Choice(["auto", "webhook", "polling"]),
    default="auto",
    show_default=True,
    help="How messages come in. auto: by webhook where a channel's settings for one are there, else by polling.",
)
@click.pass_context
def serve(context: click.Context, bot: BotRef, host: str, port: int, role: Role, way: ServeWay) -> None:
    """Serve BOT on every channel whose settings are there.

    BOT is path.py or module:name. Settings come from the environment and from the .env file beside the bot. SIGTERM
    or Ctrl-C lets running turns finish for 20 seconds; a second one ends it at once.
    """
    settings = load_settings(bot.directory)
    settings.check_serve(role, way)
    log_to_stderr(settings, settings.log_level)
    agent = bot.load()
    provider = agent.agent.provider.name
    # The default host is open to all machines. The metrics are open to others only when a host is named.
    metrics_host = LOOPBACK[0] if context.get_parameter_source("host") is ParameterSource.DEFAULT else host
    gateway = Gateway(agent, settings, role=role, way=way, metrics_host=metrics_host)
    if settings.log_people == "pseudonym":
        log_to_stderr(settings, settings.log_level, key=gateway.log_key)

    def announce(url: str) -> None:
        click.echo(f"{bot.written} is served on {url}")
        for line in _channels(gateway, settings.public_url or url):
            click.echo(f"  {line}")
        click.echo(f"  tools: {in_short(agent)}")
        if settings.metrics_port is not None:
            click.echo(f"  metrics: {base_url(metrics_host, settings.metrics_port)}/metrics")
        for warning in warnings_of(gateway, provider, datetime.now(UTC)):
            click.echo(f"  Note: {warning}", err=True)

    async def main() -> None:
        with until_signal() as signalled:

            async def stopped() -> None:
                await signalled.wait()
                leave_after(GRACE_SECONDS + LAST_SECONDS)

            await run(gateway, host, port, stopped=stopped, grace_seconds=GRACE_SECONDS, announce=announce)

    with asyncio.Runner(loop_factory=event_loop) as runner:
        runner.run(main())
        leave()


def _channels(gateway: Gateway, base: str) -> Iterable[str]:
    """Return, a line for each way in, with its platforms, with a note for unreachable platforms."""
    urls: dict[str, list[str]] = {}
    for name, channel in gateway.channels.items():
        down = " (not reached yet: it is tried again until it is)" if name in gateway.engine.context.down else ""
        how = polled(name) if gateway.ways[name] == "polling" else webhook_url(base, name, channel)
        urls.setdefault(how, []).append(f"{name}{down}")
    return [f"{', '.join(names)}: {how}" for how, names in urls.items()]


def warnings_of(gateway: Gateway, provider: str, now: datetime) -> list[str]:
    """Return the warnings for the operator at the start."""
    allow, accounts = gateway.settings.allow or (), {}
    for name, channel in gateway.channels.items():
        accounts[name] = getattr(channel, "account", None)
    warnings = [*misspelt(), *vain_entries(allow, accounts), *([EVERYBODY] if "*" in allow else [])]
    if not gateway.channels:
        warnings.append("no channel is on: set TELEGRAM_BOT_TOKEN, for example")
    elif gateway.settings.public_url is None and "webhook" in gateway.ways.values():
        warnings.append("ASKFIRST_PUBLIC_URL is not set: `askfirst webhooks set` needs it")
    file = gateway.store_file
    if file is not None and goes_with_container(file.absolute().parent):
        warnings.append(f"{file} goes with this container: mount a named volume or a directory at {file.parent}")
    if (alone := unasked(gateway.bot.agent.reach.values())) is not None:
        warnings.append(alone)
    if (old := age_warning(now)) is not None:
        warnings.append(old)
    port, host = gateway.settings.metrics_port, gateway.metrics_host
    if port is not None and host not in LOOPBACK and gateway.settings.admin_token is None:
        warnings.append(f"all who reach port {port} of {host} may read the metrics: set ASKFIRST_ADMIN_TOKEN")
    if provider == "demo":
        warnings.append("the offline demo model answers: set ASKFIRST_PROVIDER, for example to openai:gpt-5-mini")
    return warnings


_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Marker files in every Docker and Podman container."""
_ANONYMOUS = re.compile(r"/volumes/[0-9a-f]{64}/_data$")
"""Mount root of an anonymous volume in Docker and Podman. A new container gets a new volume."""


def goes_with_container(directory: Path, mounts: str | None = None) -> bool:
    """Return True if the directory is in the container's own file system or on an anonymous volume.

    `mounts`: text of ``/proc/self/mountinfo`` (proc_pid_mountinfo(5)). By default the text of this process is read;
    outside a container the result is False.
    """
    if mounts is None:
        if not any(mark.exists() for mark in _MARKS):
            return False
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    found = [line.split(" ")[3:5] for line in mounts.splitlines()]
    holding = [(Path(point), root) for root, point in found if directory.is_relative_to(point)]
    point, root = max(holding, key=lambda mount: len(mount[0].parts), default=(Path("/"), "/"))
    return point == Path("/") or _ANONYMOUS.search(root) is not None
