"""Where nothing is to be sent: to who wants to hear nothing more, and where the platform lets nothing through.

Both are remembered with their conversation: the one until they take it back, the other until something comes from
there, and for a day at most: nobody tells us that a bot was let in again.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from channels import ButtonPress, Channel, DeliveryReport, Event, Message, OptedOut, OptOut, Unreachable
from gateway.store.base import Key, Put, Record, Store, Transaction

__all__ = [
    "check_suppression",
    "has_opted_out",
    "is_suppressed",
    "opt_out",
    "opt_out_key",
    "unreachable",
    "unreachable_key",
    "update_suppression",
]

_UNREACHABLE_SECONDS = 86400.0


def opt_out_key(store: Store, conversation: str) -> Key:
    return Key(store.partition(conversation), f"opted_out/{conversation}")


def unreachable_key(store: Store, conversation: str) -> Key:
    return Key(store.partition(conversation), f"unreachable/{conversation}")


def opt_out(at: datetime, *, last_words: Iterable[str] = ()) -> Put:
    """The record. `last_words` are the ids of the parts that tell them so, which still go out."""
    return Put({"at": at.isoformat(), "last_words": list(last_words)})


def unreachable(at: datetime, code: str) -> Put:
    """The record. `code` is the platform's reason."""
    return Put({"at": at.isoformat(), "code": code}, _UNREACHABLE_SECONDS)


def update_suppression(
    transaction: Transaction, store: Store, channel: Channel | None, conversation: str, event: Event, at: datetime
) -> None:
    """Remember that nothing is to be sent there, or that something may be again, as this event says."""
    opted_out, shut = (key(store, conversation).name for key in (opt_out_key, unreachable_key))
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
    """Whether this part may not go out any more to who has opted out. A record that cannot be read silences."""
    match record.value:
        case None:
            return False
        case {"last_words": list(last_words)}:
            return part_id not in last_words
        case _:
            return True


async def has_opted_out(store: Store, conversation: str) -> bool:
    key = opt_out_key(store, conversation)
    return (await store.get([key]))[key].value is not None


async def check_suppression(store: Store, conversation: str) -> None:
    """Before something is said there that nobody asked for. Raises OptedOut and Unreachable."""
    keys = opt_out_key(store, conversation), unreachable_key(store, conversation)
    snapshot = await store.get(keys)
    opted_out, shut = (snapshot[key].value for key in keys)
    if opted_out is not None:
        raise OptedOut("opted_out")
    match shut:
        case None:
            return
        case {"code": str(code)}:
            raise Unreachable(code)
        case _:
            raise Unreachable("unknown")
