"""Replies on their way into the outbox: rendered by their channel, one queued part for each call of the platform."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from channels import Address, Channel, Json, Part
from gateway.pending.desk import Say
from gateway.store.base import QueuedPart

__all__ = ["address_from_json", "address_to_json", "part_from_json", "queue"]


def queue(
    channels: Mapping[str, Channel], conversation: str, address: Address, says: Iterable[Say]
) -> list[QueuedPart]:
    """The parts of these replies, in order.

    An edit is left out where the platform cannot change a message. Where the channel is off nobody can be told: there
    are none.
    """
    queued: list[QueuedPart] = []
    channel = channels.get(address.channel)
    if channel is None:
        return queued
    for said in says:
        if said.reply.edits is not None and not channel.capabilities.edit:
            continue
        parts = list(channel.render(address, said.reply))
        for number, part in enumerate(parts, start=1):
            last = number == len(parts)
            body: dict[str, Json] = {
                "address": address_to_json(address),
                "part": _adapter(Part).dump_python(part, mode="json"),
                "shows": list(said.shows) if last else [],
                "edits": said.reply.edits,
            }
            queued.append(QueuedPart(part_id=secrets.token_hex(16), conversation=conversation, body=body))
    return queued


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
