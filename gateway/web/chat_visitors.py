"""The visitors of the chat page: the session of a request, and the person logged in on the page.

A session belongs to one person for ever. The author's `chat_user` tells who is logged in. Any other answer ends the
session: a cookie of one person never serves another, and the chats of an anonymous visitor never pass to a logged-in
person.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol, TypeAlias, TypeVar

from aiohttp import hdrs, web

from channels import Forged, Stale, WebhookRequest
from channels.webchat import SESSION_SECONDS, Session, WebChatChannel
from channels.webchat.verify import USER_HEADER, check_host, cookie_of, is_secure
from gateway.access.chat_users import ChatUser
from gateway.config.options import WrongOption
from gateway.logs import describe_error
from gateway.store.errors import StoreUnavailable
from gateway.web.server import as_called, headers_of

log = logging.getLogger("askfirst.web")

_T = TypeVar("_T")

ChatUserHook: TypeAlias = Callable[[web.Request], Awaitable[ChatUser | None]]
"""The author's function: who is logged in on the page that made this request. None: an anonymous visitor."""
Proof: TypeAlias = Callable[[WebhookRequest, datetime], object]
"""Check a request of the page. Raises Forged or Stale."""

HOOK_SECONDS: Final = 5.0
"""Time limit of the author's function."""
_AGAIN: Final = {hdrs.RETRY_AFTER: "5", "Refresh": "5"}
_NOT_NOW: Final = "not now: it is tried again"


class Sessions(Protocol):
    """Sessions of the page. Each method raises StoreUnavailable."""

    async def begin(self) -> float:
        """Count a new session. Return 0, else the seconds to wait."""

    async def has_ended(self, session: Session) -> bool:
        """Return True for a session ended by its person or by an operator."""

    async def end(self, session_id: str) -> None:
        """End a session."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """A visitor, proven by the cookie of a request and by the author's function."""

    session: Session
    user: ChatUser | None


class Visitors:
    """The visitors of a page. `on_end` is called with each session ended here."""

    def __init__(
        self,
        channel: WebChatChannel,
        sessions: Sessions,
        hook: ChatUserHook | None,
        *,
        now: Callable[[], datetime],
        random: Callable[[int], bytes],
        public_url: str | None,
        on_end: Callable[[str], None],
    ) -> None:
        self._channel, self._sessions, self._hook = channel, sessions, hook
        self._now, self._random, self._public_url, self._on_end = now, random, public_url, on_end

    @property
    def logs_in(self) -> bool:
        """True if a person may be logged in, and so may log out at any time."""
        return self._hook is not None

    async def opened(self, request: web.Request) -> Visitor:
        """Return the visitor of an opened page, with the session of the cookie or with a new session.

        A session of another person ends. Raises HTTPTooManyRequests and HTTPServiceUnavailable.
        """
        user = await self._logged_in(request)
        session = await self._proven(self._called(request))
        if session is not None and _is_of(session, user):
            # The newest key signs.
            signed = self._channel.cookies.sign(session.session_id, session.begun, session.user_id)
            return Visitor(signed, user)
        if session is not None:
            await self.end(session)
        wait = math.ceil(await self._asked(self._sessions.begin()))
        if wait:
            again = {hdrs.RETRY_AFTER: str(wait), "Refresh": str(wait)}
            raise web.HTTPTooManyRequests(text="too many people open this page now: it is tried again", headers=again)
        user_id = user.user_id if user is not None else None
        return Visitor(self._channel.cookies.begin(self._now(), self._random, user_id), user)

    async def of_post(self, request: web.Request, called: WebhookRequest, proof: Proof) -> Visitor | None:
        """Return the visitor of a POST. None for a request without proof: the author's function is not asked.

        Raises HTTPUnauthorized for an ended session, and HTTPServiceUnavailable.
        """
        try:
            proof(called, self._now())
            session = self._channel.session(called, self._now())
        except (Forged, Stale):
            return None
        if await self._asked(self._sessions.has_ended(session)):
            raise web.HTTPUnauthorized(text="the session has ended: open the chat page again")
        return await self._same(request, session)

    async def of_reader(self, request: web.Request) -> Visitor:
        """Return the visitor of a page that reads. Raises HTTPForbidden, HTTPUnauthorized, HTTPServiceUnavailable."""
        headers = self.from_our_host(request)
        if headers.get("sec-fetch-site", "same-origin") != "same-origin":
            raise web.HTTPForbidden(text="only the chat page may read this")
        session = await self._proven(self._called(request))
        if session is None:
            raise web.HTTPUnauthorized(text="no session: open the chat page again")
        return await self._same(request, session)

    async def holders(self, request: web.Request) -> frozenset[str]:
        """Return the holders of links proven by the cookies of a request: of a page of its own, and of a framed page.

        Pictures and downloads of a framed page bear no header, so the author's function is asked about the page of its
        own alone. Raises HTTPServiceUnavailable.
        """
        called = self._called(request)
        secure = is_secure(called)
        own = await self._proven(called, cookie_of(embedded=False, secure=secure))
        if own is not None and not _is_of(own, await self._logged_in(request)):
            own = None
        framed = await self._proven(called, cookie_of(embedded=True, secure=secure)) if self._channel.origins else None
        return frozenset(each.holder for each in (own, framed) if each is not None)

    async def end(self, session: Session) -> None:
        """End a session for good. Raises HTTPServiceUnavailable."""
        await self._asked(self._sessions.end(session.session_id))
        self._on_end(session.session_id)

    def set_cookie(self, request: web.Request, response: web.Response, session: Session | None) -> None:
        """Set the session's cookie on a response. None: remove the cookie."""
        called = self._called(request)
        embedded = bool(self._channel.origins) and USER_HEADER in called.headers
        lasts = SESSION_SECONDS - int((self._now() - session.begun).total_seconds()) if session is not None else 0
        value = session.cookie if session is not None else ""
        # The standard library knows no partitioned cookies before Python 3.14.
        parts = [f"{self._channel.cookie_name(called)}={value}", f"Max-Age={lasts}", "Path=/", "HttpOnly"]
        parts += ["SameSite=None", "Secure", "Partitioned"] if embedded else ["SameSite=Strict"]
        parts += ["Secure"] if is_secure(called) and not embedded else []
        response.headers.add(hdrs.SET_COOKIE, "; ".join(parts))

    def from_our_host(self, request: web.Request) -> dict[str, str]:
        """Return the headers of a request to one of our host names. Raises HTTPForbidden."""
        headers = headers_of(request)
        try:
            check_host(headers, self._channel.hosts)
        except Forged as error:
            raise web.HTTPForbidden(text="this page is not served under that host name") from error
        return headers

    def _called(self, request: web.Request) -> WebhookRequest:
        return as_called(request, b"", self._public_url, "/chat")

    async def _proven(self, called: WebhookRequest, cookie_name: str = "") -> Session | None:
        """Return the session of the cookie. None without a valid cookie, and for an ended session."""
        name = cookie_name or self._channel.cookie_name(called)
        try:
            session = self._channel.cookies.check(called.headers, self._now(), cookie_name=name)
        except (Forged, Stale):
            return None
        return None if await self._asked(self._sessions.has_ended(session)) else session

    async def _same(self, request: web.Request, session: Session) -> Visitor:
        """Return the visitor of a session. A session of another person than the logged-in one ends.

        Raises HTTPUnauthorized and HTTPServiceUnavailable.
        """
        user = await self._logged_in(request)
        if not _is_of(session, user):
            await self.end(session)
            raise web.HTTPUnauthorized(text="somebody else is logged in now: open the chat page again")
        return Visitor(session, user)

    async def _logged_in(self, request: web.Request) -> ChatUser | None:
        """Ask the author's function who is logged in. Raises HTTPServiceUnavailable if it fails or takes too long."""
        if self._hook is None:
            return None
        try:
            async with asyncio.timeout(HOOK_SECONDS):
                asked = self._hook(request)
                user: object = await asked if inspect.isawaitable(asked) else asked
        except TimeoutError:
            log.error("chat_user took longer than %.0f seconds: the request was not taken", HOOK_SECONDS)
        except Exception as error:  # noqa: BLE001 - the author's code raises what it likes
            why = str(error) if isinstance(error, WrongOption) and error.owner == "ChatUser" else describe_error(error)
            log.error("chat_user failed, and the request was not taken: %s", why)
        else:
            if inspect.isawaitable(asked) and (user is None or isinstance(user, ChatUser)):
                return user
            kind = type(user).__name__
            log.error("chat_user returned %s: write it with async def, and return a ChatUser or None", kind)
        raise web.HTTPServiceUnavailable(text=_NOT_NOW, headers=_AGAIN)

    async def _asked(self, question: Awaitable[_T]) -> _T:
        """Await a question to the store. Raises HTTPServiceUnavailable when the store does not answer."""
        try:
            return await question
        except StoreUnavailable as error:
            raise web.HTTPServiceUnavailable(text=_NOT_NOW, headers=_AGAIN) from error


def _is_of(session: Session, user: ChatUser | None) -> bool:
    return session.user_id == (user.user_id if user is not None else None)
