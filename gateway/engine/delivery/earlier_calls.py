"""Asks the platform about earlier calls of a part: by the reports that it sent, or by a look-up."""

from __future__ import annotations

from dataclasses import dataclass

from channels import CanLookUp, Receipt, SendError
from gateway.engine.context import EngineContext
from gateway.engine.delivery import reports
from gateway.engine.delivery.outgoing import OutgoingPart

__all__ = ["EarlierCall", "find_earlier_call", "look_up"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierCall:
    """The platform's answer about an earlier call. Neither field is set while the platform cannot tell."""

    receipt: Receipt | None = None
    """The receipt of the call, which arrived."""
    absent: bool = False
    """No call arrived, as far as the platform shows its messages by now."""


async def find_earlier_call(context: EngineContext, out: OutgoingPart) -> EarlierCall:
    """Return the answer of the platform's reports about an earlier call of this part, else that of a look-up."""
    if out.channel.capabilities.reports:
        message_id = await reports.message_of(context, out.queued)
        if message_id is not None:
            return EarlierCall(receipt=Receipt(message_id=message_id))
    return await look_up(context, out)


async def look_up(context: EngineContext, out: OutgoingPart) -> EarlierCall:
    """Look a part up on the platform, where that is possible.

    Right after a call `absent` is no proof: the message may show up later.
    """
    channel, queued = out.channel, out.queued
    if not isinstance(channel, CanLookUp) or queued.stamp is None:
        return EarlierCall()
    try:
        found = await channel.look_up(out.address, out.part, key=queued.part_id, since=queued.stamp)
    except SendError:
        return EarlierCall()
    if found is not None and found.message_id is not None and channel.capabilities.reports:
        is_another = await reports.is_known(context, queued.conversation, found.message_id)
        return EarlierCall(absent=True) if is_another else EarlierCall(receipt=found)
    return EarlierCall(receipt=found, absent=found is None)
