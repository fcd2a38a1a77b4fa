"""SMS and WhatsApp for the contract: documented forms, Twilio's signature, and a REST API to talk to."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import parse_qsl, urlencode

import pytest
from multidict import MultiDict
from twilio.request_validator import RequestValidator

from channels import (
    Address,
    Attachment,
    ButtonPress,
    DeliveryReport,
    Event,
    Message,
    OptOut,
    Parsed,
    Person,
    WebhookRequest,
    WebhookResponse,
)
from channels.twilio import SmsChannel, WhatsAppChannel
from gateway.testing import RETRY_AFTER_SECONDS, Arrived, ArrivedFile, ChannelCase, Delivery, Fault, Webhook
from tests.channels.twilio.forms import ACCOUNT_SID, ANA, FIELDS, FORMS, MEDIA, OF_OURS, OURS, SID, request
from tests.fakes.twilio import FakeTwilio, Media, Sent

TOKEN = "f0e1d2c3b4a5968778695a4b3c2d1e0f"
EMPTY = WebhookResponse(
    headers={"Content-Type": "text/xml; charset=utf-8"},
    body=b'<?xml version="1.0" encoding="UTF-8"?><Response></Response>',
)
Name = Literal["sms", "whatsapp"]
PICTURE = ("MediaContentType0", "MediaUrl0", "NumMedia")


def expected(channel: Name) -> Mapping[str, Event | None]:
    """Return the event of some forms of each kind."""
    address = Address(channel=channel, account=OURS, place=ANA)
    person = Person(channel=channel, account=OURS, user_id=ANA, name="Ana Núñez" if channel == "whatsapp" else None)

    def says(text: str = "", **fields: Any) -> Message:
        ids: dict[str, Any] = {"event_ids": (SID,), "message_id": SID}
        return Message(**ids, address=address, person=person, text=text, opts_in=False, **fields)

    def report(told: str, status: Literal["delivered", "read", "failed"], code: str | None = None) -> DeliveryReport:
        ids = (f"{OF_OURS}/{told}",)
        return DeliveryReport(event_ids=ids, address=address, person=None, message_id=OF_OURS, status=status, code=code)

    def picture(number: int, kind: Any, mime_type: str) -> Attachment:
        return Attachment(kind=kind, ref=f"{MEDIA}/ME{number}", mime_type=mime_type)

    if channel == "sms":
        return {
            "sms text": says("delete INV-42, please"),
            "sms text in another alphabet": says("löschen 删除 🙂"),
            "sms command": says("invoices", command="start"),
            "sms STOP": OptOut(event_ids=(SID,), address=address, person=person),
            "mms picture": says("this one", attachments=(picture(1, "image", "image/jpeg"),), spoiled_by=PICTURE),
            "report delivered": report("delivered", "delivered"),
            "report failed": report("failed", "failed", "30007"),
            "sms help": None,
        }
    return {
        "whatsapp text": says("delete INV-42, please"),
        "whatsapp cancel": says("Cancel"),
        "whatsapp reply": says("yes", reply_to=OF_OURS),
        "whatsapp forwarded": says("yes", forwarded=True, spoiled_by=("Forwarded",)),
        "whatsapp voice": says(
            attachments=(picture(1, "voice", "audio/ogg; codecs=opus"),),
            spoiled_by=("MediaContentType0", "MediaUrl0", "MessageType", "NumMedia"),
        ),
        "whatsapp button": ButtonPress(
            event_ids=(SID,), address=address, person=person, token="00secret-token", message_id=OF_OURS
        ),
        "whatsapp report read": report("read", "read"),
        "whatsapp report undelivered": report("undelivered", "failed", "63016"),
    }


def prove(asked: WebhookRequest, at: datetime, attempt: int) -> WebhookRequest:
    form = MultiDict(parse_qsl(asked.body.decode("ascii", "replace"), keep_blank_values=True))
    signature = RequestValidator(TOKEN).compute_signature(asked.url, form)
    headers = {"x-twilio-signature": signature, "i-twilio-idempotency-token": f"token-{attempt}"}
    return replace(asked, headers={**asked.headers, **headers})


def webhook(channel: Name) -> Webhook:
    ids = itertools.count(1)

    def delivery(name: str, event: Event | None) -> Delivery:
        """A proven form also has its signature among its ids."""
        asked = request(FORMS[name])
        signature = prove(asked, datetime.now(UTC), 1).headers["x-twilio-signature"]
        proof = f"signature/{hashlib.sha256(signature.encode()).hexdigest()[:32]}"
        events = (replace(event, event_ids=(*event.event_ids, proof)),) if event else ()
        return Delivery(name=name, request=asked, parsed=Parsed(events, EMPTY))

    deliveries = [delivery(name, event) for name, event in expected(channel).items()]

    def says(text: str) -> WebhookRequest:
        return holding({"Body": text})

    def holding(fields: Mapping[str, Any]) -> WebhookRequest:
        said = {**FORMS[f"{channel} text"], "Body": "yes", "MessageSid": f"SM{next(ids):032x}", **fields}
        return request(urlencode(said, errors="surrogatepass").encode())

    return Webhook(
        deliveries=deliveries,
        says=says,
        fields=FIELDS,
        holding=holding,
        prove=prove,
        proof=["x-twilio-signature"],
        covers_body=True,
    )


class Platform:
    def __init__(self, fake: FakeTwilio, patch: pytest.MonkeyPatch) -> None:
        self._fake, self._patch = fake, patch

    @property
    def calls(self) -> int:
        return len(self._fake.calls)

    def arrived(self) -> Sequence[Arrived]:
        return [arrived(sent) for sent in self._fake.sent]

    async def fail(self, fault: Fault) -> None:
        fake = self._fake
        match fault:
            case "limited":
                fake.fail_next(429, 20429, retry_after=RETRY_AFTER_SECONDS)
            case "refused":
                fake.fail_next(400, 21610)
            case "unauthorized":
                fake.fail_next(401, 20003)
            case "page":
                fake.fail_next(403, html=True)
            case "broken":
                fake.fail_next(502, html=True)
            case "cut":
                fake.fail_next(cut=True, taken=True)
            case "silent":
                self._patch.setattr("channels.twilio.api._ANSWER_SECONDS", 0.1)
                fake.hold()
            case "away":
                await fake._runner.cleanup()


def arrived(sent: Sent) -> Arrived:
    file = next(iter(sent.media), None)
    return Arrived(
        message_id=sent.sid,
        text=sent.body,
        file=None if file is None else ArrivedFile(content=file.content, mime_type=file.mime_type, filename=None),
    )


@asynccontextmanager
async def twilio_case(channel: Name, patch: pytest.MonkeyPatch) -> AsyncIterator[ChannelCase]:
    async with FakeTwilio(sms=OURS, whatsapp=OURS, auth_token=TOKEN, reports=()) as fake:
        fake.account_sid = ACCOUNT_SID
        fake._inbound.append(fake.form(ANA, "hello", whatsapp=channel == "whatsapp"))

        def keeps(content: bytes) -> Attachment:
            form = fake.form(ANA, "", files=[Media(content, "application/octet-stream")])
            return Attachment(kind="document", ref=form["MediaUrl0"])

        sender = {"TWILIO_SMS_FROM": OURS} if channel == "sms" else {"TWILIO_WHATSAPP_FROM": f"whatsapp:{OURS}"}
        yield ChannelCase(
            channel=SmsChannel if channel == "sms" else WhatsAppChannel,
            settings={
                "TWILIO_ACCOUNT_SID": ACCOUNT_SID,
                "TWILIO_AUTH_TOKEN": TOKEN,
                "ASKFIRST_PUBLIC_URL": "https://bot.example.com",
                "TWILIO_API_URL": fake.url,
                **sender,
            },
            address=Address(channel=channel, account=OURS, place=ANA),
            webhook=webhook(channel),
            platform=Platform(fake, patch),
            keeps=keeps,
        )
