"""The client of Twilio's REST API: the vendor's library over the process's HTTP session."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import aiohttp
from twilio.base.exceptions import TwilioException
from twilio.rest import Client
from twilio.rest.api import Api
from twilio.rest.messaging import Messaging

from channels.channel import Ambiguous, RateLimited, Undeliverable
from channels.twilio.errors import Patience
from channels.twilio.transport import Login, SessionClient

__all__ = ["TwilioApi"]

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
        """Check the login by listing one message. Raises SendError.

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
        """Send a message and return its sid. `service`: the messaging service that sends it. Raises SendError."""
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
        """True if Twilio has the message of this form: same numbers, and same text or status. Raises SendError."""
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
        """Show a typing notice under the last message of the number `to`, if there is one. Raises SendError."""
        try:
            last = await self._account.messages.list_async(to=from_, from_=to, limit=1, page_size=1)
            if last:
                await self._typing.create_async(channel="whatsapp", message_id=last[0].sid)
        except _UNREADABLE:
            raise Ambiguous("unreadable_answer") from None

    async def sms_url(self, number: str) -> str:
        """Return the URL that a number of the account calls for a text message, or "". Raises SendError."""
        return str((await self._number(number)).sms_url or "")

    async def set_sms_url(self, number: str, url: str) -> None:
        """Set the URL that a number of the account calls for a text message. Raises SendError."""
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
"""Status -> the statuses before it: https://www.twilio.com/docs/messaging/guides/outbound-message-status-in-status-callbacks."""
_UNREADABLE = (LookupError, ValueError, TwilioException)
"""Errors of the library for a success whose body differs from the documentation of the API."""
