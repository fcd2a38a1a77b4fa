"""The client of Twilio's REST API: the vendor's library over the process's HTTP session."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, final
from urllib.parse import urlencode

import aiohttp
from aiohttp import hdrs
from twilio.base.exceptions import TwilioException
from twilio.http import AsyncHttpClient
from twilio.http.response import Response
from twilio.rest import Client
from twilio.rest.api import Api
from twilio.rest.messaging import Messaging
from yarl import URL

from channels.channel import Ambiguous, MissingSetting, OptedOut, RateLimited, SendError, Unavailable, Undeliverable
from channels.transfer import read_bounded
from channels.twilio.parse import OPTED_OUT

_LOOKED_AT = 20


class TwilioApi:
    """The REST API for one account."""

    def __init__(self, http: aiohttp.ClientSession, api_url: str, account_sid: str, login: Login) -> None:
        transport = SessionClient(http, api_url, login)
        client = Client(login.user, login.password, account_sid, http_client=transport)
        self._patience = Patience()
        # `Client` has both as attributes, but would import their code only during the first call.
        self._account = Api(client).v2010.accounts(account_sid)
        self._typing = Messaging(client).v2.typing_indicator

    async def check(self) -> None:
        """Check the login with a list of one message. Raises SendError.

        Most API keys may not read the account itself: https://www.twilio.com/docs/iam/api-keys.
        """
        try:
            await self._account.messages.list_async(limit=1, page_size=1)
        except _UNREADABLE:
            raise Ambiguous("unreadable_answer") from None

    async def send(
        self,
        *,
        to: str,
        from_: str,
        body: str | None = None,
        media_url: str | None = None,
        report_url: str | None = None,
        service: str | None = None,
    ) -> str:
        """Send a message and return its sid. `service`: the messaging service for the sending. Raises SendError."""
        given = {
            "body": body,
            "media_url": None if media_url is None else [media_url],
            "status_callback": report_url,
            "messaging_service_sid": service,
        }
        try:
            sent = await self._account.messages.create_async(
                to=to, from_=from_, **{name: value for name, value in given.items() if value is not None}
            )
        except RateLimited as limited:
            raise self._patience.longer(limited) from None
        except _UNREADABLE:
            raise Ambiguous("unreadable_answer") from None
        if not sent.sid:
            raise Ambiguous("unreadable_answer")
        self._patience.over()
        return str(sent.sid)

    async def find(self, *, to: str, from_: str, body: str, since: datetime) -> str | None:
        """Return the sid of the newest message with this text, created at `since` or later, or None.

        Only the last 20 messages between the two numbers are searched. Raises SendError.
        """
        try:
            last = await self._account.messages.list_async(to=to, from_=from_, limit=_LOOKED_AT, page_size=_LOOKED_AT)
            found = [sent.sid for sent in last if sent.body == body and sent.date_created >= since]
        except _UNREADABLE:
            raise Ambiguous("unreadable_answer") from None
        return str(found[0]) if found else None

    async def was_sent(self, form: Mapping[str, str]) -> bool:
        """Return True if Twilio has this form's message: same numbers, and same text or status. Raises SendError."""
        try:
            sent = await self._account.messages(form.get("MessageSid", "")).fetch_async()
            if (sent.from_, sent.to) != (form.get("From", ""), form.get("To", "")):
                return False
            status = form.get("MessageStatus", "received")
            if status == "received":
                return str(sent.body or "") == form.get("Body", "")
            return sent.status == status or status in _EARLIER.get(str(sent.status), ())
        except _UNREADABLE:
            raise Ambiguous("unreadable_answer") from None

    async def show_typing(self, *, to: str, from_: str) -> None:
        """Show a typing notice under the last message of the number `to`, if any. Raises SendError."""
        try:
            last = await self._account.messages.list_async(to=from_, from_=to, limit=1, page_size=1)
            if last:
                await self._typing.create_async(channel="whatsapp", message_id=last[0].sid)
        except _UNREADABLE:
            raise Ambiguous("unreadable_answer") from None

    async def sms_url(self, number: str) -> str:
        """Return the URL called by a number of the account for a text message, or "". Raises SendError."""
        return str((await self._number(number)).sms_url or "")

    async def set_sms_url(self, number: str, url: str) -> None:
        """Set the URL that Twilio calls when a text message reaches this number. Raises SendError."""
        await (await self._number(number)).update_async(sms_url=url, sms_method="POST")

    async def _number(self, number: str) -> Any:
        try:
            found = await self._account.incoming_phone_numbers.list_async(phone_number=number, limit=1)
        except _UNREADABLE:
            raise Ambiguous("unreadable_answer") from None
        if not found:
            raise Undeliverable(f"{number} is no number of this account")
        return found[0]


_EARLIER = {
    "read": ("delivered", "sent", "sending", "queued"),
    "delivered": ("sent", "sending", "queued"),
    "undelivered": ("sent", "sending", "queued"),
    "sent": ("sending", "queued"),
}
"""Status -> the earlier statuses:
https://www.twilio.com/docs/messaging/guides/outbound-message-status-in-status-callbacks."""
_UNREADABLE = (LookupError, ValueError, TwilioException)
"""Errors of the library for a success with a body that differs from the documentation of the API."""


API_URL = "https://api.twilio.com"

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_LONGEST_ANSWER = 2**20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Login:
    """The credentials of the API: the account's sid and token, or the sid and secret of an API key."""

    user: str
    password: str
    setting: str
    """The setting with the password."""

    @property
    def header(self) -> dict[str, str]:
        return {hdrs.AUTHORIZATION: aiohttp.encode_basic_auth(self.user, self.password)}


@final
class SessionClient(AsyncHttpClient):  # type: ignore[misc]  # the library has no types
    """Transport of the library over an aiohttp session.

    Makes each call once and with a time limit. The library's own transport has no time limit, and its retries send a
    message twice. Logs no requests, because the library's log lines hold numbers and addresses.
    """

    def __init__(
        self, http: aiohttp.ClientSession, api_url: str, login: Login, *, longest_answer: int = _LONGEST_ANSWER
    ) -> None:
        """`longest_answer`: in bytes."""
        super().__init__(_log, is_async=True)
        self._longest_answer = longest_answer
        self._http, self._api_url, self._login = http, api_url, login

    async def request(
        self,
        method: str,
        uri: str,
        params: Mapping[str, Any] | None = None,
        data: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        auth: tuple[str, str] | None = None,
        timeout: float | None = None,
        allow_redirects: bool = False,
    ) -> Response:
        """Make one HTTP call. Raises SendError for any answer but a success."""
        try:
            async with self._http.request(
                method,
                at(self._api_url, uri),
                params=params,
                data=urlencode(data, doseq=True).encode() if data else None,
                headers={**(headers or {}), **self._login.header},
                timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
                allow_redirects=False,
            ) as response:
                payload = await read_bounded(response, self._longest_answer)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise Unavailable("no_connection") from None
        except (aiohttp.ClientError, OSError):
            raise Ambiguous("no_answer") from None
        if payload is None:
            raise Ambiguous("answer_too_large")
        text = payload.decode("utf-8", "replace")
        if not 200 <= response.status < 300:
            raise refusal(response.status, response.headers, text, self._login.setting)
        if not _is_documented(text):
            raise Ambiguous("unreadable_answer")
        return Response(response.status, text, response.headers)


def at(api_url: str, url: str) -> URL:
    """Return the URL to call for a URL of Twilio: a configured `api_url` replaces all of Twilio's hosts."""
    asked = URL(url, encoded=True)
    if api_url == API_URL or not (asked.host or "").endswith(".twilio.com"):
        return asked
    return URL(api_url + asked.raw_path_qs, encoded=True)


def _is_documented(text: str) -> bool:
    """Return True if an answer is an object with lists of objects and with dates as text, as all answers of Twilio are.

    The library depends on this shape: https://www.twilio.com/docs/usage/twilios-response.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(answer, dict):
        return False
    listed = [one for value in answer.values() if isinstance(value, list) for one in value]
    return all(isinstance(one, dict) for one in listed) and all(
        isinstance(value, str | None)
        for one in (answer, *listed)
        for name, value in one.items()
        if name.startswith("date_")
    )


LARGEST_DOWNLOAD = 16 * 2**20
"""WhatsApp's limit in bytes. https://www.twilio.com/docs/whatsapp/guidance-whatsapp-media-messages"""
_SECONDS = 120.0
_MOST_REDIRECTS = 3
_REDIRECTED_TO = (".twilio.com", ".twiliocdn.com", ".amazonaws.com")
"""The hosts to which the API may redirect. Redirect URLs are valid for some hours and need no password."""


async def download(
    http: aiohttp.ClientSession, api_url: str, account: Mapping[str, str], url: str
) -> AsyncIterator[bytes]:
    """Yield the bytes of a file.

    Raises Undeliverable past 16 MiB, for a missing file, and for a URL on another host. Raises Unavailable for any
    other failure. Only the first call, to the API, carries the account's header; redirects need none.
    """
    api = URL(api_url)
    try:
        place = at(api_url, url)
    except ValueError:
        raise Undeliverable("not_a_file") from None
    if not _same_host(place, api):
        raise Undeliverable("not_a_file")
    for hop in range(1 + _MOST_REDIRECTS):
        if not _allowed(place, api):
            raise Undeliverable("file_elsewhere")
        try:
            async with http.get(
                place,
                headers={} if hop else account,
                timeout=aiohttp.ClientTimeout(total=_SECONDS, connect=10),
                allow_redirects=False,
            ) as response:
                if 300 <= response.status < 400 and (location := response.headers.get("Location")):
                    place = at(api_url, str(place.join(URL(location, encoded=True))))
                    continue
                if response.status in (400, 401, 403, 404, 410):
                    raise Undeliverable("file_unknown")
                if response.status != 200:
                    raise Unavailable(f"http_{response.status}")
                left = LARGEST_DOWNLOAD
                async for piece in response.content.iter_any():
                    left -= len(piece)
                    if left < 0:
                        raise Undeliverable("file_too_large")
                    yield piece
                return
        except (aiohttp.ClientError, OSError, ValueError):
            raise Unavailable("no_connection") from None
    raise Undeliverable("file_elsewhere")


def _same_host(place: URL, api: URL) -> bool:
    return place.absolute and bool(place.host) and place.origin() == api.origin()


def _allowed(place: URL, api: URL) -> bool:
    """Return True for an allowed URL. A URL in a message must not reach a machine of the operator's own network."""
    if _same_host(place, api):
        return True
    return place.scheme == "https" and place.port == 443 and (place.host or "").endswith(_REDIRECTED_TO)


_WAIT_SECONDS = 2.0
"""The wait after the first rate limit without a time."""
_LONGEST_WAIT_SECONDS = 60.0
"""The wait after many rate limits."""

# https://www.twilio.com/docs/api/errors/{code}. Any other code of an answered 4xx is kept, and is permanent:
# 21211 and 21614 no such number, 21408 no permission for the region, 21617 too long, 63016 outside of WhatsApp's 24
# hours, 63024 not on WhatsApp, 30003 to 30008 not reachable, blocked, unknown, a landline, filtered, no reason known.
_RATE_CODES = frozenset({"20429", "14107", "63018"})
_QUEUE_FULL = frozenset({"21611", "30001"})
_UNAUTHORIZED = "20003"


def refusal(status: int, headers: Mapping[str, str], payload: str, setting: str = "TWILIO_AUTH_TOKEN") -> SendError:
    """Return the SendError for an answer other than a success, with Twilio's code and none of Twilio's text.

    `setting`: the setting with the password of the login.

    RateLimited has a wait of 0 seconds when the answer names no time, the usual case: `Patience` supplies a wait.
    """
    code, is_twilios = _read(payload)
    if status == 429 or code in _RATE_CODES:
        return RateLimited(code or "429", retry_after_seconds=_wait(headers.get("Retry-After", "")))
    if status >= 500 or status < 400 or code in _QUEUE_FULL:
        return Unavailable(code or f"http_{status}")
    if not is_twilios and status != 413:
        return Unavailable(f"http_{status}")
    if status == 401 or code == _UNAUTHORIZED:
        return Unavailable("unauthorized", mend=bad_token("unauthorized", setting))
    if code == OPTED_OUT:
        return OptedOut(code)
    return Undeliverable(code or f"http_{status}")


def bad_token(code: str, setting: str = "TWILIO_AUTH_TOKEN") -> MissingSetting:
    """Return the error with the mend of a password that Twilio refuses with this code."""
    both = " with TWILIO_API_KEY" if setting == "TWILIO_API_SECRET" else ""
    mend = f"Twilio does not take it{both} for this account ({code}): copy it again from the console"
    return MissingSetting(setting, mend)


def _read(payload: str) -> tuple[str | None, bool]:
    """Return the code of a refusal, and True for a refusal by Twilio itself, not by a proxy or a firewall.

    https://www.twilio.com/docs/usage/twilios-response: not each refusal has a code.
    """
    try:
        answer = json.loads(payload)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return None, False
    if isinstance(code := answer.get("code"), int):
        return str(code), True
    return None, isinstance(answer.get("status"), int) and isinstance(answer.get("message"), str)


def _wait(header: str) -> float:
    return float(header) if header.isascii() and header.isdecimal() and len(header) < 6 else 0.0


class Patience:
    """Exponential backoff of one account under rate limits: 2 to 60 seconds, reset when a message is accepted.

    As requested by https://www.twilio.com/docs/api/errors/20429.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wait = _WAIT_SECONDS / 2
        self._until = 0.0

    def longer(self, limited: RateLimited) -> RateLimited:
        """Return the error with a wait. Rate limits of concurrent calls count as a single rate limit."""
        if limited.retry_after_seconds:
            return limited
        now = self._clock()
        if now >= self._until:
            self._wait = min(2 * self._wait, _LONGEST_WAIT_SECONDS)
            self._until = now + self._wait
        return RateLimited(limited.code, retry_after_seconds=self._wait)

    def over(self) -> None:
        self._wait, self._until = _WAIT_SECONDS / 2, 0.0
