"""Rendering of replies for the outbox: the channel renders a reply into a queued part for each platform call."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from channels import Address, CanReroute, Channel, Part, Reply
from gateway.pending.actions import OutgoingReply
from gateway.pending.seal import Keyring
from gateway.store.transaction import Timer
from gateway.store.types import Incoming, QueuedPart
from gateway.stored.events import Notification, body_of
from gateway.stored.outbox import NOTHING, OutboxItem


class PartRenderer:
    """Renders replies into queued parts with a seal. A part changed in the store is not sent."""

    def __init__(self, channels: Mapping[str, Channel], keyring: Keyring) -> None:
        self._channels, self._keyring = channels, keyring

    def render(
        self,
        conversation: str,
        address: Address | None,
        replies: Iterable[OutgoingReply],
        *,
        cause: str,
        language: str,
        streamed: Sequence[str] = (),
        in_place: bool = True,
        reader: str = "",
    ) -> list[QueuedPart]:
        """Return the parts of these replies: new messages in order, then edits, so no answer waits for an edit.

        `cause` is the id of the answered event, for the log. `language` is used for later messages about the parts. An
        edit is left out if the platform cannot change a message. Without an address, or with the channel off, the list
        is empty.

        `streamed`: messages with the beginning of the answer. If the first reply is text alone and `in_place` is set,
        the first parts replace these messages. A question never replaces a message, because a question has to be newer
        than all earlier text. The remaining streamed messages are removed before all other parts.

        `reader`: the person who may read the replies in private, if a group refuses them.
        """
        queued: list[QueuedPart] = []
        left = list(streamed)
        channel = self._channels.get(address.channel) if address is not None else None
        if channel is None or address is None:
            return queued
        in_order = sorted(replies, key=lambda said: said.reply.edits is not None)
        first = in_order[0] if in_order else None
        for said in in_order:
            if said.reply.edits is not None and not channel.capabilities.edit:
                continue
            parts = _parts(channel, address, said)
            for number, part in enumerate(parts, start=1):
                last = number == len(parts)
                finishes = left.pop(0) if left and in_place and said is first and _is_text(said) else None
                item = OutboxItem.of(
                    address,
                    part,
                    shows=said.shows if last else (),
                    asks=said.shows or said.asks,
                    tells=said.tells,
                    alone=said.alone,
                    listed=said.listed if last else (),
                    intent=said.intent if last else None,
                    edits=said.reply.edits,
                    finishes=finishes,
                    cause=cause,
                    language=language,
                    reader=reader if address.group or said.news_of is not None else "",
                    only_to=said.only_to,
                    refused_at=said.news_of if said.news_of is not None and said.news_of.group else None,
                    news=said.reply.text if last and (said.tells or said.news_of is not None) else "",
                    news_at=said.news_at,
                )
                queued.append(self.queued(conversation, item))
        gone = [_taking_away(address, message_id, cause=cause, language=language) for message_id in left]
        return [*(self.queued(conversation, item) for item in gone), *queued]

    def queued(self, conversation: str, item: OutboxItem) -> QueuedPart:
        """Return the part of this item, with a seal."""
        return QueuedPart(
            part_id=secrets.token_hex(16),
            conversation=conversation,
            body=self._keyring.stamped("part", conversation, item.to_json()),
            pool=item.address.channel,
        )


def _parts(channel: Channel, address: Address, said: OutgoingReply) -> list[Part]:
    """Return the calls for a reply; without those that the platform cannot show to a single person of a group."""
    parts = channel.render(address, said.reply)
    if not said.only_to:
        return list(parts)
    if not isinstance(channel, CanReroute):
        return []
    alone = [channel.reroute(part, address, only_to=said.only_to, buttons=True) for part in parts]
    return [part for part in alone if part is not None]


def _is_text(said: OutgoingReply) -> bool:
    """Return True for a new message of text alone: no edit, no buttons, no files, no actions for a bare reply."""
    reply = said.reply
    return not (reply.buttons or reply.media or reply.edits is not None or said.shows or said.asks or said.tells)


def _taking_away(address: Address, message_id: str, *, cause: str, language: str) -> OutboxItem:
    return OutboxItem.of(
        address,
        NOTHING,
        shows=(),
        asks=(),
        tells=(),
        alone=False,
        edits=None,
        finishes=message_id,
        cause=cause,
        language=language,
    )


def schedule_reply(keyring: Keyring, conversation: str, address: Address, reply: Reply, due: datetime) -> Timer:
    """Return a timer delivering this reply as a `Notification` at `due`."""
    event_id = f"notify/{secrets.token_hex(16)}"
    incoming = scheduled_reply(keyring, conversation, address, reply, event_id=event_id)
    return Timer(timer_id=event_id, due=due, incoming=incoming)


def scheduled_reply(keyring: Keyring, conversation: str, address: Address, reply: Reply, *, event_id: str) -> Incoming:
    """Return the event delivering this reply. Events with the same id are deduplicated."""
    event = Notification(event_ids=(event_id,), address=address, reply=reply)
    body = keyring.stamped("event", conversation, body_of(event))
    return Incoming(conversation=conversation, event_ids=(event_id,), body=body, decides=True, wakes=False)
