"""Replies on their way into the outbox: rendered by their channel, one queued part for each call of the platform."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime

from channels import Address, Channel, Reply
from gateway.pending.actions import OutgoingReply
from gateway.pending.seal import Keyring
from gateway.store.transaction import Timer
from gateway.store.types import Incoming, QueuedPart
from gateway.stored.events import Notification, body_of
from gateway.stored.outbox import OutboxItem

__all__ = ["PartRenderer", "schedule_reply"]


class PartRenderer:
    """Renders replies into queued parts, each with a seal: a part that was changed in the store is not sent."""

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
    ) -> list[QueuedPart]:
        """Return the parts of these replies: new messages in order, then edits, so that no answer waits for an edit.

        `cause` is the id of the event that they answer, for the log. `language` is used for later messages about the
        parts. An edit is left out if the platform cannot change a message. Without an address, or with its channel
        off, the list is empty.
        """
        queued: list[QueuedPart] = []
        channel = self._channels.get(address.channel) if address is not None else None
        if channel is None or address is None:
            return queued
        for said in sorted(replies, key=lambda said: said.reply.edits is not None):
            if said.reply.edits is not None and not channel.capabilities.edit:
                continue
            parts = list(channel.render(address, said.reply))
            for number, part in enumerate(parts, start=1):
                last = number == len(parts)
                item = OutboxItem.of(
                    address,
                    part,
                    shows=said.shows if last else (),
                    asks=said.shows or said.asks,
                    tells=said.tells,
                    alone=said.alone,
                    edits=said.reply.edits,
                    cause=cause,
                    language=language,
                )
                queued.append(
                    QueuedPart(
                        part_id=secrets.token_hex(16),
                        conversation=conversation,
                        body=self._keyring.stamped("part", conversation, item.to_json()),
                        pool=address.channel,
                    )
                )
        return queued


def schedule_reply(keyring: Keyring, conversation: str, address: Address, reply: Reply, due: datetime) -> Timer:
    """Return a timer that brings this reply as a `Notification` when it is due."""
    event_id = f"notify/{secrets.token_hex(16)}"
    event = Notification(event_ids=(event_id,), address=address, reply=reply)
    body = keyring.stamped("event", conversation, body_of(event))
    incoming = Incoming(conversation=conversation, event_ids=(event_id,), body=body, decides=True, wakes=False)
    return Timer(timer_id=event_id, due=due, incoming=incoming)
