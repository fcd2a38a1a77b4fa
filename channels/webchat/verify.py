"""Verification of requests: host, origin and session cookie of the chat page.

The checks follow the OWASP cheat sheet on cross-site request forgery: a signed SameSite=Strict cookie, the Origin of
every state-changing request, and Fetch Metadata if sent by the browser. The list of hosts stops DNS rebinding, in which
a foreign page makes its own host name point at this machine.

A page shown in a frame of another site has a cookie of its own. The browser keeps this cookie apart for each such site
(https://developer.mozilla.org/docs/Web/Privacy/Guides/Privacy_sandbox/Partitioned_cookies). Requests of a framed page
bear the header USER_HEADER, also without a token.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import urlsplit

from channels.channel import Forged, Stale, WebhookRequest
from channels.events import Address, Person

COOKIE = "askfirst_chat"
"""The cookie's name over plain http, on this machine."""
SECURE_COOKIE = f"__Host-{COOKIE}"
"""The cookie's name over https. A browser accepts a cookie with this prefix from this host alone, never from a sibling
domain (https://developer.mozilla.org/docs/Web/HTTP/Reference/Headers/Set-Cookie#cookie_prefixes)."""
SESSION_SECONDS = 30 * 86400
"""The lifetime of a session from the beginning. No visit prolongs the session."""
USER_HEADER: Final = "x-askfirst-user"
"""The header with the token of the embedding site, for the author's `chat_user`. Empty without a token."""
SITE: Final = "site"
"""The account of logged-in people. Anonymous visitors have the account ``local``."""

_EMBEDDED = "askfirst_embedded"
_VALUE = re.compile(r"([A-Za-z0-9_-]{22})\.([0-9]{1,12})(?:\.([A-Za-z0-9_-]{2,172}))?\.([A-Za-z0-9_-]{43})")


@dataclass(frozen=True, slots=True)
class Session:
    """One browser's session: of an anonymous visitor, or of a logged-in person."""

    session_id: str
    """128 random bits, as 22 characters of base64url."""
    begun: datetime
    cookie: str
    """The cookie's value."""
    user_id: str | None = None
    """The id of the logged-in person. None for an anonymous visitor."""

    @property
    def person(self) -> Person:
        """The person of the session, without a name and a language."""
        if self.user_id is None:
            return Person(channel="webchat", account="local", user_id=self.session_id)
        return Person(channel="webchat", account=SITE, user_id=self.user_id)

    @property
    def holder(self) -> str:
        """The holder of links to files. A session id has no colon, so no person's id reads as a session."""
        return self.session_id if self.user_id is None else f"{SITE}:{self.user_id}"

    def address(self, chat: str | None = None) -> Address:
        """Return the address of a chat of the person. None: the first chat, where the bot also writes on its own."""
        person = self.person
        return Address(channel=person.channel, account=person.account, place=person.user_id, thread=chat)


class SessionCookies:
    """Factory and verifier of cookies: session, Unix second of the beginning, logged-in person, and an HMAC-SHA256."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Derive the keys. The first key signs, and all keys verify."""
        self._keys = [hmac.digest(key, b"askfirst web chat session", hashlib.sha256) for key in keys]

    def begin(self, now: datetime, random: Callable[[int], bytes], user_id: str | None = None) -> Session:
        """Return a new session. `random` returns a number of random bytes."""
        return self.sign(_base64(random(16)), now, user_id)

    def sign(self, session_id: str, begun: datetime, user_id: str | None = None) -> Session:
        """Return a session with a cookie signed by the first key."""
        signed = f"{session_id}.{int(begun.timestamp())}"
        if user_id is not None:
            signed += f".{_base64(user_id.encode())}"
        cookie = f"{signed}.{self._mac(self._keys[0], signed)}"
        return Session(session_id, begun.replace(microsecond=0), cookie, user_id)

    def check(self, headers: Mapping[str, str], now: datetime, *, cookie_name: str) -> Session:
        """Return the session proved by the cookie. Raises Forged or Stale."""
        value = _cookie(headers, cookie_name)
        found = _VALUE.fullmatch(value)
        if found is None:
            raise Forged("no session cookie of ours")
        signed, _, mac = value.rpartition(".")
        genuine = [hmac.compare_digest(self._mac(key, signed), mac) for key in self._keys]
        if not any(genuine):
            raise Forged("no session cookie of ours")
        if not -60 <= now.timestamp() - int(found[2]) <= SESSION_SECONDS:
            raise Stale("the session has ended")
        return _read(found)

    @staticmethod
    def _mac(key: bytes, signed: str) -> str:
        return _base64(hmac.digest(key, signed.encode(), hashlib.sha256))


def cookie_name(headers: Mapping[str, str], *, secure: bool, embeds: bool) -> str:
    """Return the name of a request's session cookie. `secure`: over https. `embeds`: other sites may frame the page."""
    return cookie_of(embedded=embeds and USER_HEADER in headers, secure=secure)


def cookie_of(*, embedded: bool, secure: bool) -> str:
    """Return the name of the cookie of a framed page, or of a page of its own."""
    if embedded:
        return f"__Host-{_EMBEDDED}" if secure else _EMBEDDED
    return SECURE_COOKIE if secure else COOKIE


def session_of(headers: Mapping[str, str], *, cookie_name: str) -> Session:
    """Return the session named in the cookie, unverified. The id is empty for a cookie without a session."""
    found = _VALUE.fullmatch(_cookie(headers, cookie_name))
    return _read(found) if found is not None else Session("", datetime.fromtimestamp(0, UTC), "")


def is_secure(request: WebhookRequest) -> bool:
    """Return True if the page is served over https, by the gateway or by a proxy in front of the gateway."""
    return request.url.startswith("https://")


def check_host(headers: Mapping[str, str], hosts: Sequence[str]) -> None:
    """Check that the request was sent to any of these host names, on any port. Raises Forged."""
    if _host_name(headers.get("host", "")) not in hosts:
        raise Forged("sent to a host that is not ours")


def check_page(
    headers: Mapping[str, str],
    *,
    secure: bool,
    content_type: str = "application/json",
    origins: Collection[str] = (),
) -> None:
    """Check that a page of the called host, or of one of these other origins, made the request. Raises Forged.

    Over https the page must come over https too and send this type, which no HTML form of another page can. A page of
    another origin must always send this type.
    """
    origin = headers.get("origin", "")
    scheme, _, netloc = origin.partition("://")
    has_type = headers.get("content-type", "").partition(";")[0].strip() == content_type
    if origin in origins and has_type:
        return
    if secure and not (scheme == "https" and has_type):
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


def _cookie(headers: Mapping[str, str], name: str) -> str:
    """Return the cookie's value. Empty without a cookie, or with several, because another site planted one."""
    pairs = [pair.strip().partition("=") for pair in headers.get("cookie", "").split(";")]
    values = [value for found, _, value in pairs if found == name]
    return values[0].strip() if len(values) == 1 else ""


def _read(found: re.Match[str]) -> Session:
    session_id, begun, user, _ = found.groups()
    user_id = None
    if user is not None:
        with contextlib.suppress(ValueError):  # of a cookie that is not ours
            user_id = base64.urlsafe_b64decode(user + "=" * (-len(user) % 4)).decode()
    return Session(session_id, datetime.fromtimestamp(int(begun), UTC), found[0], user_id)


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
