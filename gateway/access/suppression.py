"""The suppression list: people that opted out, and conversations to which the platform refuses to deliver.

Both are stored with their conversation. An opt-out stays until the person takes the opt-out back. An unreachable
conversation stays on the list until a message, a press or a report of the chat comes from there, for a day at most: no
platform reports that a bot was let in again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from channels import ButtonPress, Channel, DeliveryReport, Event, Message, OptedOut, OptOut, Unreachable
from gateway.store.base import Store
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Record
from gateway.stored import keys

_UNREACHABLE_SECONDS = 86400.0


def opt_out(at: datetime, *, last_words: Iterable[str] = ()) -> Put:
    """Return the record of an opt-out.

    `last_words` are the ids of the parts with the acknowledgement of the opt-out to the person. These parts are still
    sent.
    """
    return Put({"at": at.isoformat(), "last_words": list(last_words)})


def unreachable(at: datetime, code: str) -> Put:
    """Return the record of an unreachable conversation. Expires after a day. `code` is the platform's reason."""
    return Put({"at": at.isoformat(), "code": code}, _UNREACHABLE_SECONDS)


def update_suppression(
    transaction: Transaction, channel: Channel | None, conversation: str, event: Event, at: datetime
) -> None:
    """Put this conversation on the suppression list, or take the conversation off, according to the event."""
    opted_out, shut = keys.opted_out(conversation), keys.unreachable(conversation)
    can_still_write = channel is None or channel.capabilities.opt_out
    match event:
        case OptOut(opted_in=True):
            transaction.deletes += [opted_out, shut]
        case OptOut() if can_still_write:
            transaction.puts[opted_out] = opt_out(at, last_words=[part.part_id for part in transaction.parts])
        case OptOut():
            transaction.puts[shut] = unreachable(at, "blocked")
        case DeliveryReport(message_id=None, status="failed"):
            transaction.puts[shut] = unreachable(at, event.code or "failed")
        case DeliveryReport(message_id=None) | Message() | ButtonPress():
            transaction.deletes.append(shut)


def is_suppressed(record: Record, part_id: str) -> bool:
    """Return True if a part must not be sent because of an opt-out.

    `record` is the record of `keys.opted_out`. An unreadable record suppresses every part.
    """
    match record.value:
        case None:
            return False
        case {"last_words": list(last_words)}:
            return part_id not in last_words
        case _:
            return True


async def has_opted_out(store: Store, conversation: str) -> bool:
    """Return True if the person of this conversation opted out."""
    key = keys.key(store, conversation, keys.opted_out)
    return (await store.get([key]))[key].value is not None


async def check_suppression(store: Store, conversation: str) -> None:
    """Check the suppression list before a message not requested by the person.

    Raises OptedOut when the person opted out, and Unreachable when the platform refuses to deliver.
    """
    both = [keys.key(store, conversation, name) for name in (keys.opted_out, keys.unreachable)]
    snapshot = await store.get(both)
    opted_out, shut = (snapshot[key].value for key in both)
    if opted_out is not None:
        raise OptedOut("opted_out")
    match shut:
        case None:
            return
        case {"code": str(code)}:
            raise Unreachable(code)
        case _:
            raise Unreachable("unknown")
