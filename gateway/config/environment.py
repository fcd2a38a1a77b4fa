"""The process's environment, with secrets from files, and with secrets hidden from child processes.

Programs started by a tool inherit the environment, so the commands remove the secrets once the bot is loaded. Askfirst
still finds the secrets here, for example for an agent made later by a tool.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path
from urllib.request import getproxies

from dotenv import load_dotenv
from dotenv.parser import parse_stream

from channels import MissingSetting
from channels.catalogue import BUILT_IN, names, settings_of

log = logging.getLogger("askfirst.platforms")

_OWN = (
    *("ASKFIRST_SECRET", "ASKFIRST_STORE", "ASKFIRST_ADMIN_TOKEN"),
    *("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OTEL_EXPORTER_OTLP_HEADERS", "ASKFIRST_TRANSCRIBE_API_KEY"),
)
"""Secret variables of Askfirst. ASKFIRST_STORE is secret because the URL of a Redis contains the password."""


def _secrets_of(channels: Iterable[str]) -> Iterable[str]:
    return (setting.name for channel in channels for setting in settings_of(channel) if setting.secret)


SECRETS = tuple(dict.fromkeys([*_OWN, *_secrets_of(BUILT_IN)]))
"""All variables with a secret of Askfirst or of a built-in channel.

``NAME_FILE`` may name a file with the value.
"""

_hidden: dict[str, str] = {}
"""Secrets removed from the environment."""


def read_secret(variable: str) -> str | None:
    """Return the value of a secret, from the environment or from the file named by ``<variable>_FILE``.

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
    """Return the environment plus the secrets from files and the removed secrets. Raises MissingSetting."""
    return {**os.environ, **{name: value for name in SECRETS if (value := read_secret(name)) is not None}}


def proxied() -> bool:
    """Return True if the environment names a proxy for outgoing calls, like ``HTTPS_PROXY``.

    An HTTP session that trusts the environment reads the variables, and looks for a ``.netrc``, on every call. So
    sessions trust the environment only if there is a proxy. A proxy of another scheme is logged as unusable, without
    the address, because the address may contain a password.
    """
    found = {scheme: url for scheme, url in getproxies().items() if scheme in ("http", "https")}
    for scheme, url in found.items():
        if not url.startswith("http://"):
            log.warning("%s_PROXY is no http:// proxy: no platform can be reached through it", scheme.upper())
    return bool(found)


def hide_secrets() -> None:
    """Remove every secret from the process's environment, including the secrets of channels from other distributions.

    ``/proc/PID/environ`` still shows the process's initial environment to this user. Raises AskfirstError if a channel
    cannot be loaded.
    """
    for name in dict.fromkeys([*SECRETS, *_secrets_of(names())]):
        if (value := os.environ.pop(name, None)) is not None:
            _hidden[name] = value.strip()


def load_env_file(path: Path) -> None:
    """Load the variables of a ``.env`` into the environment. Raises MissingSetting for a malformed line."""
    try:
        if path.is_file():
            _refuse_broken_lines(path)
        load_dotenv(path, interpolate=False)
    except (OSError, ValueError) as error:
        raise MissingSetting(str(path), "it cannot be read: write it in UTF-8, as your own") from error


def _refuse_broken_lines(path: Path) -> None:
    with path.open(encoding="utf-8") as file:
        for binding in parse_stream(file):
            if binding.error or (binding.key is not None and binding.value is None):
                written = binding.original.string
                blank = written[: len(written) - len(written.lstrip())].count("\n")
                raise MissingSetting(
                    f"{path}, line {binding.original.line + blank}",
                    "it is not NAME=value: write it so, close its quotes, or begin the line with #",
                )
