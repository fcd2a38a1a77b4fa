"""Replies on their way into the outbox: rendered by their channel, one queued part for each call of the platform."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from channels import Address, Channel, Json, Part, Reply
from gateway.pending.actions import OutgoingReply
from gateway.pending.seal import Keyring
from gateway.store.base import Incoming, QueuedPart, Timer

__all__ = [
    "PartRenderer",
    "address_from_json",
    "address_to_json",
    "part_from_json",
    "schedule_reply",
    "scheduled_reply",
]


class PartRenderer:
    """Makes queued parts of replies, sealed so that nobody without the key can put others in their place."""

    def __init__(self, channels: Mapping[str, Channel], keyring: Keyring) -> None:
        self._channels, self._keyring = channels, keyring

    def render(
        self,
        conversation: str,
        address: Address | None,
        replies: Iterable[OutgoingReply],
        *,
        cause: str,
        language: str = "en",
    ) -> list[QueuedPart]:
        """Return the parts of these replies: what is new in order, then edits, so that no answer waits for an edit.

        `cause` names the event they answer, for the log; `language` is that of what has to be said about them. An edit
        is left out where the platform cannot change a message. Without an address, or where its channel is off, there
        are none.
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
                body: dict[str, Json] = {
                    "address": address_to_json(address),
                    "part": _adapter(Part).dump_python(part, mode="json"),
                    "shows": list(said.shows) if last else [],
                    "asks": list(said.shows or said.asks),
                    "tells": list(said.tells),
                    "alone": said.alone,
                    "edits": said.reply.edits,
                    "cause": cause,
                    "language": language,
                }
                queued.append(
                    QueuedPart(
                        part_id=secrets.token_hex(16),
                        conversation=conversation,
                        body=self._keyring.stamped("part", conversation, body),
                        pool=address.channel,
                    )
                )
        return queued


def schedule_reply(keyring: Keyring, conversation: str, address: Address, reply: Reply, due: datetime) -> Timer:
    """Has this reply said when it is due; see `said_later`."""
    event_id = f"notify/{secrets.token_hex(16)}"
    body: dict[str, Json] = {
        "kind": "notify",
        "event_ids": [event_id],
        "address": address_to_json(address),
        "reply": _adapter(Reply).dump_python(reply, mode="json"),
    }
    body = keyring.stamped("event", conversation, body)
    incoming = Incoming(conversation=conversation, event_ids=(event_id,), body=body, decides=True, wakes=False)
    return Timer(timer_id=event_id, due=due, incoming=incoming)


def scheduled_reply(body: Mapping[str, Json]) -> tuple[Address, Reply]:
    """Where, and what."""
    reply: Reply = _adapter(Reply).validate_python(body["reply"])
    return address_from_json(body["address"]), reply


def part_from_json(stored: Json) -> Part:
    part: Part = _adapter(Part).validate_python(stored)
    return part


def address_to_json(address: Address) -> Json:
    stored: Json = _adapter(Address).dump_python(address, mode="json")
    return stored


def address_from_json(stored: Json) -> Address:
    address: Address = _adapter(Address).validate_python(stored)
    return address


@cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)
