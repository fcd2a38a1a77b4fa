"""The documented fields of an incoming message, each with a value, and whether it spoils.

https://www.twilio.com/docs/messaging/guides/webhook-request; `ExternalUserId`, `ChannelMetadata` and the fields of
interactive messages as public bots on WhatsApp have logged them.
"""

from __future__ import annotations

from gateway.testing import MessageField
from tests.channels.twilio.forms import MEDIA, OF_OURS

__all__ = ["FIELDS"]

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
