"""The command line: ``askfirst``."""

from __future__ import annotations

from importlib.metadata import version as version_of

import click

from gateway.cli.chat import chat
from gateway.cli.dev import dev
from gateway.cli.doctor import doctor
from gateway.cli.errors import Commands
from gateway.cli.init import init
from gateway.cli.operating import dead, pending, send
from gateway.cli.preview import preview
from gateway.cli.serve import serve
from gateway.cli.slack import slack
from gateway.cli.webhooks import webhooks

__all__ = ["main"]


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Chat bots that ask first: whatever cannot be undone happens once, after the right person said yes."""


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(version_of("askfirst"))


for _command in (init, dev, chat, preview, serve, doctor, webhooks, slack, pending, dead, send):
    main.add_command(_command)
