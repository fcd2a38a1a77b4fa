"""The process's environment as Askfirst reads it: a secret may stand in a file, and leaves the environment.

What stands in the environment is inherited by every program that a tool starts. So the commands take the secrets out
once the bot is loaded. Askfirst itself goes on finding them here, as for an agent that a tool makes later.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from urllib.request import getproxies

from channels import MissingSetting
from channels.catalogue import BUILT_IN, names, settings_of

__all__ = ["SECRETS", "environment", "hide_secrets", "proxied", "read_secret"]

log = logging.getLogger("askfirst.platforms")

_OWN = ("ASKFIRST_SECRET", "ASKFIRST_STORE", "ASKFIRST_ADMIN_TOKEN", "OPENAI_API_KEY", "ANTHROPIC_API_KEY")
"""ASKFIRST_STORE is one of them because the address of a Redis holds its password."""


def _secrets_of(channels: Iterable[str]) -> Iterable[str]:
    return (setting.name for channel in channels for setting in settings_of(channel) if setting.secret)


SECRETS = tuple(dict.fromkeys([*_OWN, *_secrets_of(BUILT_IN)]))
"""Every variable of ours that holds a secret. ``NAME_FILE`` may name a file that holds it instead."""

_hidden: dict[str, str] = {}
"""What was taken out of the environment."""


def read_secret(variable: str) -> str | None:
    """Return the value of a secret: of the environment, else of the file that ``<variable>_FILE`` names.

    Raises MissingSetting when both are set, or when the file is empty or cannot be read.
    """
    value = os.environ.get(variable, "").strip() or _hidden.get(variable)
    pointer = f"{variable}_FILE"
    place = os.environ.get(pointer, "").strip()
    if not place:
        return value
    if value:
        raise MissingSetting(pointer, f"{variable} is set too: set one of the two")
    try:
        found = Path(place).read_text("utf-8").strip()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise MissingSetting(pointer, f"{place} cannot be read ({why}): name a file that this user may read") from error
    if not found:
        raise MissingSetting(pointer, f"{place} is empty: write the value of {variable} into it")
    return found


def environment() -> dict[str, str]:
    """Return the environment with the secrets that are in files or were taken out. Raises MissingSetting."""
    return {**os.environ, **{name: value for name in SECRETS if (value := read_secret(name)) is not None}}


def proxied() -> bool:
    """Return whether the environment names a proxy for calls to other servers, as ``HTTPS_PROXY`` does.

    A session that trusts the environment looks into it, and for a ``.netrc``, with every call: it does so only where
    there is a proxy. One that cannot be spoken to is named in a warning; its address may hold a password and is not.
    """
    found = {scheme: url for scheme, url in getproxies().items() if scheme in ("http", "https")}
    for scheme, url in found.items():
        if not url.startswith("http://"):
            log.warning("%s_PROXY is no http:// proxy: no platform can be reached through it", scheme.upper())
    return bool(found)


def hide_secrets() -> None:
    """Take every secret, also those of channels from other distributions, out of the process's environment.

    ``/proc/PID/environ`` still shows to this user what the process was started with. Raises AskfirstError for a channel
    that cannot be loaded.
    """
    for name in dict.fromkeys([*SECRETS, *_secrets_of(names())]):
        if (value := os.environ.pop(name, None)) is not None:
            _hidden[name] = value.strip()
