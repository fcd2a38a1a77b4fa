"""Command line of Askfirst: ``askfirst``."""

from __future__ import annotations

from importlib.metadata import version as version_of

import click

from gateway.cli.errors import Commands

__all__ = ["main"]


_MODULES = {
    **{
        name: f"gateway.cli.{name}"
        for name in ("chat", "dev", "doctor", "init", "preview", "replay", "serve", "slack", "tools", "webhooks")
    },
    **dict.fromkeys(
        ("audit", "dead", "pending", "people", "send", "usage", "waiting"),
        "gateway.cli.operator_commands",
    ),
    "conversations": "gateway.cli.conversation_commands",
}


@click.version_option(package_name="askfirst", message="%(version)s")
@click.group(cls=Commands, modules=_MODULES, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Chat bots that ask first: an action that cannot be undone happens once, after the right person said yes."""


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(version_of("askfirst"))
