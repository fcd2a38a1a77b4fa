"""The fields of an incoming message's form, harmless and spoiling.

https://www.twilio.com/docs/messaging/guides/webhook-request. ``ExternalUserId`` identifies a person on WhatsApp without
their number.
"""

from __future__ import annotations

from collections.abc import Mapping

from channels.fields import Fields, Judged

__all__ = ["FIELDS", "MOST_MEDIA", "judge"]

MOST_MEDIA = 10
"""The most files of one message."""
_USUAL = {
    "Forwarded": "false",
    "FrequentlyForwarded": "false",
    "MessageType": "text",
    "NumMedia": "0",
    "ReferralNumMedia": "0",
}
"""Fields of each message, with their value for plain words. Any other value spoils the message."""

FIELDS = Fields(
    harmless=frozenset(
        """AccountSid AddOns ApiVersion Body ChannelInstallSid ChannelMetadata ChannelPrefix ChannelToAddress
        ExternalUserId From FromCity FromCountry FromState FromZip MessageSid MessageStatus MessagingServiceSid
        NumSegments OptOutType OriginalRepliedMessageSender OriginalRepliedMessageSid ParentExternalUserId ProfileName
        SmsMessageSid SmsSid SmsStatus To ToCity ToCountry ToState ToZip WaId""".split()  # noqa: SIM905
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
    """Return the names of the fields that spoil a message, and of the unknown ones."""
    spoiled_by, unknown_fields = FIELDS.judge(form)
    unusual = tuple([name for name, usual in _USUAL.items() if form.get(name, usual) not in (usual, "")])
    return spoiled_by + unusual, unknown_fields
