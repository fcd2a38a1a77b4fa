"""The forms that Twilio posts, in the documented shape, one a kind.

Fields and their values: https://www.twilio.com/docs/messaging/guides/webhook-request ("messages") and
https://www.twilio.com/docs/messaging/guides/track-outbound-message-status ("status"). The sets
of fields, also blank ones, are from logs and fakes of public bots, each named. Numbers, names, words and ids are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from channels import WebhookRequest
from gateway.testing import MessageField

ACCOUNT_SID = "AC00000000000000000000000000000001"
SERVICE = "MG00000000000000000000000000000001"
OURS, ANA = "+15550001111", "+15557654321"
SID = "SM00000000000000000000000000000abc"
OF_OURS = "SM00000000000000000000000000000def"
MEDIA = f"https://api.twilio.com/2010-04-01/Accounts/{ACCOUNT_SID}/Messages/MM1/Media"

SMS = {
    # messages, "Standard parameters" and "Geographic data"; the country's blank parts are sent too
    "ToCountry": "US",
    "ToState": "CA",
    "SmsMessageSid": SID,
    "NumMedia": "0",
    "ToCity": "",
    "FromZip": "",
    "SmsSid": SID,
    "FromState": "CA",
    "SmsStatus": "received",
    "FromCity": "SAN FRANCISCO",
    "FromCountry": "US",
    "To": OURS,
    "ToZip": "",
    "NumSegments": "1",
    "MessageSid": SID,
    "AccountSid": ACCOUNT_SID,
    "From": ANA,
    "ApiVersion": "2010-04-01",
}
WHATSAPP = {
    # messages, "WhatsApp-specific parameters"; order and MessageType as logged by bots on the sandbox
    "SmsMessageSid": SID,
    "NumMedia": "0",
    "ProfileName": "Ana Núñez",
    "MessageType": "text",
    "SmsSid": SID,
    "WaId": "15557654321",
    "SmsStatus": "received",
    "To": f"whatsapp:{OURS}",
    "NumSegments": "1",
    "ReferralNumMedia": "0",
    "MessageSid": SID,
    "AccountSid": ACCOUNT_SID,
    "From": f"whatsapp:{ANA}",
    "ApiVersion": "2010-04-01",
}
_STATUS = {
    # status, "SMS/MMS"
    "SmsSid": OF_OURS,
    "SmsStatus": "sent",
    "MessageStatus": "sent",
    "To": ANA,
    "MessageSid": OF_OURS,
    "AccountSid": ACCOUNT_SID,
    "From": OURS,
    "ApiVersion": "2010-04-01",
}
_WHATSAPP_STATUS = _STATUS | {
    # status, "WhatsApp and other messaging channels"; also in the tests of the Bot Framework's Twilio WhatsApp adapter
    "ChannelToAddress": "+1555765XXXX",
    "To": f"whatsapp:{ANA}",
    "ChannelPrefix": "whatsapp",
    "From": f"whatsapp:{OURS}",
    "ChannelInstallSid": "XE00000000000000000000000000000001",
}


def _status(base: Mapping[str, str], status: str, **fields: str) -> dict[str, str]:
    return {**base, "SmsStatus": status, "MessageStatus": status, **fields}


def _media(*types: str, **fields: str) -> dict[str, str]:
    found = {"Body": "", "NumMedia": str(len(types)), **fields}
    for number, mime_type in enumerate(types):
        found |= {f"MediaUrl{number}": f"{MEDIA}/ME{number + 1}", f"MediaContentType{number}": mime_type}
    return found


_WITHOUT_PLACES = {name: value for name, value in SMS.items() if not name.startswith(("From", "To")) or len(name) < 5}

FORMS: dict[str, Mapping[str, str]] = {
    "sms text": SMS | {"Body": "delete INV-42, please"},
    "sms text in another alphabet": SMS | {"Body": "löschen 删除 🙂", "NumSegments": "1"},
    "sms by a messaging service": SMS | {"Body": "hello", "MessagingServiceSid": SERVICE},
    "sms to a short code": SMS | {"Body": "hello", "To": "12345", "MessagingServiceSid": SERVICE},
    "sms command": SMS | {"Body": "/start invoices"},
    "sms code": SMS | {"Body": "ok k7p2"},
    "sms code in Spanish": SMS | {"Body": "Si k7p2", "FromCountry": "MX", "From": "+525512345678"},
    "sms no with a code": SMS | {"Body": "NO K7P2."},
    "sms of several lines": SMS | {"Body": "delete\r\nINV-42\n\nthanks"},
    # "concatenated" messages come as one, with the number of parts
    "sms of several segments": SMS | {"Body": "please look at this: " + "long " * 70, "NumSegments": "3"},
    "sms emoji": SMS | {"Body": "👍", "NumSegments": "1"},
    "sms from a short code": SMS | {"Body": "Your parcel is on its way", "From": "40404", "FromCountry": ""},
    "sms UNSTOP": SMS | {"Body": "unstop"},
    "sms blank": SMS | {"Body": ""},
    "sms STOP": SMS | {"Body": " Stop "},
    "sms CANCEL": SMS | {"Body": "CANCEL"},
    "sms START": SMS | {"Body": "Start"},
    "sms YES": SMS | {"Body": "Yes"},
    # messages, OptOutType: only with Advanced Opt-Out, with words chosen by the operator
    "sms opt-out": SMS | {"Body": "basta", "OptOutType": "STOP"},
    "sms opt-in": SMS | {"Body": "hola", "OptOutType": "START"},
    "sms YES as opt-in": SMS | {"Body": "YES", "OptOutType": "START"},
    "sms help": SMS | {"Body": "HELP", "OptOutType": "HELP"},
    "mms picture": SMS | _media("image/jpeg", Body="this one"),
    "mms several": SMS | _media("image/png", "text/vcard", "video/3gpp"),
    "mms sound": SMS | _media("audio/amr"),
    "whatsapp text": WHATSAPP | {"Body": "delete INV-42, please"},
    "whatsapp text in another alphabet": WHATSAPP | {"Body": "удали счёт 42 🙏", "ProfileName": "Аня"},
    "whatsapp without a name": {k: v for k, v in WHATSAPP.items() if k != "ProfileName"} | {"Body": "hello"},
    "whatsapp command": WHATSAPP | {"Body": "/start invoices"},
    "whatsapp code": WHATSAPP | {"Body": "ok k7p2"},
    "whatsapp YES": WHATSAPP | {"Body": "Yes"},
    "whatsapp cancel": WHATSAPP | {"Body": "Cancel"},
    "whatsapp STOP": WHATSAPP | {"Body": "stop"},
    "whatsapp START": WHATSAPP | {"Body": "START"},
    # Advanced Opt-Out holds for the WhatsApp senders of a messaging service too:
    # https://support.twilio.com/hc/en-us/articles/360034798533
    "whatsapp opt-out": WHATSAPP | {"Body": "sair", "OptOutType": "STOP"},
    "whatsapp reply": WHATSAPP
    | {
        "Body": "yes",
        "OriginalRepliedMessageSender": f"whatsapp:{OURS}",
        "OriginalRepliedMessageSid": OF_OURS,
    },
    # messages, "Quick reply"; MessageType and ChannelMetadata as a bot on the sandbox logged them
    "whatsapp button": WHATSAPP
    | {
        "Body": "Confirm",
        "MessageType": "interactive",
        "ButtonText": "Confirm",
        "ButtonPayload": "00secret-token",
        "OriginalRepliedMessageSender": f"whatsapp:{OURS}",
        "OriginalRepliedMessageSid": OF_OURS,
        "ChannelMetadata": '{"type":"whatsapp","data":{"context":{"ButtonText":"Confirm"}}}',
    },
    "whatsapp forwarded": WHATSAPP | {"Body": "yes", "Forwarded": "true", "FrequentlyForwarded": "false"},
    "whatsapp often forwarded": WHATSAPP | {"Body": "yes", "FrequentlyForwarded": "true"},
    "whatsapp location": WHATSAPP
    | {
        "Body": "",
        "MessageType": "location",
        "Latitude": "48.2082",
        "Longitude": "-16.3738",
        "Address": "Stephansplatz 1, Wien",
        "Label": "Stephansdom",
    },
    "whatsapp voice": WHATSAPP | _media("audio/ogg; codecs=opus", MessageType="audio"),
    "whatsapp document": WHATSAPP | _media("application/pdf", MessageType="document", Body="contract.pdf"),
    "whatsapp picture": WHATSAPP | _media("image/jpeg", MessageType="image", Body="the bill"),
    "whatsapp video": WHATSAPP | _media("video/mp4", MessageType="video"),
    "whatsapp contact": WHATSAPP | _media("text/vcard", MessageType="contacts"),
    # messages, "List picker": the picked entry is the Body too
    "whatsapp list": WHATSAPP
    | {"Body": "INV-42", "MessageType": "interactive", "ListId": "inv-42", "ListTitle": "INV-42"},
    "whatsapp sticker": WHATSAPP | _media("image/webp", MessageType="sticker"),
    "whatsapp from an advertisement": WHATSAPP
    | {"Body": "I saw this", "ReferralBody": "Invoices!", "ReferralSourceType": "ad", "ReferralNumMedia": "1"},
    "whatsapp of no kind we know": WHATSAPP | {"Body": "", "MessageType": "order"},
    "rcs text": SMS | {"Body": "hello", "To": "rcs:askfirst_agent", "From": f"rcs:{ANA}"},
    "report queued": _status(_STATUS, "queued"),
    "report sending": _status(_STATUS, "sending"),
    "report sent": _STATUS,
    "report delivered": _status(_STATUS, "delivered", RawDlrDoneDate="2611220008"),
    "report undelivered": _status(_STATUS, "undelivered", ErrorCode="30003", RawDlrDoneDate="2611220008"),
    "report failed": _status(_STATUS, "failed", ErrorCode="30007"),
    "report canceled": _status(_STATUS, "canceled"),
    "report opted out": _status(_STATUS, "failed", ErrorCode="21610"),
    "report of a kind we do not know": _status(_STATUS, "teleported"),
    "whatsapp report delivered": _status(_WHATSAPP_STATUS, "delivered", EventType="DELIVERED"),
    "whatsapp report sent": _status(_WHATSAPP_STATUS, "sent", EventType="SENT"),
    "whatsapp report failed": _status(_WHATSAPP_STATUS, "failed", EventType="FAILED", ErrorCode="63024"),
    "whatsapp report read": _status(_WHATSAPP_STATUS, "read", EventType="READ"),
    "whatsapp report undelivered": _status(
        _WHATSAPP_STATUS,
        "undelivered",
        EventType="UNDELIVERED",
        ErrorCode="63016",
        ChannelStatusMessage="Failed to send freeform message because you are outside the allowed window.",
    ),
    # the rarer shapes
    "sms from abroad": SMS | {"Body": "ciao", "From": "+393401234567", "FromCountry": "IT", "FromState": ""},
    "sms without places": _WITHOUT_PLACES | {"Body": "hello"},
    "sms with an add-on's result": SMS | {"Body": "hello", "AddOns": '{"status":"successful","results":{}}'},
    "sms of ten segments": SMS | {"Body": "long " * 300, "NumSegments": "10"},
    "sms of a link": SMS | {"Body": "https://example.com/invoice?id=42&yes=1"},
    "sms of blanks around": SMS | {"Body": "  delete INV-42  "},
    "sms of a zero": SMS | {"Body": "a\0b"},
    "mms ten pictures": SMS | _media(*["image/jpeg"] * 10),
    "mms film with words": SMS | _media("video/mp4", Body="look"),
    "mms paper": SMS | _media("application/pdf", Body="the contract"),
    "mms moving picture": SMS | _media("image/gif"),
    "mms text file": SMS | _media("text/plain", Body="yes"),
    "mms calendar": SMS | _media("text/calendar"),
    "mms sound of a phone": SMS | _media("audio/3gpp"),
    "mms of no type": SMS | _media(""),
    "sms opt-out in capitals of another word": SMS | {"Body": "ARRET", "OptOutType": "STOP"},
    "whatsapp picture without words": WHATSAPP | _media("image/jpeg", MessageType="image"),
    "whatsapp picture as a reply": WHATSAPP
    | _media("image/png", MessageType="image", Body="this", OriginalRepliedMessageSid=OF_OURS)
    | {"OriginalRepliedMessageSender": f"whatsapp:{OURS}"},
    "whatsapp forwarded picture": WHATSAPP | _media("image/jpeg", MessageType="image", Forwarded="true"),
    "whatsapp spreadsheet": WHATSAPP
    | _media(
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", MessageType="document", Body="costs.xlsx"
    ),
    "whatsapp sound file": WHATSAPP | _media("audio/mpeg", MessageType="audio"),
    "whatsapp moving sticker": WHATSAPP | _media("image/webp", MessageType="sticker"),
    "whatsapp film with words": WHATSAPP | _media("video/mp4", MessageType="video", Body="watch"),
    "whatsapp location of no name": WHATSAPP
    | {"Body": "", "MessageType": "location", "Latitude": "-33.8688", "Longitude": "151.2093"},
    "whatsapp reply to oneself": WHATSAPP
    | {"Body": "yes", "OriginalRepliedMessageSender": f"whatsapp:{ANA}", "OriginalRepliedMessageSid": OF_OURS},
    "whatsapp form filled in": WHATSAPP
    | {"Body": "", "MessageType": "interactive", "InteractiveData": '{"nfm_reply":{"response_json":"{}"}}'},
    "whatsapp button of no message": WHATSAPP
    | {"Body": "Confirm", "MessageType": "button", "ButtonText": "Confirm", "ButtonPayload": "00secret-token"},
    "whatsapp from an advertisement with a picture": WHATSAPP
    | {
        "Body": "hello",
        "ReferralNumMedia": "1",
        "ReferralMediaUrl": "https://cdn.example/ad.jpg",
        "ReferralMediaContentType": "image/jpeg",
        "ReferralHeadline": "Invoices",
        "ReferralSourceId": "1202",
        "ReferralSourceType": "ad",
        "ReferralCtwaClid": "ARAbc",
    },
    "whatsapp by a user id": WHATSAPP | {"Body": "hello", "ExternalUserId": "whatsapp:ID.4566546130240823"},
    "whatsapp of a code and a picture": WHATSAPP | _media("image/jpeg", MessageType="image", Body="ok k7p2"),
}


def request(
    form: Mapping[str, str] | bytes,
    *,
    content_type: str = "application/x-www-form-urlencoded; charset=UTF-8",
    headers: Mapping[str, str] | None = None,
    url: str = "https://bot.example.com/webhooks/twilio",
) -> WebhookRequest:
    """A form, or the bytes of a form, as a request."""
    body = form if isinstance(form, bytes) else urlencode(form).encode()
    return WebhookRequest("POST", url, {"content-type": content_type, **(headers or {})}, body)


# ── The documented fields of an incoming message, each with a value, and whether it spoils ──


HARMLESS = {
    "AddOns": '{"status":"successful"}',
    "ChannelMetadata": '{"type":"whatsapp","data":{"context":{"ProfileName":"Ana"}}}',
    "ExternalUserId": "whatsapp:ID.4566546130240823",
    "Forwarded": "false",
    "FrequentlyForwarded": "false",
    "FromCity": "SAN FRANCISCO",
    "ListId": "",
    "MessageType": "text",
    "MessagingServiceSid": "MG00000000000000000000000000000001",
    "NumMedia": "0",
    "NumSegments": "2",
    "OriginalRepliedMessageSender": "whatsapp:+15550001111",
    "OriginalRepliedMessageSid": OF_OURS,
    "ProfileName": "Ana",
    "ReferralNumMedia": "0",
    "WaId": "15557654321",
}
SPOILS = {
    "Address": "Stephansplatz 1, Wien",
    "ButtonPayload": "00secret-token",
    "ButtonText": "Yes",
    "ButtonType": "REPLY",
    "FlowData": "{}",
    "Forwarded": "true",
    "FrequentlyForwarded": "true",
    "InteractiveData": "{}",
    "Label": "Stephansdom",
    "Latitude": "48.2082",
    "ListId": "yes",
    "ListTitle": "yes",
    "Longitude": "16.3738",
    "MediaContentType0": "image/jpeg",
    "MediaContentType9": "image/jpeg",
    "MediaUrl0": f"{MEDIA}/ME1",
    "MediaUrl9": f"{MEDIA}/ME1",
    "MessageType": "interactive",
    "NumMedia": "1",
    "ReferralBody": "Invoices!",
    "ReferralCtwaClid": "ARAbc",
    "ReferralHeadline": "Invoices",
    "ReferralMediaContentType": "image/jpeg",
    "ReferralMediaId": "1",
    "ReferralMediaUrl": "https://cdn.example/ad.jpg",
    "ReferralNumMedia": "1",
    "ReferralSourceId": "1202",
    "ReferralSourceType": "ad",
    "ReferralSourceUrl": "https://fb.me/ad",
}
FIELDS = [
    *(MessageField(name=name, value=value, spoils=False) for name, value in HARMLESS.items()),
    *(MessageField(name=name, value=value, spoils=True) for name, value in SPOILS.items()),
]
