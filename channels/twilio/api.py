"""Twilio's REST API as we call it: the vendor's library over our session."""

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
    """One account's side of the API."""

    def __init__(self, http: aiohttp.ClientSession, api_url: str, account_sid: str, login: Login) -> None:
        transport = SessionClient(http, api_url, login)
        client = Client(login.user, login.password, account_sid, http_client=transport)
        self._patience = Patience()
        # The client has both, but loads their code only in the middle of the first call.
        self._account = Api(client).v2010.accounts(account_sid)
        self._typing = Messaging(client).v2.typing_indicator

    async def check(self) -> None:
        """Ask for one message, which shows whether the login is good. Raises SendError.

        Most API keys may not ask for the account itself: https://www.twilio.com/docs/iam/api-keys.
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
        """Have a message sent, by way of a messaging service if one is given: its sid. Raises SendError."""
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
_UNREADABLE = (LookupError, ValueError, TwilioException)
"""What the library raises for a success whose body is not what the API documents."""
