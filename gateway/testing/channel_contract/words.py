"""Tests of typed words: a channel tells if a person typed them here, and if after the bot's message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from channels import CanOrder, Channel, Message, Receipt
from gateway.testing.channel_contract.case import ChannelCase, Webhook
from gateway.testing.channel_contract.helpers import Chat, Contract, webhook_test, with_proof, without_io
from gateway.testing.channel_contract.parse import events_of, message_of, parse_or_none

_NOBODYS = "field_of_tomorrow"
_NO_IDS = ("", " ", "x", "-1", "+9", "1e9", "0x7fff", "1_0", "NaN", "٩٩٩٩٩٩٩٩٩٩٩", "9" * 5_000)


class WordsContract(Contract):
    @webhook_test
    async def test_words_alone_are_not_spoiled(self, webhook: Webhook, channel: Channel) -> None:
        for text in ("yes", "OK K7P2", "delete INV-42"):
            message = message_of(channel, webhook, text)
            assert (message.spoiled_by, message.unknown_fields, message.replayed) == ((), (), False)

    @webhook_test
    async def test_each_documented_field_spoils_or_does_not(self, webhook: Webhook, channel: Channel) -> None:
        assert webhook.fields or channel.capabilities.bare_yes == "never", "give the case `fields` and `holding`"
        for field in webhook.fields:
            named = f"{field.name}: {field.value!r}"
            messages = messages_with(channel, webhook, {field.name: field.value})
            assert messages or field.spoils, f"not read any more with {named}"
            for message in messages:
                assert bool(message.spoiled_by) == field.spoils, f"{message.spoiled_by} with {named}"
                assert message.unknown_fields == (), f"documented, and yet not known: {named}"

    @webhook_test
    async def test_a_field_nobody_knows_is_named_and_no_more(self, webhook: Webhook, channel: Channel) -> None:
        """A channel that serves only its own page may refuse this message instead."""
        if webhook.holding is None:
            return
        [plain] = messages_with(channel, webhook, {})
        if parse_or_none(channel, with_proof(webhook, webhook.holding({_NOBODYS: "1"}))) is None:
            return
        [odd] = messages_with(channel, webhook, {_NOBODYS: "1"})
        assert odd.unknown_fields == (_NOBODYS,)
        one, two = (replace(each, event_ids=(), message_id=None, sent_at=None) for each in (plain, odd))
        assert replace(two, unknown_fields=()) == one

    async def test_a_word_is_told_to_be_before_or_after_ours(
        self, case: ChannelCase, channel: Channel, chat: Chat
    ) -> None:
        if not isinstance(channel, CanOrder):
            return
        assert case.answered is not None, "give the case `answered`"
        for receipt in [(await chat.say(words))[-1] for words in ("one", "two")]:
            early, late = case.answered(receipt, False), case.answered(receipt, True)
            with without_io("follows"):
                assert channel.follows(late, receipt) is True
                assert channel.follows(early, receipt) is False

    async def test_no_order_where_there_is_nothing_to_go_by(
        self, case: ChannelCase, channel: Channel, chat: Chat
    ) -> None:
        if not isinstance(channel, CanOrder) or case.answered is None:
            return
        [receipt] = await chat.say("one")
        late = case.answered(receipt, True)
        assert not channel.follows(late, replace(receipt, message_id=None))
        assert not channel.follows(replace(late, message_id=None, after=None), receipt)
        assert not channel.follows(replace(late, message_id=receipt.message_id, after=None), receipt)
        for odd in _NO_IDS:
            assert not channel.follows(replace(late, message_id=odd, after=odd), receipt), odd[:20]
            assert not channel.follows(late, Receipt(message_id=odd)), odd[:20]


def messages_with(channel: Channel, webhook: Webhook, fields: Mapping[str, Any]) -> list[Message]:
    """Return the messages that `parse` reads from a "yes" with these fields; empty if it reads no message."""
    assert webhook.holding is not None, "give the case `holding`"
    events = events_of(channel, webhook.holding(fields), webhook)
    return [event for event in events if isinstance(event, Message)]
