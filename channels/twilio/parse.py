"""Parsing: one form of Twilio to events. Pure.

The fields: https://www.twilio.com/docs/messaging/guides/webhook-request (messages) and
https://www.twilio.com/docs/messaging/guides/track-outbound-message-status (delivery reports).

The shapes of a form's fields find forms without a proof by the signature. Twilio signs the names and values joined
without a separator (https://www.twilio.com/docs/usage/security#validating-requests). So one signature proves every form
with the same joined text, and an attacker can cut other fields out of a long text. Each forged form of this kind is
doubted. Each short field has a shape without room for a second field. A form with an unknown or a repeated name is
doubted. So is a long text containing an id as written in a signed form, because the id of the original form must be
somewhere. The channel asks Twilio about a doubted form.

``ExternalUserId`` identifies a person on WhatsApp without the person's number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Literal
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

from multidict import MultiMapping

from channels.channel import Parsed, WebhookRequest, WebhookResponse
from channels.events import Address, Attachment, ButtonPress, DeliveryReport, Message, OptOut, Person, kind_of
from channels.fields import Fields, Judged
from channels.twilio.payload import ADDRESS_PREFIX, read_form


def _twiml(inside: str) -> WebhookResponse:
    body = f'<?xml version="1.0" encoding="UTF-8"?><Response>{inside}</Response>'
    return WebhookResponse(headers={"Content-Type": "text/xml; charset=utf-8"}, body=body.encode())


_EMPTY = _twiml("")
"""TwiML without a message: replies go out over the REST API instead."""


def spoken(text: str) -> WebhookResponse:
    """Return a response that makes Twilio send this text to the writer, without a call of the REST API."""
    return _twiml(f"<Message>{escape(text)}</Message>")


KEY = "part"
"""The query parameter of a report URL with the key of the sent part."""
OPTED_OUT = "21610"
"""The code of an opt-out. https://www.twilio.com/docs/api/errors/21610."""

_NOTHING = Parsed((), _EMPTY)
_NOT_UNDERSTOOD = Parsed((), _EMPTY, not_understood=True)

# https://support.twilio.com/hc/en-us/articles/223134027: carriers and Twilio act on a text message of one of these.
# On WhatsApp neither does, so ordinary words like "cancel" stay ordinary there.
_STOP = {
    "sms": frozenset({"stop", "stopall", "unsubscribe", "cancel", "end", "quit", "revoke", "optout"}),
    "whatsapp": frozenset({"stop", "stopall", "unsubscribe"}),
}
_START = frozenset({"start", "unstop"})
_START_THAT_ANSWERS = "yes"
"""Carriers read this word as START. The gateway first reads an answer to a question."""

_STATUS: Mapping[str, Literal["sent", "delivered", "read", "failed"]] = {
    "sent": "sent",
    "delivered": "delivered",
    "read": "read",
    "failed": "failed",
    "undelivered": "failed",
    "canceled": "failed",
}
_STATUS_ON_THE_WAY = frozenset({"accepted", "scheduled", "queued", "sending"})
_CODE = re.compile("[0-9]{4,6}")
_KEY = re.compile(r"[\w-]{1,64}", re.ASCII)
_COMMAND = re.compile(r"/([A-Za-z][A-Za-z0-9_]*)(?:\s+(.*))?", re.DOTALL)
_COORDINATE = re.compile(r"-?\d{1,3}(\.\d+)?")


class FormReader:
    """Parser of the forms of one of the two channels."""

    def __init__(self, channel: str) -> None:
        self._channel, self._prefix = channel, ADDRESS_PREFIX[channel]

    def read(self, request: WebhookRequest) -> Parsed:
        """Return the events of a form, and the reason to doubt the form. Raises Malformed for a body other than a form.

        The signature becomes an event id: another form cut out of the same signed text counts as a twin.
        """
        form = read_form(request)
        parsed = self._read(form, request)
        signature = request.headers.get("x-twilio-signature")
        if not parsed.events or signature is None:
            return parsed
        *before, last = parsed.events
        proof = f"signature/{sha256(signature.encode('utf-8', 'replace')).hexdigest()[:32]}"
        events = (*before, replace(last, event_ids=(*last.event_ids, proof)))
        return replace(parsed, events=events, doubt=doubt(form))

    def _read(self, form: MultiMapping[str], request: WebhookRequest) -> Parsed:
        sid = form.get("MessageSid", "")
        ours, theirs = form.get("To", ""), form.get("From", "")
        status = form.get("MessageStatus", "received")
        if status != "received":
            ours, theirs = theirs, ours
        account, place = self._number(ours), self._number(theirs)
        if not (SID.fullmatch(sid) and account and place):
            return _NOT_UNDERSTOOD
        address = Address(channel=self._channel, account=account, place=place)
        if status != "received":
            return self._report(sid, address, status, form, _key(request.url))
        return self._said(sid, address, form)

    def _number(self, written: str) -> str:
        """Return a number, a short code or a sender's name. Empty for an address of another channel."""
        if ADDRESS.fullmatch(written) is None or not written.startswith(self._prefix):
            return ""
        number = written.removeprefix(self._prefix)
        return "" if ":" in number else number

    def _report(self, sid: str, address: Address, status: str, form: Mapping[str, str], key: str | None) -> Parsed:
        if status in _STATUS_ON_THE_WAY:
            return _NOTHING
        if status not in _STATUS:
            return _NOT_UNDERSTOOD
        report = DeliveryReport(
            event_ids=(f"{sid}/{status}",),
            address=address,
            person=None,
            message_id=sid,
            status=_STATUS[status],
            code=_code(form.get("ErrorCode", "")),
            key=key,
        )
        if report.code != OPTED_OUT:
            return Parsed((report,), _EMPTY)
        out = OptOut(event_ids=(f"{sid}/{OPTED_OUT}",), address=address, person=_person(address))
        return Parsed((out, report), _EMPTY)

    def _said(self, sid: str, address: Address, form: Mapping[str, str]) -> Parsed:
        person = _person(address, form.get("ProfileName") or None)
        text = form.get("Body", "").replace("\0", "").strip()
        asked = form.get("OptOutType", "").upper()
        if asked == "HELP":
            return _NOTHING  # Twilio itself answers it
        ids = (sid,)
        forwarded = "true" in (form.get("Forwarded"), form.get("FrequentlyForwarded"))
        if (opted_in := self._opts(asked, text if not forwarded else "")) is not None:
            # Twilio has confirmed an opt-out that OptOutType names, and carriers confirm those of text messages.
            told = bool(asked) or self._channel == "sms"
            opt = OptOut(event_ids=ids, address=address, person=person, opted_in=opted_in, told=told)
            return Parsed((opt,), _EMPTY)
        if token := form.get("ButtonPayload"):
            press = ButtonPress(
                event_ids=ids,
                address=address,
                person=person,
                token=token,
                message_id=form.get("OriginalRepliedMessageSid") or None,
            )
            return Parsed((press,), _EMPTY)
        attachments = _attachments(form)
        if not text and not attachments:
            return _NOT_UNDERSTOOD
        command = _COMMAND.fullmatch(text) if not forwarded else None
        spoiled_by, unknown_fields = judge(form)
        message = Message(
            event_ids=ids,
            address=address,
            person=person,
            message_id=sid,
            text=(command[2] or "") if command else text,
            command=command[1].lower() if command else None,
            reply_to=form.get("OriginalRepliedMessageSid") or None,
            attachments=attachments,
            forwarded=forwarded,
            opts_in=_answers(text) and (asked == "START" or self._channel == "sms"),
            spoiled_by=spoiled_by,
            unknown_fields=unknown_fields,
        )
        return Parsed((message,), _EMPTY)

    def _opts(self, asked: str, text: str) -> bool | None:
        """Return True for an opt-in, False for an opt-out, None for neither and for a word that is also an answer."""
        word = text.casefold()
        if asked == "STOP" or word in _STOP[self._channel]:
            return False
        return True if word in _START or (asked == "START" and not _answers(text)) else None


def _answers(text: str) -> bool:
    return text.casefold() == _START_THAT_ANSWERS


def _person(address: Address, name: str | None = None) -> Person:
    return Person(channel=address.channel, account=address.account, user_id=address.place, name=name)


def _key(url: str) -> str | None:
    try:
        found = parse_qs(urlsplit(url).query).get(KEY, [])
    except ValueError:
        return None
    return found[0] if len(found) == 1 and _KEY.fullmatch(found[0]) else None


def _attachments(form: Mapping[str, str]) -> tuple[Attachment, ...]:
    found = []
    count = form.get("NumMedia", "")
    for number in range(min(int(count), MOST_MEDIA) if count.isdecimal() and len(count) < 4 else 0):
        if url := form.get(f"MediaUrl{number}"):
            mime_type = form.get(f"MediaContentType{number}", "").lower()
            kind = "sticker" if form.get("MessageType") == "sticker" else _kind(mime_type)
            found.append(Attachment(kind=kind, ref=url, mime_type=mime_type or None))
    latitude, longitude = form.get("Latitude", ""), form.get("Longitude", "")
    if _COORDINATE.fullmatch(latitude) and _COORDINATE.fullmatch(longitude):
        name = form.get("Label") or form.get("Address") or None
        found.append(Attachment(kind="location", ref=f"geo:{latitude},{longitude}", filename=name))
    return tuple(found)


def _kind(mime_type: str) -> Literal["image", "audio", "voice", "video", "document", "contact"]:
    if mime_type in ("text/vcard", "text/x-vcard"):
        return "contact"
    return "voice" if mime_type.startswith("audio/ogg") else kind_of(mime_type)


def _code(given: str) -> str | None:
    """Return Twilio's code, about five digits (https://www.twilio.com/docs/api/errors), "unknown", or None if empty."""
    return given if _CODE.fullmatch(given) else "unknown" if given else None


MOST_MEDIA = 10
"""The most files of one message."""
_USUAL = {
    "Forwarded": "false",
    "FrequentlyForwarded": "false",
    "MessageType": "text",
    "NumMedia": "0",
    "ReferralNumMedia": "0",
}
"""Fields of each message, with the value for plain words. Any other value spoils the message."""

FIELDS = Fields(
    harmless=frozenset(
        """AccountSid AddOns ApiVersion Body ChannelInstallSid ChannelMetadata ChannelPrefix ChannelToAddress ErrorCode
        ErrorUrl ExternalUserId From FromCity FromCountry FromState FromZip MessageSid MessageStatus
        MessagingServiceSid NumSegments OptOutType OriginalRepliedMessageSender OriginalRepliedMessageSid
        ParentExternalUserId ProfileName SmsMessageSid SmsSid SmsStatus To ToCity ToCountry ToState ToZip
        WaId""".split()  # noqa: SIM905
    )
    | _USUAL.keys(),
    spoiling=frozenset(
        """Address ButtonPayload ButtonText ButtonType FlowData InteractiveData Label Latitude ListId ListTitle
        Longitude ReferralBody ReferralCtwaClid ReferralHeadline ReferralMediaContentType ReferralMediaId
        ReferralMediaUrl ReferralSourceId ReferralSourceType ReferralSourceUrl""".split()  # noqa: SIM905
    )
    | {f"{name}{number}" for name in ("MediaUrl", "MediaContentType") for number in range(MOST_MEDIA)},
)


def judge(form: Mapping[str, str]) -> Judged:
    """Return the names of the spoiling fields of a message, and of the unknown fields."""
    spoiled_by, unknown_fields = FIELDS.judge(form)
    unusual = tuple([name for name, usual in _USUAL.items() if form.get(name, usual) not in (usual, "")])
    return spoiled_by + unusual, unknown_fields


SID = re.compile(r"[A-Z]{2}[0-9a-f]{32}")
"""The form of a sid: https://www.twilio.com/docs/glossary/what-is-a-sid."""
_COUNT = re.compile(r"\d{0,3}")
_WORD = re.compile(r"[A-Za-z_-]{0,30}")
_COUNTRY = re.compile(r"[A-Z]{0,2}")
_PART_OF_A_COUNTRY = re.compile(r"[^\d:+/]{0,64}")
_ZIP = re.compile(r"[A-Za-z0-9 -]{0,12}")
_FLAG = re.compile(r"(true|false)?")
_COORDINATE_SHAPE = re.compile(r"(-?\d{1,3}(\.\d{1,20})?)?")
ADDRESS = re.compile(
    r"\+?\d{3,15}"  # a number, or a short code
    r"|[A-Za-z0-9][A-Za-z0-9 _&-]{0,10}"  # https://www.twilio.com/docs/glossary/what-alphanumeric-sender-id
    r"|whatsapp:(\+\d{3,15}|(ID|[A-Z]{2})\.[A-Za-z0-9.]{1,40})"
    r"|(rcs|messenger|sip):[\w.+@-]{1,64}"  # of other channels: accepted here, not understood later
)
_URL = re.compile(r"(https?://[\w.-]+(:\d{1,5})?/[\w./%~?=&-]{0,500})?")

_SHAPES: Mapping[str, re.Pattern[str]] = {
    "AccountSid": SID,
    "ApiVersion": re.compile(r"(\d{4}-\d\d-\d\d)?"),
    "ButtonType": _WORD,
    "ChannelInstallSid": re.compile(rf"({SID.pattern})?"),
    "ChannelPrefix": _WORD,
    "ChannelToAddress": re.compile(r"[\w+:.-]{0,32}"),
    "ErrorCode": re.compile(r"\d{0,6}"),
    "EventType": _WORD,
    "ExternalUserId": re.compile(r"[\w:.]{0,64}"),
    "Forwarded": _FLAG,
    "FrequentlyForwarded": _FLAG,
    "From": ADDRESS,
    "FromCity": _PART_OF_A_COUNTRY,
    "FromCountry": _COUNTRY,
    "FromState": _PART_OF_A_COUNTRY,
    "FromZip": _ZIP,
    "Latitude": _COORDINATE_SHAPE,
    "Longitude": _COORDINATE_SHAPE,
    "MessageSid": SID,
    "MessageStatus": _WORD,
    "MessageType": _WORD,
    "MessagingServiceSid": re.compile(rf"({SID.pattern})?"),
    "NumMedia": _COUNT,
    "NumSegments": _COUNT,
    "OptOutType": _WORD,
    "OriginalRepliedMessageSender": re.compile(rf"({ADDRESS.pattern})?"),
    "OriginalRepliedMessageSid": re.compile(rf"({SID.pattern})?"),
    "ParentExternalUserId": re.compile(r"[\w:.]{0,64}"),
    "RawDlrDoneDate": re.compile(r"\d{0,14}"),
    "ReferralNumMedia": _COUNT,
    "SmsMessageSid": SID,
    "SmsSid": SID,
    "SmsStatus": _WORD,
    "To": ADDRESS,
    "ToCity": _PART_OF_A_COUNTRY,
    "ToCountry": _COUNTRY,
    "ToState": _PART_OF_A_COUNTRY,
    "ToZip": _ZIP,
    "WaId": re.compile(r"[A-Za-z0-9.]{0,44}"),
} | {f"MediaUrl{number}": _URL for number in range(MOST_MEDIA)}

_OF_A_FALLBACK = frozenset({"ErrorUrl"})
"""A field of a message to the fallback URL (https://www.twilio.com/docs/messaging/guides/webhook-request).

A form with this field is always doubted, because the field has room for another field.
"""
_OF_A_STATUS = frozenset({"ChannelStatusMessage", "ErrorCode", "ErrorMessage", "EventType", "RawDlrDoneDate"})
"""Fields of reports. https://www.twilio.com/docs/messaging/guides/track-outbound-message-status."""
_KNOWN = (FIELDS.harmless | FIELDS.spoiling | _OF_A_STATUS) - _OF_A_FALLBACK
_SIGNED_ID = re.compile(r"(?:Account|Message|Sms)Sid[A-Z]{2}[0-9a-f]{32}")


def doubt(form: MultiMapping[str]) -> str:
    """Return the reason to ask Twilio about the origin of this form, without a value of the form. Empty: no reason."""
    names = form.keys()
    if not names <= _KNOWN:
        return "it has a field beyond those of a message"
    if len(names) != len(form):
        return "it has a field twice"
    for name, value in form.items():
        shape = _SHAPES.get(name)
        if shape is None:
            if _SIGNED_ID.search(value):
                return f"its {name} reads like a part of a signed form"
        elif shape.fullmatch(value) is None:
            return f"its {name} has another shape than Twilio documents"
    return ""
