"""Verification of requests: host, origin and session cookie of the chat page.

The checks follow the OWASP cheat sheet on cross-site request forgery: a signed SameSite=Strict cookie, the Origin of
every state-changing request, and Fetch Metadata if sent by the browser. The list of hosts stops DNS rebinding, in which
a foreign page makes its own host name point at this machine.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from channels.channel import Forged, Stale, WebhookRequest

COOKIE = "askfirst_chat"
"""The cookie's name over plain http, on this machine."""
SECURE_COOKIE = f"__Host-{COOKIE}"
"""The cookie's name over https. A browser accepts a cookie with this prefix from this host alone, never from a sibling
domain (https://developer.mozilla.org/docs/Web/HTTP/Reference/Headers/Set-Cookie#cookie_prefixes)."""
SESSION_SECONDS = 30 * 86400
"""The lifetime of a session from the beginning. No visit prolongs the session."""

_VALUE = re.compile(r"([A-Za-z0-9_-]{22})\.([0-9]{1,12})\.([A-Za-z0-9_-]{43})")
_COOKIES = {
    secure: re.compile(rf"(?:^|;)\s*{name}=([^;]*)") for secure, name in ((False, COOKIE), (True, SECURE_COOKIE))
}


@dataclass(frozen=True, slots=True)
class Session:
    """One browser's conversation."""

    session_id: str
    """128 random bits, as 22 characters of base64url."""
    begun: datetime
    cookie: str
    """The cookie's value."""


class SessionCookies:
    """Factory and verifier of cookies: a session, the Unix second of the beginning, and an HMAC-SHA256 over both."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Derive the keys. The first key signs, and all keys verify."""
        self._keys = [hmac.digest(key, b"askfirst web chat session", hashlib.sha256) for key in keys]

    def begin(self, now: datetime, random: Callable[[int], bytes]) -> Session:
        """Return a new session. `random` returns a number of random bytes."""
        return self.sign(_base64(random(16)), now)

    def sign(self, session_id: str, begun: datetime) -> Session:
        """Return a session with a cookie signed by the first key."""
        signed = f"{session_id}.{int(begun.timestamp())}"
        return Session(session_id, begun.replace(microsecond=0), f"{signed}.{self._mac(self._keys[0], signed)}")

    def check(self, headers: Mapping[str, str], now: datetime, *, secure: bool) -> Session:
        """Return the session proved by the cookie. `secure`: the request came over https. Raises Forged or Stale."""
        found = _VALUE.fullmatch(_cookie(headers, secure))
        if found is None:
            raise Forged("no session cookie of ours")
        session_id, begun, mac = found.groups()
        signed = f"{session_id}.{begun}"
        genuine = [hmac.compare_digest(self._mac(key, signed), mac) for key in self._keys]
        if not any(genuine):
            raise Forged("no session cookie of ours")
        if not -60 <= now.timestamp() - int(begun) <= SESSION_SECONDS:
            raise Stale("the session has ended")
        return Session(session_id, datetime.fromtimestamp(int(begun), UTC), found[0])

    @staticmethod
    def _mac(key: bytes, signed: str) -> str:
        return _base64(hmac.digest(key, signed.encode(), hashlib.sha256))


def session_of(headers: Mapping[str, str], *, secure: bool) -> str:
    """Return the session named in the cookie, unverified. Empty for a cookie without a session."""
    return _cookie(headers, secure).partition(".")[0]


def is_secure(request: WebhookRequest) -> bool:
    """Return True if the page is served over https, by the gateway or by a proxy in front of the gateway."""
    return request.url.startswith("https://")


def check_host(headers: Mapping[str, str], hosts: Sequence[str]) -> None:
    """Check that the request was sent to any of these host names, on any port. Raises Forged."""
    if _host_name(headers.get("host", "")) not in hosts:
        raise Forged("sent to a host that is not ours")


def check_page(headers: Mapping[str, str], *, secure: bool, content_type: str = "application/json") -> None:
    """Check that a page of the called host made the request. Raises Forged.

    Over https the page must come over https too and send this type, which no HTML form of another page can.
    """
    scheme, _, netloc = headers.get("origin", "").partition("://")
    if secure and (scheme != "https" or headers.get("content-type", "").partition(";")[0].strip() != content_type):
        raise Forged("not made by a page of ours")
    if scheme not in ("http", "https") or netloc.lower() != headers.get("host", "").lower():
        raise Forged("not made by a page of ours")
    if headers.get("sec-fetch-site", "same-origin") != "same-origin":
        raise Forged("not made by a page of ours")


def _host_name(netloc: str) -> str | None:
    if "@" in netloc:  # valid in a URL, but not in a Host header (RFC 9110, 7.2)
        return None
    try:
        return urlsplit(f"//{netloc}").hostname
    except ValueError:
        return None


def _cookie(headers: Mapping[str, str], secure: bool) -> str:
    """Return the cookie's value. Empty without a cookie, or with several, because another site planted one."""
    values = _COOKIES[secure].findall(headers.get("cookie", ""))
    return values[0].strip() if len(values) == 1 else ""


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
