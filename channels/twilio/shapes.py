"""The shapes of a form's fields. They find forms that the signature does not prove.

Twilio signs the names and values joined without a separator
(https://www.twilio.com/docs/usage/security#validating-requests). So one signature proves every form with the same
joined text, and an attacker can cut other fields out of a long text. Each forged form of this kind is doubted. Each
short field has a shape that leaves no room for a second field. A form with an unknown or a repeated name is doubted.
So is a long text that holds an id as a signed form writes it, because the id of the original form must be somewhere.
The channel asks Twilio about a doubted form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from multidict import MultiMapping

from channels.twilio.fields import FIELDS, MOST_MEDIA

__all__ = ["ADDRESS", "SID", "doubt"]

SID = re.compile(r"[A-Z]{2}[0-9a-f]{32}")
"""The form of a sid: https://www.twilio.com/docs/glossary/what-is-a-sid."""
_COUNT = re.compile(r"\d{0,3}")
_WORD = re.compile(r"[A-Za-z_-]{0,30}")
_COUNTRY = re.compile(r"[A-Z]{0,2}")
_PART_OF_A_COUNTRY = re.compile(r"[^\d:+/]{0,64}")
_ZIP = re.compile(r"[A-Za-z0-9 -]{0,12}")
_FLAG = re.compile(r"(true|false)?")
_COORDINATE = re.compile(r"(-?\d{1,3}(\.\d{1,20})?)?")
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
    "Latitude": _COORDINATE,
    "Longitude": _COORDINATE,
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

_OF_A_STATUS = frozenset({"ChannelStatusMessage", "ErrorCode", "ErrorMessage", "EventType", "RawDlrDoneDate"})
"""Fields of reports. https://www.twilio.com/docs/messaging/guides/track-outbound-message-status."""
_KNOWN = FIELDS.harmless | FIELDS.spoiling | _OF_A_STATUS
_SIGNED_ID = re.compile(r"(?:Account|Message|Sms)Sid[A-Z]{2}[0-9a-f]{32}")


def doubt(form: MultiMapping[str]) -> str:
    """Return the reason to ask Twilio whether it sent this form, without a value of it. Empty: there is none."""
    names = form.keys()
    if not names <= _KNOWN:
        return "it has a field that this release does not know"
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
