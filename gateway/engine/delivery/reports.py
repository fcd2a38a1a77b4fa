"""Delivery reports: a platform's later status of an accepted message.

A platform reports on a message more than once, in any order, and even before answering the sending call. A record for
each message holds the part and the status. The first of receipt and report creates the record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from channels import DeliveryReport, Json
from gateway.engine.context import EngineContext
from gateway.pending.actions import ConversationActions
from gateway.pending.settling import not_arrived
from gateway.store.transaction import Put, Transaction
from gateway.store.types import Dead, Key, QueuedPart, Record
from gateway.stored import keys
from gateway.stored.outbox import OutboxItem

_KEPT_SECONDS = 86400.0
_RANK = {"sent": 0, "failed": 1, "delivered": 2, "read": 3}
"""A report counts if ranked higher than all earlier reports: an arrived message cannot fail later."""


@dataclass(frozen=True, slots=True)
class LostMessage:
    """A message accepted by the platform that did not arrive."""

    why: str
    queued: QueuedPart | None
    """The part, now a dead letter. None if the message is not the gateway's, or if the part's actions have ended."""


async def record_receipt(
    transaction: Transaction, context: EngineContext, queued: QueuedPart, message_id: str
) -> str | None:
    """Add the part of this message to the transaction.

    Returns the reason if a report has already marked the message as failed.
    """
    key = _message_key(context, queued.conversation, message_id)
    record = (await context.store.get([key]))[key]
    known = _fields(record)
    status = known.get("status")
    forget(transaction, context, queued)
    if status == "failed":
        return _why(known.get("code"))
    if status in (None, "sent"):
        part: Json = {"part_id": queued.part_id, "pool": queued.pool, "body": {**queued.body}}
        transaction.expect[key.name] = record.version
        transaction.puts[key.name] = Put({"status": "sent", "part": part}, _KEPT_SECONDS)
    return None


async def record_report(
    transaction: Transaction, context: EngineContext, conversation: str, reported: DeliveryReport, at: datetime
) -> tuple[ConversationActions, LostMessage] | None:
    """Add a report to the transaction. A lost part becomes a dead letter, and the actions of the part end.

    Returns None unless the report is the first about the failure of a message. The caller writes the returned actions.
    """
    if reported.message_id is None:
        return None
    key = _message_key(context, conversation, reported.message_id)
    record = (await context.store.get([key]))[key]
    known = _fields(record)
    status = known.get("status", "")
    if _RANK[reported.status] <= (_RANK.get(status, -1) if isinstance(status, str) else -1):
        return None
    part = known.get("part")
    transaction.expect[key.name] = record.version
    arrived = known.get("at") or (at.isoformat() if reported.status in ("delivered", "read") else None)
    transaction.puts[key.name] = Put(
        {
            "status": reported.status,
            "code": reported.code,
            "part": part if reported.status == "sent" else None,
            "at": arrived,
        },
        _KEPT_SECONDS,
    )
    if record.value is None and reported.key is not None:
        part_key = _part_key(context, conversation, reported.key)
        transaction.puts[part_key.name] = Put(reported.message_id, _KEPT_SECONDS)
    if reported.status != "failed":
        return None
    actions = await context.actions(conversation)
    queued = _part_from_json(conversation, part)
    asks = OutboxItem.from_json(queued.body).asks if queued is not None else ()
    unasked = not_arrived(actions, reported.message_id, asks, at)
    why = _why(reported.code)
    if queued is None or (asks and not unasked):
        return actions, LostMessage(why, None)
    transaction.dead.append(Dead(dead_id=queued.part_id, conversation=conversation, reason=why, part=queued))
    forget(transaction, context, queued)
    return actions, LostMessage(why, queued)


async def arrived_at(context: EngineContext, conversation: str, message_id: str) -> datetime | None:
    """Return the time of the first report of this message as delivered or read. None without a report."""
    key = _message_key(context, conversation, message_id)
    at = _fields((await context.store.get([key]))[key]).get("at")
    return datetime.fromisoformat(at) if isinstance(at, str) and at else None


async def message_of(context: EngineContext, queued: QueuedPart) -> str | None:
    """Return the message id of a part, if a report named the message before the answer of a call."""
    key = _part_key(context, queued.conversation, queued.part_id)
    value = (await context.store.get([key]))[key].value
    return None if value is None else str(value)


async def is_known(context: EngineContext, conversation: str, message_id: str) -> bool:
    """Return True if a receipt or a report has named this message.

    The message belongs to another part, unless `message_of` of this part returns its id.
    """
    key = _message_key(context, conversation, message_id)
    return (await context.store.get([key]))[key].value is not None


def forget(transaction: Transaction, context: EngineContext, queued: QueuedPart) -> None:
    """Delete the record of `message_of`: a part sent again becomes another message."""
    transaction.deletes.append(_part_key(context, queued.conversation, queued.part_id).name)


def _fields(record: Record) -> Mapping[str, Json]:
    return record.value if isinstance(record.value, dict) else {}


def _part_from_json(conversation: str, stored: Json) -> QueuedPart | None:
    match stored:
        case {"part_id": str(part_id), "pool": str(pool), "body": dict(body)}:
            return QueuedPart(part_id=part_id, conversation=conversation, body=body, pool=pool)
        case _:
            return None


def _message_key(context: EngineContext, conversation: str, message_id: str) -> Key:
    return keys.key(context.store, conversation, keys.platform_message, message_id)


def _part_key(context: EngineContext, conversation: str, part_id: str) -> Key:
    return keys.key(context.store, conversation, keys.part_message, part_id)


def _why(code: object) -> str:
    return f"taken by the platform, but it did not arrive: {code or 'no reason is known'}"
