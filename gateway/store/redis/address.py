"""The address of the server, as in ASKFIRST_STORE: mistakes that redis-py would accept silently are refused here.

redis-py uses database 0 for a number that it cannot read, fails on an unknown option, and lets an option of the address
override the options of our connections.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from redis.exceptions import ConnectionError as NotThere
from redis.exceptions import InvalidResponse
from redis.exceptions import TimeoutError as NoAnswer

from gateway.store.errors import StoreRefused, StoreUnavailable

__all__ = ["at_first", "check"]

log = logging.getLogger("askfirst.store")

_TLS: Final[Mapping[str, str]] = {
    "ssl_ca_certs": ".+",
    "ssl_ca_path": ".+",
    "ssl_certfile": ".+",
    "ssl_keyfile": ".+",
    "ssl_password": ".+",
    "ssl_cert_reqs": "none|optional|required",
    "ssl_check_hostname": "true|false",
}
"""Option -> pattern of its values."""


def check(url: str) -> None:
    """Check the address. Raises StoreRefused, without quoting it: it may hold the password.

    Warns if the server's certificate is not verified.
    """
    try:
        parts = urlsplit(url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        right = parts.port != 0 and re.fullmatch("(/[0-9]{0,9})?", parts.path) is not None and not parts.fragment
        if not right:
            raise ValueError
    except ValueError:  # its text may hold the password
        raise StoreRefused(
            "ASKFIRST_STORE is no address: write redis://[user:password@]host:6379[/number], "
            "and in a password %2F for /, %3F for ?, %23 for #, %40 for @ and %25 for %"
        ) from None
    if given and parts.scheme != "rediss":
        raise StoreRefused("ASKFIRST_STORE has options, which are for TLS: write rediss://, or nothing from the ? on")
    options = dict(given)
    if len(options) < len(given) or not all(re.fullmatch(_TLS.get(name, "(?!)"), options[name]) for name in options):
        raise StoreRefused(
            f"ASKFIRST_STORE has an option that is none, or a value that one cannot have: there are {', '.join(_TLS)}"
        )
    if options.get("ssl_cert_reqs") == "none" or options.get("ssl_check_hostname") == "false":
        log.warning(
            "Redis need not prove that it is the one that ASKFIRST_STORE names: whoever is on the way there can read "
            "and change everything. Name its CA with ssl_ca_certs."
        )


def at_first(url: str, error: StoreUnavailable) -> StoreUnavailable:
    """Return the error of the very first call, with advice on an address whose scheme is wrong."""
    cause = error.__cause__
    if urlsplit(url).scheme == "rediss":
        if isinstance(cause, (TimeoutError, NoAnswer)):
            return StoreUnavailable(f"{error}: see that its port takes TLS, or write redis:// in ASKFIRST_STORE")
        if type(cause) is NotThere and _was_there(cause):
            return StoreUnavailable(
                "Redis cannot be used now: it hung up: if it wants to know who calls, name a certificate and its key "
                "in ASKFIRST_STORE (rediss://host:6379?ssl_certfile=...&ssl_keyfile=...)"
            )
    elif isinstance(cause, InvalidResponse) or (type(cause) is NotThere and _was_there(cause)):
        return StoreUnavailable(
            "Redis cannot be used now: it hung up at the first word: if its port takes TLS, write rediss:// in "
            "ASKFIRST_STORE; if not, see whether it is a Redis at all"
        )
    return error


def _was_there(error: Exception) -> bool:
    """Return True if a connection was made, and then broke."""
    below = error.__cause__ or error.__context__
    return not isinstance(below, OSError) or isinstance(below, (ConnectionResetError, BrokenPipeError))
