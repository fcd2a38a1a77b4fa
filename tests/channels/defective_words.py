"""Channels with one defect each in reading a person's words; see defective.py."""

from __future__ import annotations

from channels import Message, Parsed, Receipt, WebhookRequest
from channels.slack import SlackChannel
from channels.telegram import TelegramChannel
from channels.twilio import WhatsAppChannel
from channels.webchat import WebChatChannel
from gateway.testing import ChannelContract
from tests.channels.defects import every_event, seen_by

__all__: list[str] = []


@seen_by(ChannelContract.test_words_alone_are_not_spoiled)
class TrustsNobody(TelegramChannel):
    """Every message is spoiled. No answer counts."""

    def parse(self, request: WebhookRequest) -> Parsed:
        return every_event(super().parse(request), spoiled_by=("text",))


@seen_by(ChannelContract.test_each_documented_field_spoils_or_does_not)
class TrustsQuotes(TelegramChannel):
    """A yes to a message of another chat counts as a yes here."""

    def parse(self, request: WebhookRequest) -> Parsed:
        parsed = super().parse(request)
        if isinstance(event := next(iter(parsed.events), None), Message) and event.spoiled_by == ("external_reply",):
            return every_event(parsed, spoiled_by=())
        return parsed


@seen_by(ChannelContract.test_each_documented_field_spoils_or_does_not)
class TrustsStyles(SlackChannel):
    """A struck-through yes counts as a yes."""

    def parse(self, request: WebhookRequest) -> Parsed:
        parsed = super().parse(request)
        if isinstance(event := next(iter(parsed.events), None), Message) and event.spoiled_by == ("blocks.strike",):
            return every_event(parsed, spoiled_by=())
        return parsed


@seen_by(ChannelContract.test_each_documented_field_spoils_or_does_not)
class OldRelease(TelegramChannel):
    """A documented field is reported as unknown."""

    def parse(self, request: WebhookRequest) -> Parsed:
        parsed = super().parse(request)
        return every_event(parsed, unknown_fields=("sender_tag",)) if b"sender_tag" in request.body else parsed


@seen_by(ChannelContract.test_unknown_field_is_named_and_changes_no_other_field)
class IgnoresNews(WhatsAppChannel):
    """Unknown fields are not reported."""

    def parse(self, request: WebhookRequest) -> Parsed:
        parsed = super().parse(request)
        return every_event(parsed, unknown_fields=()) if isinstance(parsed.events[0], Message) else parsed


@seen_by(ChannelContract.test_a_word_is_told_to_be_before_or_after_ours)
class AlwaysAfter(TelegramChannel):
    """A late delivery is taken for an answer."""

    def follows(self, message: Message, receipt: Receipt) -> bool:
        return True


@seen_by(ChannelContract.test_a_word_is_told_to_be_before_or_after_ours)
class RoundsStamps(SlackChannel):
    """Two messages of one second have no order."""

    def follows(self, message: Message, receipt: Receipt) -> bool:
        return float(message.message_id or 0) // 1 > float(receipt.message_id or 0) // 1


@seen_by(ChannelContract.test_no_message_follows_a_receipt_without_usable_ids)
class NothingIsEqual(WebChatChannel):
    """A message after no entry counts as an answer to a receipt without an id."""

    def follows(self, message: Message, receipt: Receipt) -> bool:
        return message.after == receipt.message_id or receipt.message_id is None


@seen_by(ChannelContract.test_no_message_follows_a_receipt_without_usable_ids, ValueError)
class OnlyNumbers(TelegramChannel):
    """A non-numeric id breaks the comparison."""

    def follows(self, message: Message, receipt: Receipt) -> bool:
        return int(message.message_id or 0) > int(receipt.message_id or 10**20)
