"""Command line of Askfirst: ``askfirst``.

Exit codes of the commands: 1 for a failure, 2 for a wrong command line, 78 for faulty settings or a faulty store. 78 is
EX_CONFIG of sysexits.h. A supervisor with support for 78 does not restart the process. A possibly temporary failure
therefore gets 1, for example an unreachable platform or a store still held by another process.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import version as version_of
from typing import Any

import click

from channels import AskfirstError, MissingSetting
from gateway.providers import ProviderConfigurationError
from gateway.store.errors import StoreInUse, StoreRefused

__all__ = ["main"]


class Unsafe(click.ClickException):
    """The settings are unsafe or incomplete, or the store cannot be opened in the present state."""

    exit_code = 78


class Commands(click.Group):
    """Command group with lazy imports. Errors are reported in one sentence.

    `modules` maps each command to its module. The module has the command under the same name, and is imported when the
    command is called or listed.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *self._modules])

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self._modules:
            return super().get_command(ctx, name)
        command: click.Command = getattr(import_module(self._modules[name]), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:  # click suggests only commands that it knows
            raise click.exceptions.NoSuchCommand(
                error.command_name, possibilities=self.list_commands(ctx), ctx=ctx
            ) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MissingSetting as error:
            raise Unsafe(str(error)) from error
        except ProviderConfigurationError as error:
            raise Unsafe(error.missing if error.env_var else str(error)) from error
        except StoreRefused as error:
            failure = click.ClickException if isinstance(error, StoreInUse) else Unsafe
            raise failure(str(error)) from error
        except AskfirstError as error:
            raise click.ClickException(str(error)) from error


_MODULES = {
    **{
        name: f"gateway.cli.{name}"
        for name in ("chat", "dev", "doctor", "init", "preview", "replay", "serve", "slack", "tools", "webhooks")
    },
    **dict.fromkeys(
        ("audit", "conversations", "dead", "pending", "people", "send", "usage", "waiting"),
        "gateway.cli.operator_commands",
    ),
    "conversations": "gateway.cli.operator_commands",
}


@click.version_option(package_name="askfirst", message="%(version)s")
@click.group(cls=Commands, modules=_MODULES, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Chat bots that ask first: an action that cannot be undone happens once, after the right person said yes."""


@main.command()
def version() -> None:
    """Print the version."""
    click.echo(version_of("askfirst"))
