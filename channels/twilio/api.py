"""Twilio's REST API as we call it: the vendor's library over our session."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any, final
from urllib.parse import urlencode

import aiohttp
from aiohttp import hdrs
from twilio.http import AsyncHttpClient
from twilio.http.response import Response
from twilio.rest import Client
from twilio.rest.api import Api
from twilio.rest.messaging import Messaging
from yarl import URL

from channels.bounded import read_bounded
from channels.channel import Ambiguous, RateLimited, Unavailable, Undeliverable
from channels.twilio.errors import Patience, refusal

__all__ = ["API_URL", "TwilioApi", "at", "password"]

API_URL = "https://api.twilio.com"

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 30.0
_LONGEST_ANSWER = 2**20
_LOOKED_AT = 20

_log = logging.getLogger(__name__)


@final
class _SessionClient(AsyncHttpClient):  # type: ignore[misc]  # the library has no types
    """One aiohttp session as the library's transport.

    It makes each call once: the library's own transport knows no time limit, and its retries send a message twice. It
    writes no log either: the library's has numbers and addresses in it.
    """

    def __init__(self, http: aiohttp.ClientSession, api_url: str) -> None:
        super().__init__(_log, is_async=True)
        self._http, self._api_url = http, api_url

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
        """One HTTP call. Raises SendError for everything but a success."""
        try:
            async with self._http.request(
                method,
                at(self._api_url, uri),
                params=params,
                data=urlencode(data, doseq=True).encode() if data else None,
                headers={**(headers or {}), **(password(*auth) if auth else {})},
                timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS, connect=_CONNECT_SECONDS),
                allow_redirects=False,
            ) as response:
                payload = await read_bounded(response, _LONGEST_ANSWER)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise Unavailable("no_connection") from None
        except (aiohttp.ClientError, OSError):
            raise Ambiguous("no_answer") from None
        if payload is None:
            raise Ambiguous("answer_too_large")
        text = payload.decode("utf-8", "replace")
        if not 200 <= response.status < 300:
            raise refusal(response.status, response.headers, text)
        return Response(response.status, text, response.headers)


class TwilioApi:
    """One account's side of the API."""

    def __init__(self, http: aiohttp.ClientSession, api_url: str, account_sid: str, auth_token: str) -> None:
        client = Client(account_sid, auth_token, http_client=_SessionClient(http, api_url))
        self._patience = Patience()
        # The client has both, but loads their code only in the middle of the first call.
        self._api = Api(client).v2010
        self._account = self._api.accounts(account_sid)
        self._messages = f"/Accounts/{account_sid}/Messages.json"
        self._typing = Messaging(client).v2.typing_indicator

    async def check(self) -> None:
        """Ask for the account, which shows whether the token is good. Raises SendError."""
        try:
            await self._account.fetch_async()
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
    ) -> str:
        """Have a message sent: its sid. Raises SendError."""
        message = {"To": to, "From": from_, "Body": body, "MediaUrl": media_url, "StatusCallback": report_url}
        try:
            # Without the library's object of a message, for which it reads three dates.
            sid = str((await self._api.create_async("POST", self._messages, data=message))["sid"])
        except RateLimited as limited:
            raise self._patience.longer(limited) from None
        except _UNREADABLE:
            raise Ambiguous("unreadable_answer") from None
        self._patience.over()
        return sid

    async def find(self, *, to: str, from_: str, body: str, since: datetime) -> str | None:
        """The newest of the last messages with this text that were taken since then: its sid. Raises SendError."""
        try:
            last = await self._account.messages.list_async(to=to, from_=from_, limit=_LOOKED_AT, page_size=_LOOKED_AT)
            found = [sent.sid for sent in last if sent.body == body and sent.date_created >= since]
        except _UNREADABLE:
            raise Ambiguous("unreadable_answer") from None
        return str(found[0]) if found else None

    async def was_sent(self, form: Mapping[str, str]) -> bool:
        """Return whether Twilio has a message of these ends, with this text or at this stage. Raises SendError."""
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
        """Show whoever wrote last that an answer is being written; it goes under their message. Raises SendError."""
        try:
            last = await self._account.messages.list_async(to=from_, from_=to, limit=1, page_size=1)
            if last:
                await self._typing.create_async(channel="whatsapp", message_id=last[0].sid)
        except _UNREADABLE:
            raise Ambiguous("unreadable_answer") from None

    async def sms_url(self, number: str) -> str:
        """What one of our numbers calls when a text message comes; empty: nothing. Raises SendError."""
        return str((await self._number(number)).sms_url or "")

    async def set_sms_url(self, number: str, url: str) -> None:
        """Have it call this from now on. Raises SendError."""
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
"""Status -> those that a message had before: https://www.twilio.com/docs/messaging/guides/outbound-message-status-in-status-callbacks."""
_UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""What the library raises for a success whose body is not what the API documents."""


def at(api_url: str, url: str) -> URL:
    """Where an URL of Twilio's really is: `api_url` stands for all of its hosts."""
    asked = URL(url, encoded=True)
    if api_url == API_URL or not (asked.host or "").endswith(".twilio.com"):
        return asked
    return URL(api_url + asked.raw_path_qs, encoded=True)


def password(account_sid: str, auth_token: str) -> dict[str, str]:
    """The header by which the API knows us."""
    return {hdrs.AUTHORIZATION: aiohttp.encode_basic_auth(account_sid, auth_token)}
