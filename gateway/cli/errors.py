"""How commands fail: 1 for a failure, 2 for a command that is wrong in itself, 78 for settings one must not start with.

78 is EX_CONFIG of sysexits.h: a supervisor that knows it does not try again.
"""

from __future__ import annotations

from typing import Any

import click

from channels import AskfirstError, MissingSetting
from gateway.providers import ProviderConfigurationError

__all__ = ["Commands", "Unsafe"]


class Unsafe(click.ClickException):
    """The settings are unsafe or there by half."""

    exit_code = 78


class Commands(click.Group):
    """Commands whose errors are said in a sentence."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MissingSetting as error:
            raise Unsafe(str(error)) from error
        except ProviderConfigurationError as error:
            raise Unsafe(f"{error.env_var}: {error.missing}" if error.env_var else str(error)) from error
        except AskfirstError as error:
            raise click.ClickException(str(error)) from error
