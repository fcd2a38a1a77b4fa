"""Twilio as a real HTTP server: the REST API for a bot, and the people on SMS and WhatsApp.

    async with FakeTwilio() as twilio:               # twilio.url, twilio.account_sid, twilio.auth_token
        twilio.webhook_url = "http://127.0.0.1:8080/webhooks/twilio"
        answer = await twilio.person_says("+15557654321", "delete INV-42")           # SMS; whatsapp=True for the other
        prompt = await twilio.wait_for(lambda: twilio.last("+15557654321"))

Every message of the bot is reported to the StatusCallback, signed like Twilio's. Shapes and limits:
https://www.twilio.com/docs/messaging/api/message-resource and https://www.twilio.com/docs/api/errors.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, Self, TypeVar

import aiohttp
from aiohttp import web
from multidict import MultiDict
from twilio.request_validator import HMAC_SHA1, HMAC_SHA256, RequestValidator

from tests.fakes.waiting import first, listen

T = TypeVar("T")

LONGEST_BODY = 1600
MOST_MEDIA = {"sms": 10, "whatsapp": 1}
STOP = {"STOP", "STOPALL", "UNSUBSCRIBE", "CANCEL", "END", "QUIT", "REVOKE", "OPTOUT"}
START = {"START", "YES", "UNSTOP"}
MESSAGES = {
    20003: "Authenticate",
    20404: "The requested resource was not found",
    20429: "Too Many Requests",
    21211: "Invalid 'To' Phone Number",
    21602: "Message body is required.",
    21606: "The 'From' number is not a valid, SMS-capable inbound phone number",
    21610: "Attempt to send to unsubscribed recipient",
    21617: "The concatenated message body exceeds the 1600 character limit.",
    21623: "Number of media files exceeds allowed limit",
}


def sid(kind: str, number: int) -> str:
    """``SM`` and 32 hexadecimal digits."""
    return f"{kind}{number:032x}"


@dataclass(frozen=True)
class Media:
    """A file, with the type and the name from the file's server."""

    content: bytes
    mime_type: str
    filename: str = ""


@dataclass
class Sent:
    sid: str
    to: str
    from_: str
    body: str
    media_urls: tuple[str, ...] = ()
    status_callback: str = ""
    service: str = ""
    """The sid of the sending messaging service."""
    created: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))
    media: list[Media] = field(default_factory=list)
    """The files found by Twilio at the addresses."""
    reports: list[tuple[str, int | None]] = field(default_factory=list)
    """(status, the callback's answer; None without an answer)."""


@dataclass(frozen=True)
class Answer:
    status: int
    body: str
    content_type: str


@dataclass(frozen=True)
class Call:
    method: str
    path: str
    form: dict[str, list[str]]
    authorization: str | None


@dataclass(frozen=True)
class Fault:
    """The fate of one message, in place of acceptance; with `taken`, besides."""

    status: int = 0
    code: int | None = None
    retry_after: int | None = None
    html: bool = False
    cut: bool = False
    taken: bool = False


class FakeTwilio:
    """One account's Twilio. The lists for tests are plain, oldest first."""

    def __init__(
        self,
        *,
        sms: str = "+15550001111",
        whatsapp: str = "+15550002222",
        auth_token: str = "f0e1d2c3b4a5968778695a4b3c2d1e0f",
        shared_key: str = "",
        reports: Sequence[str] = ("sent", "delivered"),
        reports_first: bool = False,
    ) -> None:
        """`reports`: the reported states of each message; `reports_first`: before the answer to the sending call."""
        self.account_sid = sid("AC", 0xACC)
        self.auth_token, self.shared_key = auth_token, shared_key
        self.secondary_token = ""
        """Accepted by the API, never used to sign webhooks: https://www.twilio.com/docs/iam/api/authtoken"""
        self.api_keys: dict[str, str] = {}
        """Sid of a standard API key -> the secret; no access to the account itself:
        https://www.twilio.com/docs/iam/api-keys."""
        self.service = ""
        """The sid of a messaging service. The only sender is the number for text messages."""
        self.sms, self.whatsapp = sms, whatsapp
        self.url = self.webhook_url = ""
        self.calls: list[Call] = []
        self.sent: list[Sent] = []
        self.typing: list[str] = []
        """The messages with a shown typing indicator."""
        self.down = False
        """True: the API answers only 503."""
        self.refused: dict[str, int] = {}
        """Number -> the code that refuses messages to the number."""
        self.told: dict[str, str] = {}
        """Sid of a message -> the last reported state."""
        self.media_location = ""
        """The redirect target for the bytes of a file; empty: the file's own place."""
        self._reports, self._reports_first = tuple(reports), reports_first
        self._inbound: list[dict[str, str]] = []
        self._opted_out: set[tuple[str, str]] = set()
        self._files: dict[str, Media] = {}
        self._faults: deque[Fault] = deque()
        self._hold: asyncio.Event | None = None
        self._ids = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        app = web.Application()
        account = "/2010-04-01/Accounts/{account}"
        app.router.add_get(account + ".json", self._answer_account)
        app.router.add_post(account + "/Messages.json", self._answer_create)
        app.router.add_get(account + "/Messages.json", self._answer_list)
        app.router.add_get(account + "/Messages/{message}.json", self._answer_message)
        app.router.add_get(account + "/Messages/{message}/Media/{media}", self._answer_media)
        app.router.add_get(account + "/IncomingPhoneNumbers.json", self._answer_numbers)
        app.router.add_post(account + "/IncomingPhoneNumbers/{number}.json", self._answer_number)
        app.router.add_get("/cdn/{media}", self._answer_file)
        app.router.add_post("/v2/Indicators/Typing.json", self._answer_typing)
        self._runner, self.url = await listen(app)
        self._http = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.release()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.close()
        await self._runner.cleanup()

    # ── for tests to look at ──

    async def wait_for(self, condition: Callable[[], T | None], timeout_seconds: float = 60.0) -> T:
        """Return the first truthy value of `condition`. Raises AssertionError after the timeout."""
        return await first(condition, self._changed, timeout_seconds, lambda: [(s.to, s.body) for s in self.sent[-10:]])

    def last(self, person: str, *, containing: str = "") -> Sent | None:
        """Return the newest message to a number, on either channel, with these words."""
        found = [s for s in self.sent if s.to.removeprefix("whatsapp:") == person and containing in s.body]
        return found[-1] if found else None

    # ── faults ──

    def fail_next(
        self,
        status: int = 500,
        code: int | None = None,
        *,
        retry_after: int | None = None,
        html: bool = False,
        cut: bool = False,
        taken: bool = False,
        times: int = 1,
    ) -> None:
        """The next `times` messages fail.

        `html`: with a page, as a proxy before the API answers. `cut`: the connection ends without an answer once the
        whole request was read. `taken`: the message still goes out.
        """
        self._faults.extend([Fault(status, code, retry_after, html, cut, taken)] * times)

    def hold(self) -> None:
        """Answer no message until `release`. The messages are accepted."""
        self._hold = asyncio.Event()

    def release(self) -> None:
        if self._hold is not None:
            self._hold.set()

    # ── people ──

    async def person_says(
        self,
        person: str,
        text: str,
        *,
        whatsapp: bool = False,
        files: Sequence[Media] = (),
        reply_to: Sent | None = None,
        **fields: str,
    ) -> Answer:
        """A person writes. Returns the webhook's answer. `fields` are added to the form."""
        form = self.form(person, text, whatsapp=whatsapp, files=files, **fields)
        if reply_to is not None:
            form |= {"OriginalRepliedMessageSid": reply_to.sid, "OriginalRepliedMessageSender": reply_to.from_}
        pair, word, asked = (form["To"], form["From"]), "" if whatsapp else text.strip().upper(), form.get("OptOutType")
        if word in STOP or asked == "STOP":
            self._opted_out.add(pair)
        elif word in START or asked == "START":
            self._opted_out.discard(pair)
        self._inbound.append(form)
        return await self.deliver(form)

    def form(
        self, person: str, text: str, *, whatsapp: bool = False, files: Sequence[Media] = (), **fields: str
    ) -> dict[str, str]:
        message = sid("MM" if files else "SM", next(self._ids))
        form = {
            "ToCountry": "US",
            "SmsMessageSid": message,
            "NumMedia": str(len(files)),
            "FromZip": "",
            "SmsSid": message,
            "SmsStatus": "received",
            "Body": text,
            "FromCountry": "US",
            "To": f"whatsapp:{self.whatsapp}" if whatsapp else self.sms,
            "NumSegments": "1",
            "MessageSid": message,
            "AccountSid": self.account_sid,
            "From": f"whatsapp:{person}" if whatsapp else person,
            "ApiVersion": "2010-04-01",
        }
        if whatsapp:
            form |= {"ProfileName": "Ana", "WaId": person.removeprefix("+"), "MessageType": "text"}
        for number, file in enumerate(files):
            media = sid("ME", next(self._ids))
            self._files[media] = file
            path = f"/2010-04-01/Accounts/{self.account_sid}/Messages/{message}/Media/{media}"
            form |= {
                f"MediaUrl{number}": f"https://api.twilio.com{path}",
                f"MediaContentType{number}": file.mime_type,
            }
        return form | fields

    async def deliver(self, form: dict[str, str], *, url: str | None = None, called: str | None = None) -> Answer:
        """Post a form like Twilio, to the webhook or to `url`, perhaps for the second time.

        `called`: the URL known to Twilio, if a proxy passes the request to `url`.
        """
        url = url or self.webhook_url
        async with self._http.post(url, data=form, headers=self.signed(called or url, form)) as response:
            answer = Answer(response.status, await response.text(), response.content_type)
        self._changed.set()
        return answer

    def signed(self, url: str, form: dict[str, str]) -> dict[str, str]:
        algorithm = HMAC_SHA256 if self.shared_key else HMAC_SHA1
        signature = RequestValidator(self.shared_key or self.auth_token).compute_signature(
            url.partition("#")[0], MultiDict(form), algorithm
        )
        headers = {"X-Twilio-Signature": signature, "I-Twilio-Idempotency-Token": f"token-{next(self._ids)}"}
        if self.shared_key:
            headers["X-Twilio-Webhooks-Signature-Settings"] = f"key=webhooks_sharedkey_1,algorithm={algorithm}"
        return headers

    async def report(self, sent: Sent, status: str, *, code: str = "") -> None:
        """Report the state of a message to the bot."""
        self.told[sent.sid] = status
        form = {
            "SmsSid": sent.sid,
            "SmsStatus": status,
            "MessageStatus": status,
            "To": sent.to,
            "MessageSid": sent.sid,
            "AccountSid": self.account_sid,
            "From": sent.from_,
            "ApiVersion": "2010-04-01",
        }
        if sent.to.startswith("whatsapp:"):
            form |= {"ChannelPrefix": "whatsapp", "ChannelToAddress": sent.to[9:-4] + "XXXX"}
        if code:
            form |= {"ErrorCode": code}
        try:
            answer: int | None = (await self.deliver(form, url=sent.status_callback)).status
        except aiohttp.ClientError:
            answer = None
        sent.reports.append((status, answer))
        self._changed.set()

    # ── the API ──

    async def _answer_account(self, request: web.Request) -> web.Response:
        if refusal := await self._checked(request):
            return refusal
        return web.json_response({"sid": self.account_sid, "status": "active", "type": "Full"})

    async def _answer_create(self, request: web.Request) -> web.StreamResponse:
        if refusal := await self._checked(request):
            return refusal
        form = await request.post()
        fault = self._faults.popleft() if self._faults else None
        if fault is None or fault.taken:
            if code := self._refusal(form):
                return _error(400, code)
            sent = Sent(
                sid=sid("MM" if "MediaUrl" in form else "SM", next(self._ids)),
                to=str(form["To"]),
                from_=str(form["From"]),
                body=str(form.get("Body", "")),
                media_urls=tuple(map(str, form.getall("MediaUrl", []))),
                status_callback=str(form.get("StatusCallback", "")),
                service=str(form.get("MessagingServiceSid", "")),
            )
            self.sent.append(sent)
            self._changed.set()
            if self._reports_first:
                await self._carry(sent)
            else:
                task = asyncio.create_task(self._carry(sent))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            if self._hold is not None:
                await self._hold.wait()
            if fault is None:
                return web.json_response(self._resource(sent), status=201)
        if fault.cut:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if fault.html:
            return web.Response(status=fault.status, text="<html>Bad Gateway</html>", content_type="text/html")
        return _error(fault.status, fault.code, retry_after=fault.retry_after)

    def _refusal(self, form: Any) -> int | None:
        to, from_, body = str(form.get("To", "")), str(form.get("From", "")), str(form.get("Body", ""))
        channel = "whatsapp" if to.startswith("whatsapp:") else "sms"
        ours = f"whatsapp:{self.whatsapp}" if channel == "whatsapp" else self.sms
        number = to.removeprefix("whatsapp:")
        if not (number.startswith("+") and number[1:].isdecimal()):
            return 21211
        if from_ != ours:
            return 21606
        if (service := str(form.get("MessagingServiceSid", ""))) and (service, channel) != (self.service, "sms"):
            return 21712  # https://www.twilio.com/docs/api/errors/21712: the sender is not in the service's pool
        if number in self.refused:
            return self.refused[number]
        if (from_, to) in self._opted_out:
            return 21610
        if not body and "MediaUrl" not in form:
            return 21602
        if len(body.encode("utf-16-le")) // 2 > LONGEST_BODY:
            return 21617
        return 21623 if len(form.getall("MediaUrl", [])) > MOST_MEDIA[channel] else None

    async def _carry(self, sent: Sent) -> None:
        """Fetch a message's files, then report the states."""
        for url in sent.media_urls:
            async with self._http.head(url) as head, self._http.get(url) as found:
                mime_type = found.headers.get("Content-Type", "")
                ok = head.status == found.status == 200 and head.headers.get("Content-Type") == mime_type
                if not ok or not mime_type:
                    await self.report(sent, "failed", code="63019")
                    return
                shown = found.content_disposition
                filename = (shown.filename if shown is not None else None) or ""
                sent.media.append(Media(await found.read(), mime_type, filename))
        for status in self._reports if sent.status_callback else ():
            await self.report(sent, status)

    def _resource(self, sent: Sent) -> dict[str, Any]:
        return {
            "sid": sent.sid,
            "account_sid": self.account_sid,
            "to": sent.to,
            "from": sent.from_,
            "body": sent.body,
            "status": "queued",
            "direction": "outbound-api",
            "num_media": str(len(sent.media_urls)),
            "num_segments": "1",
            "error_code": None,
            "error_message": None,
            "date_created": format_datetime(sent.created),
            "api_version": "2010-04-01",
        }

    async def _answer_message(self, request: web.Request) -> web.Response:
        if refusal := await self._checked(request):
            return refusal
        number = request.match_info["message"]
        for form in self._inbound:
            if form["MessageSid"] == number:
                ends = {"from": form["From"], "to": form["To"]}
                return web.json_response({**ends, "sid": number, "body": form["Body"], "status": "received"})
        for sent in self.sent:
            if sent.sid == number:
                return web.json_response(self._resource(sent) | {"status": self.told.get(number, "queued")})
        return _error(404, 20404)

    async def _answer_list(self, request: web.Request) -> web.Response:
        if refusal := await self._checked(request):
            return refusal
        found = [
            {"sid": form["MessageSid"], "from": form["From"], "to": form["To"], "direction": "inbound"}
            for form in reversed(self._inbound)
            if form["From"] == request.query.get("From") and form["To"] == request.query.get("To")
        ]
        found += [
            self._resource(sent)
            for sent in reversed(self.sent)
            if sent.from_ == request.query.get("From") and sent.to == request.query.get("To")
        ]
        page = found[: int(request.query.get("PageSize", "50"))]
        return web.json_response({"messages": page, "next_page_uri": None, "page": 0, "page_size": len(page)})

    async def _answer_numbers(self, request: web.Request) -> web.Response:
        if refusal := await self._checked(request):
            return refusal
        ours = request.query.get("PhoneNumber") == self.sms
        listed = [self._number_resource()] if ours else []
        return web.json_response({"incoming_phone_numbers": listed, "next_page_uri": None})

    async def _answer_number(self, request: web.Request) -> web.Response:
        if refusal := await self._checked(request):
            return refusal
        form = await request.post()
        if form.get("SmsMethod") != "POST" or request.match_info["number"] != sid("PN", 1):
            return _error(404, 20404)
        self.webhook_url = str(form["SmsUrl"])
        return web.json_response(self._number_resource())

    def _number_resource(self) -> dict[str, Any]:
        return {
            "sid": sid("PN", 1),
            "account_sid": self.account_sid,
            "phone_number": self.sms,
            "sms_url": self.webhook_url,
        }

    async def _answer_typing(self, request: web.Request) -> web.Response:
        if refusal := await self._checked(request):
            return refusal
        form = await request.post()
        message = str(form.get("messageId", ""))
        if form.get("channel") != "whatsapp" or message not in {f["MessageSid"] for f in self._inbound}:
            return _error(404, 20404)
        self.typing.append(message)
        return web.json_response({"success": True})

    async def _answer_media(self, request: web.Request) -> web.Response:
        if refusal := await self._checked(request):
            return refusal
        media = request.match_info["media"]
        if media not in self._files:
            return _error(404, 20404)
        return web.Response(status=307, headers={"Location": self.media_location or f"/cdn/{media}"})

    async def _answer_file(self, request: web.Request) -> web.Response:
        await self._note(request)
        file = self._files[request.match_info["media"]]
        return web.Response(body=file.content, content_type=file.mime_type)

    async def _checked(self, request: web.Request) -> web.Response | None:
        await self._note(request)
        if self.down:
            return _error(503, 20503)
        tokens = [token for token in (self.auth_token, self.secondary_token) if token]
        expected = [aiohttp.encode_basic_auth(self.account_sid, token) for token in tokens]
        if not request.path.endswith(f"/{self.account_sid}.json"):
            expected += [aiohttp.encode_basic_auth(*key) for key in self.api_keys.items()]
        account = request.match_info.get("account", self.account_sid)
        if request.headers.get("Authorization") not in expected or account != self.account_sid:
            return _error(401, 20003)
        return None

    async def _note(self, request: web.Request) -> None:
        form = await request.post()
        fields = {name: [str(value) for value in form.getall(name)] for name in form}
        self.calls.append(Call(request.method, request.path, fields, request.headers.get("Authorization")))
        self._changed.set()


def _error(status: int, code: int | None, *, retry_after: int | None = None) -> web.Response:
    """https://www.twilio.com/docs/usage/twilios-response, "Exceptions"."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    body = {
        "code": code,
        "message": MESSAGES.get(code or 0, "something about +15550009999"),
        "more_info": f"https://www.twilio.com/docs/errors/{code}",
        "status": status,
    }
    return web.json_response(body if code else {"message": "Service unavailable"}, status=status, headers=headers)
