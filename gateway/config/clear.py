"""Servers on other hosts the bot may speak to without TLS: ``ASKFIRST_CLEAR``.

Without TLS, a machine on the way to the server can read and change the passwords, texts and answers. So a server is
refused unless the setting has the server's kind, for a network under the operator's sole control.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from ipaddress import ip_address
from typing import Annotated, Final, Literal, TypeAlias, get_args
from urllib.parse import SplitResult, urlsplit

from pydantic import BeforeValidator

from channels import MissingSetting

Clear: TypeAlias = Literal["redis", "mcp", "models"]

_VARIABLE: Final = "ASKFIRST_CLEAR"


def _split(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


def _check(value: object) -> object:
    kinds = _split(value) if isinstance(value, str) else value
    if not isinstance(kinds, Collection) or not set(kinds) <= set(get_args(Clear)):
        raise ValueError(f"write some of {', '.join(get_args(Clear))}, with commas between, or leave it out")
    return tuple(kinds)


Clears: TypeAlias = Annotated[tuple[Clear, ...], BeforeValidator(_check)]


def is_loopback(url: SplitResult) -> bool:
    """Return True for a URL of this machine."""
    try:
        return url.hostname == "localhost" or ip_address(url.hostname or "").is_loopback
    except ValueError:
        return False


def in_clear(url: str) -> bool:
    """Return True for a URL on another host without TLS. Any machine on the way can read the traffic."""
    try:
        parts = urlsplit(url)
    except ValueError:  # it is refused elsewhere, as no URL
        return False
    return parts.scheme in ("http", "redis") and not is_loopback(parts)


def clear_mend(kind: Clear) -> str:
    """Return the mend for a URL without TLS."""
    tls = "rediss://" if kind == "redis" else "https://"
    return (
        f"it names another host without TLS, so whoever is on the way reads and changes all of it: write {tls}, or "
        f"{_VARIABLE}={kind} if that network is your own"
    )


def refuse_clear(kind: Clear, url: str, named: str) -> None:
    """Raise MissingSetting for a URL without TLS of a kind missing in ASKFIRST_CLEAR. `named`: the URL's setting."""
    if in_clear(url) and kind not in _split(os.environ.get(_VARIABLE, "")):
        raise MissingSetting(named, clear_mend(kind))
