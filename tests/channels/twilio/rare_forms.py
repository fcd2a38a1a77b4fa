"""More of what Twilio posts: the rarer shapes of `tests.channels.twilio.forms`, from the same sources."""

from __future__ import annotations

from collections.abc import Mapping

from tests.channels.twilio.forms import ANA, MEDIA, OF_OURS, OURS, SMS, WHATSAPP

__all__ = ["RARE_FORMS"]


def _media(*types: str, **fields: str) -> dict[str, str]:
    found = {"Body": "", "NumMedia": str(len(types)), **fields}
    for number, mime_type in enumerate(types):
        found |= {f"MediaUrl{number}": f"{MEDIA}/ME{number}", f"MediaContentType{number}": mime_type}
    return found


_WITHOUT_PLACES = {name: value for name, value in SMS.items() if not name.startswith(("From", "To")) or len(name) < 5}

RARE_FORMS: dict[str, Mapping[str, str]] = {
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
