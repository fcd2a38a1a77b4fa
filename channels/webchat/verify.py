"""Who is speaking, and that it is our own page: host, origin and session cookie.

The checks follow the OWASP cheat sheet on cross-site request forgery: a signed SameSite=Strict cookie, the Origin of
every request that changes something, and Fetch Metadata where the browser sends it. The list of hosts stops DNS
rebinding, where a foreign page makes its own name point at this machine.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from channels.channel import Forged, Stale, WebhookRequest

__all__ = [
    "COOKIE",
    "SECURE_COOKIE",
    "SESSION_SECONDS",
    "Session",
    "SessionCookies",
    "check_host",
    "check_page",
    "is_secure",
    "session_of",
]

COOKIE = "askfirst_chat"
"""The cookie's name on plain http, on this machine."""
SECURE_COOKIE = f"__Host-{COOKIE}"
"""Its name on https. No sibling domain can plant a cookie of such a name: a browser takes it from this very host alone
(https://developer.mozilla.org/docs/Web/HTTP/Reference/Headers/Set-Cookie#cookie_prefixes)."""
SESSION_SECONDS = 30 * 86400
"""From the last time the page was opened."""

_VALUE = re.compile(r"([A-Za-z0-9_-]{22})\.([0-9]{1,12})\.([A-Za-z0-9_-]{43})")
_COOKIES = {
    secure: re.compile(rf"(?:^|;)\s*{name}=([^;]*)") for secure, name in ((False, COOKIE), (True, SECURE_COOKIE))
}


@dataclass(frozen=True, slots=True)
class Session:
    """One browser's conversation."""

    session_id: str
    """128 random bits: 22 characters of base64url."""
    cookie: str
    """The cookie's value."""


class SessionCookies:
    """Makes and checks the cookie's value: session, unix seconds of issue, and an HMAC-SHA256 over both."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """The first key signs, all of them verify."""
        self._keys = [hmac.digest(key, b"askfirst web chat session", hashlib.sha256) for key in keys]

    def begin(self, now: datetime, random: Callable[[int], bytes]) -> Session:
        """A new session. `random` gives so many random bytes."""
        return self.renew(_base64(random(16)), now)

    def renew(self, session_id: str, now: datetime) -> Session:
        """The same session from now on."""
        signed = f"{session_id}.{int(now.timestamp())}"
        return Session(session_id, f"{signed}.{self._mac(self._keys[0], signed)}")

    def check(self, headers: Mapping[str, str], now: datetime, *, secure: bool) -> str:
        """The session that the request's cookie proves; `secure`: it came over https. Raises Forged or Stale."""
        found = _VALUE.fullmatch(_cookie(headers, secure))
        if found is None:
            raise Forged("no session cookie of ours")
        session_id, issued, mac = found.groups()
        signed = f"{session_id}.{issued}"
        genuine = [hmac.compare_digest(self._mac(key, signed), mac) for key in self._keys]
        if not any(genuine):
            raise Forged("no session cookie of ours")
        if not -60 <= now.timestamp() - int(issued) <= SESSION_SECONDS:
            raise Stale("the session has ended")
        return session_id

    @staticmethod
    def _mac(key: bytes, signed: str) -> str:
        return _base64(hmac.digest(key, signed.encode(), hashlib.sha256))


def session_of(headers: Mapping[str, str], *, secure: bool) -> str:
    """The session that the cookie names, without any proof; empty when it names none."""
    return _cookie(headers, secure).partition(".")[0]


def is_secure(request: WebhookRequest) -> bool:
    """Return whether the page is served over https, be it by a proxy in front."""
    return request.url.startswith("https://")


def check_host(headers: Mapping[str, str], hosts: Sequence[str]) -> None:
    """The request was sent to one of these host names, whatever the port. Raises Forged."""
    if _host_name(headers.get("host", "")) not in hosts:
        raise Forged("sent to a host that is not ours")


def check_page(headers: Mapping[str, str], *, secure: bool) -> None:
    """The request was made by a page of the host that it was sent to. Raises Forged.

    Over https that page came over https too, and it sends JSON, which no form of another page can.
    """
    scheme, _, netloc = headers.get("origin", "").partition("://")
    if secure and (
        scheme != "https" or headers.get("content-type", "").partition(";")[0].strip() != "application/json"
    ):
        raise Forged("not made by a page of ours")
    if scheme not in ("http", "https") or netloc.lower() != headers.get("host", "").lower():
        raise Forged("not made by a page of ours")
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise Forged("not made by a page of ours")


def _host_name(netloc: str) -> str | None:
    if "@" in netloc:  # of a URL, not of a Host header (RFC 9110, 7.2)
        return None
    try:
        return urlsplit(f"//{netloc}").hostname
    except ValueError:
        return None


def _cookie(headers: Mapping[str, str], secure: bool) -> str:
    """The cookie's value; empty when there is none, or more than one: somebody else planted one of them."""
    values = _COOKIES[secure].findall(headers.get("cookie", ""))
    return values[0].strip() if len(values) == 1 else ""


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
