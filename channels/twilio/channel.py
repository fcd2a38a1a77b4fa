"""The channels of SMS and WhatsApp, over one Twilio account."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal, Self
from urllib.parse import urldefrag, urlencode, urlsplit

import aiohttp

from channels.channel import (
    Ambiguous,
    Capabilities,
    Forged,
    MissingSetting,
    OptedOut,
    Parsed,
    RateLimited,
    SendError,
    Unavailable,
    Undeliverable,
    WebhookRequest,
    WebhookResponse,
)
from channels.events import Address, Attachment, Event, Message, OptOut
from channels.formatting import drop_dear_accents
from channels.keys import keys
from channels.replies import OpenMedia, Part, Receipt, Reply
from channels.twilio.api import API_URL, Login, TwilioApi, bad_token, download
from channels.twilio.parse import KEY, FormReader, spoken
from channels.twilio.payload import ADDRESS_PREFIX, is_for, read_form
from channels.twilio.render import SMS, WHATSAPP, render_sms, render_whatsapp
from channels.twilio.verify import Verifier

_log = logging.getLogger(__name__)

_ACCOUNT_SID = re.compile(r"AC[0-9a-f]{32}")
_API_KEY = re.compile(r"SK[0-9a-f]{32}")
_SERVICE_SID = re.compile(r"MG[0-9a-f]{32}")
_TYPING_SECONDS = 20.0
"""The interval of typing notices. WhatsApp shows a notice for 25 s:
https://www.twilio.com/docs/whatsapp/api/typing-indicators-resource."""
_MOST_TYPING = 10_000
_CLOCKS_APART = timedelta(seconds=60)
_VOUCHES_SECONDS = 5.0
"""The timeout of `vouch`. Twilio waits 15 s for the answer of a webhook."""
_NOT_VOUCHED_FOR = "not vouched for"
"""An entry in `Message.spoiled_by`: the message may be forged and does not count as an answer."""
_RETRIES = "#rc=3&rp=all"
"""The URL fragment that asks Twilio for 3 retries; without the fragment Twilio calls once:
https://www.twilio.com/docs/usage/webhooks/webhooks-connection-overrides."""


class _TwilioChannel:
    """The common part of both channels: all but the form of numbers and the rendering."""

    name: ClassVar[str]
    webhooks: ClassVar[tuple[str, ...]] = ("twilio", "twilio/status")
    capabilities: Capabilities
    _sender_setting: ClassVar[str]
    _sender: ClassVar[re.Pattern[str]]
    _sends_by_service: ClassVar[bool] = False

    def __init__(
        self,
        account_sid: str,
        auth_token: str,
        sender: str,
        *,
        public_url: str = "",
        shared_key: str = "",
        api_key: tuple[str, str] | None = None,
        service: str = "",
        api_url: str = API_URL,
    ) -> None:
        """`sender`: the bot's number on this channel.

        `api_key`: the sid and secret of an API key, used for API calls in place of the token. `service`: the sid of the
        messaging service for text messages; webhooks for the service's other numbers are accepted too. Raises
        ValueError for an empty token.
        """
        self.account = sender
        """The bot's number."""
        self._sid, self._api_url = account_sid, api_url.rstrip("/")
        self._public_url = public_url.rstrip("/")
        self.capabilities = replace(type(self).capabilities, reports=bool(public_url), text_files=bool(public_url))
        self._prefix = ADDRESS_PREFIX[self.name]
        self._verifier = Verifier(
            account_sid,
            auth_token,
            shared_key,
            address=self._prefix + sender,
            setting=self._sender_setting,
            service=service,
        )
        self._login = (
            Login(account_sid, keys(auth_token)[0], "TWILIO_AUTH_TOKEN")
            if api_key is None
            else Login(*api_key, "TWILIO_API_SECRET")
        )
        self._service = service
        self._reader = FormReader(self.name)
        self._http: aiohttp.ClientSession | None = None
        self._api: TwilioApi | None = None

    @classmethod
    def from_settings(cls, settings: Mapping[str, str], *, way: Literal["webhook", "polling"]) -> Self:
        """Read the account's sid and token, the bot's number and, for webhooks, the public URL.

        Raises MissingSetting.
        """
        account_sid = settings.get("TWILIO_ACCOUNT_SID", "")
        if not _ACCOUNT_SID.fullmatch(account_sid):
            raise MissingSetting(
                "TWILIO_ACCOUNT_SID", "set it to the Account SID of Twilio's console: AC and 32 digits"
            )
        token = settings.get("TWILIO_AUTH_TOKEN", "")
        if not keys(token):
            raise MissingSetting("TWILIO_AUTH_TOKEN", "set it to the Auth Token of Twilio's console")
        sender = settings.get(cls._sender_setting, "").strip().removeprefix("whatsapp:")
        if not cls._sender.fullmatch(sender):
            raise MissingSetting(cls._sender_setting, "set it to your number at Twilio, such as +15551234567")
        public_url = settings.get("ASKFIRST_PUBLIC_URL", "")
        if way == "webhook" and not public_url:
            raise MissingSetting("ASKFIRST_PUBLIC_URL", "set it to the URL that Twilio calls: its signature covers it")
        api_url = settings.get("TWILIO_API_URL") or API_URL
        if urlsplit(api_url).scheme not in ("http", "https"):
            raise MissingSetting("TWILIO_API_URL", "begin it with https:// (or leave it out)")
        service = settings.get("TWILIO_MESSAGING_SERVICE_SID", "")
        if service and not _SERVICE_SID.fullmatch(service):
            raise MissingSetting(
                "TWILIO_MESSAGING_SERVICE_SID", "set it to the SID of your messaging service: MG and 32 digits"
            )
        key, secret = settings.get("TWILIO_API_KEY", ""), settings.get("TWILIO_API_SECRET", "")
        if (key or secret) and not _API_KEY.fullmatch(key):
            raise MissingSetting("TWILIO_API_KEY", "set it to the SID of your API key: SK and 32 digits")
        if key and not secret:
            raise MissingSetting("TWILIO_API_SECRET", "set it to the secret of the key in TWILIO_API_KEY")
        return cls(
            account_sid,
            token,
            sender,
            api_key=(key, secret) if key else None,
            public_url=public_url,
            shared_key=settings.get("TWILIO_SHARED_KEY", ""),
            service=service,
            api_url=api_url,
        )

    async def start(self, http: aiohttp.ClientSession) -> None:
        """Check the login. Raises MissingSetting for a login refused by Twilio, else SendError."""
        api = TwilioApi(http, self._api_url, self._sid, self._login)
        try:
            await api.check()
        except Unavailable as away:
            raise away.mend or away from None
        except Undeliverable as refused:
            raise bad_token(refused.code, self._login.setting) from None
        self._http, self._api = http, api

    async def close(self) -> None:
        self._http = self._api = None

    def takes(self, request: WebhookRequest) -> bool:
        """Return True if a request to the shared URL is for this channel."""
        return is_for(self.name, request)

    def verify(self, request: WebhookRequest, now: datetime) -> None:
        """Check the signature of a request. Raises Forged."""
        self._verifier.verify(request)

    def parse(self, request: WebhookRequest) -> Parsed:
        """Return the events of a form. Pure. Raises Malformed for a body other than a form in UTF-8."""
        return self._reader.read(request)

    async def vouch(self, request: WebhookRequest, parsed: Parsed) -> Parsed:
        """Ask Twilio, for at most 5 seconds, whether it sent a doubted form. Raises Forged if Twilio did not.

        Without an answer of Twilio a message is accepted without the power to decide an action, and an opt-out is
        accepted. Any other event raises Unavailable then.
        """
        form = read_form(request)
        try:
            async with asyncio.timeout(_VOUCHES_SECONDS):
                sent = await self._started.was_sent(form)
        except (TimeoutError, RateLimited, Unavailable, Ambiguous) as error:
            return _undecided(parsed, error)
        except Undeliverable:
            sent = False
        if not sent:
            raise Forged(f"twilio: Twilio has not sent this form: {parsed.doubt}")
        return replace(parsed, doubt="")

    def ask_again(self, text: str) -> WebhookResponse:
        """Return TwiML to send this text, because Twilio itself does not repeat a message that was not stored."""
        return spoken(text if self.capabilities.accents else drop_dear_accents(text))

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        """Send one message. Raises SendError. A receipt means acceptance by Twilio; a report follows on the delivery.

        A file refused by Twilio for this number is sent as a link.
        """
        shared = self._numbers(address)
        if self._service and self._sends_by_service:
            shared["service"] = self._service
        if self._public_url:
            status_url = f"{self._public_url}/webhooks/twilio/status?{urlencode({KEY: key})}"
            shared["report_url"] = status_url + _RETRIES
        try:
            sid = await self._started.send(**shared, **_content(part, as_link=part.call == "link"))
        except OptedOut:
            raise
        except Undeliverable:
            if part.call != "media":
                raise
            sid = await self._started.send(**shared, **_content(part, as_link=True))
        return Receipt(message_id=sid)

    async def look_up(self, address: Address, part: Part, *, key: str, since: datetime) -> Receipt | None:
        """Search for the newest message with this text, because Twilio keeps no key.

        Raises SendError, for a file always.
        """
        if part.media is not None:
            raise Undeliverable("file_has_no_text")
        body, since = str(part.arguments["body"]), since - _CLOCKS_APART
        sid = await self._started.find(**self._numbers(address), body=body, since=since)
        return None if sid is None else Receipt(message_id=sid)

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        """Yield the bytes of a file, at most 16 MiB. Raises Undeliverable (too large, gone, no file) or Unavailable."""
        if self._http is None:
            raise Unavailable("not_started")
        async for piece in download(self._http, self._api_url, self._login.header, attachment.ref):
            yield piece

    @property
    def _started(self) -> TwilioApi:
        if self._api is None:
            raise Unavailable("not_started")
        return self._api

    def _numbers(self, address: Address) -> dict[str, str]:
        return {"to": self._prefix + address.place, "from_": self._prefix + address.account}


class SmsChannel(_TwilioChannel):
    """The channel of text messages for one number."""

    name: ClassVar[str] = "sms"
    capabilities: Capabilities = SMS
    _sender_setting: ClassVar[str] = "TWILIO_SMS_FROM"
    _sender: ClassVar[re.Pattern[str]] = re.compile(r"\+[1-9]\d{6,14}|\d{3,8}")
    """A number or a short code. People cannot answer to an alphanumeric name."""
    _sends_by_service: ClassVar[bool] = True

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        """Return the messages of a reply. Pure."""
        return render_sms(address, reply)

    async def registered(self) -> str | None:
        """Return the URL called by the bot's number, or None. Raises SendError."""
        return urldefrag(await self._started.sms_url(self.account)).url or None

    async def register(self, url: str) -> None:
        """Set the URL called by the bot's number, with 3 retries. Raises SendError."""
        await self._started.set_sms_url(self.account, url + _RETRIES)

    async def unregister(self) -> None:
        """Remove the URL called by the bot's number. Raises SendError."""
        await self._started.set_sms_url(self.account, "")


class WhatsAppChannel(_TwilioChannel):
    """The channel of one WhatsApp sender."""

    name: ClassVar[str] = "whatsapp"
    capabilities: Capabilities = WHATSAPP
    _sender_setting: ClassVar[str] = "TWILIO_WHATSAPP_FROM"
    _sender: ClassVar[re.Pattern[str]] = re.compile(r"\+[1-9]\d{6,14}")

    def __init__(
        self,
        account_sid: str,
        auth_token: str,
        sender: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        **options: Any,
    ) -> None:
        super().__init__(account_sid, auth_token, sender, **options)
        self._clock = clock
        self._shown: OrderedDict[str, float] = OrderedDict()

    def render(self, address: Address, reply: Reply) -> Sequence[Part]:
        """Return the messages of a reply. Pure."""
        return render_whatsapp(reply)

    async def send(self, address: Address, part: Part, *, key: str) -> Receipt:
        """Send one message and so end a typing notice. Raises SendError."""
        receipt = await super().send(address, part, key=key)
        self._shown.pop(str(address), None)
        return receipt

    async def typing(self, address: Address) -> None:
        """Show the bot as writing for 25 seconds. Raises no error."""
        now, place = self._clock(), str(address)
        if now - self._shown.get(place, -_TYPING_SECONDS) < _TYPING_SECONDS:
            return
        self._shown[place] = now
        self._shown.move_to_end(place)
        while len(self._shown) > _MOST_TYPING:
            self._shown.popitem(last=False)
        try:
            await self._started.show_typing(**self._numbers(address))
        except SendError as error:
            _log.debug("whatsapp: typing was not shown: %s", error.code)


def _undecided(parsed: Parsed, error: Exception) -> Parsed:
    """Return the request with all messages spoiled and with all opt-outs. Raises Unavailable for other events."""
    events = list[Event]()
    for event in parsed.events:
        if isinstance(event, Message):
            events.append(replace(event, spoiled_by=(*event.spoiled_by, _NOT_VOUCHED_FOR), opts_in=False))
        elif isinstance(event, OptOut) and not event.opted_in:
            events.append(event)
        else:
            raise Unavailable("not_vouched_for") from error
    return replace(parsed, events=tuple(events), doubt="")


def _content(part: Part, *, as_link: bool) -> dict[str, str]:
    """Return the body of a message, or the link to its file: fetched by Twilio, or with `as_link` by the person."""
    if part.media is None:
        return {"body": str(part.arguments["body"])}
    if not isinstance(part.media, OpenMedia):
        raise TypeError("a part's media is opened before the part is sent")
    if part.media.link is None:
        raise Undeliverable("no_public_url")
    if as_link:
        return {"body": f"{part.arguments['body']}: {part.media.link}"}
    return {"media_url": part.media.link}
