"""What a platform says later of a message that it took: more than once, in any order, and even before it has answered
our call.

One record a message says what was sent and what became of it. Whoever comes first makes it: the receipt, or a report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from channels import DeliveryReport, Json
from gateway.engine.context import EngineContext
from gateway.pending.actions import ConversationActions
from gateway.pending.settling import not_arrived
from gateway.store.base import Dead, Key, Put, QueuedPart, Record, Transaction

__all__ = ["Lost", "arrived_at", "forget", "is_known", "known_as", "receipt", "report"]

_KEPT_SECONDS = 86400.0
_RANK = {"sent": 0, "failed": 1, "delivered": 2, "read": 3}
"""A report counts when it says more than those before it: what arrived has arrived, whatever is said later."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A message that the platform took and that did not arrive."""

    why: str
    queued: QueuedPart | None
    """What was in it; None when it was not ours, or all of it was answered already."""


async def receipt(context: EngineContext, transaction: Transaction, queued: QueuedPart, message_id: str) -> str | None:
    """Remember which part this message is. What a report has said before now if that was that it did not arrive."""
    key = _message_key(context, queued.conversation, message_id)
    record = (await context.store.get([key]))[key]
    known = _known(record)
    status = known.get("status")
    forget(context, transaction, queued)
    if status == "failed":
        return _why(known.get("code"))
    if status in (None, "sent"):
        part: Json = {"part_id": queued.part_id, "pool": queued.pool, "body": cast("Json", dict(queued.body))}
        transaction.expect[key.name] = record.version
        transaction.puts[key.name] = Put({"status": "sent", "part": part}, _KEPT_SECONDS)
    return None


async def report(
    context: EngineContext, transaction: Transaction, conversation: str, reported: DeliveryReport, at: datetime
) -> tuple[ConversationActions, Lost] | None:
    """Write down what is reported; what did not arrive becomes a dead letter, and what it asked was never asked.

    None unless it is news that something did not arrive.
    """
    if reported.message_id is None:
        return None
    key = _message_key(context, conversation, reported.message_id)
    record = (await context.store.get([key]))[key]
    known = _known(record)
    if _RANK[reported.status] <= _RANK.get(known.get("status", ""), -1):
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
        taken = _part_key(context, conversation, reported.key)
        transaction.puts[taken.name] = Put(reported.message_id, _KEPT_SECONDS)
    if reported.status != "failed":
        return None
    actions = await context.actions(conversation)
    queued = QueuedPart(conversation=conversation, **part) if part else None
    asks = queued.body.get("asks", ()) if queued is not None else ()
    unasked = not_arrived(actions, reported.message_id, cast("list[str]", asks), at)
    why = _why(reported.code)
    if queued is None or (asks and not unasked):
        return actions, Lost(why, None)
    transaction.dead.append(Dead(dead_id=queued.part_id, conversation=conversation, reason=why, part=queued))
    forget(context, transaction, queued)
    return actions, Lost(why, queued)


async def arrived_at(context: EngineContext, conversation: str, message_id: str) -> datetime | None:
    """Return when it was first reported that a message of ours was delivered or read; None: it was not yet."""
    key = _message_key(context, conversation, message_id)
    known = cast("Mapping[str, Any]", (await context.store.get([key]))[key].value or {})
    return datetime.fromisoformat(known["at"]) if known.get("at") else None


async def known_as(context: EngineContext, queued: QueuedPart) -> str | None:
    """The message that a part has become, when its call was never answered but a report has named it."""
    key = _part_key(context, queued.conversation, queued.part_id)
    return cast("str | None", (await context.store.get([key]))[key].value)


async def is_known(context: EngineContext, queued: QueuedPart, message_id: str) -> bool:
    """Whether a receipt or a report has named this message already: it is then some other part's, if not `known_as`."""
    key = _message_key(context, queued.conversation, message_id)
    return (await context.store.get([key]))[key].value is not None


def forget(context: EngineContext, transaction: Transaction, queued: QueuedPart) -> None:
    """Which message a part has become: sent again, it becomes another one."""
    transaction.deletes.append(_part_key(context, queued.conversation, queued.part_id).name)


def _known(record: Record) -> Mapping[str, Any]:
    return record.value if isinstance(record.value, dict) else {}


def _message_key(context: EngineContext, conversation: str, message_id: str) -> Key:
    return context.key(conversation, f"message/{message_id}")


def _part_key(context: EngineContext, conversation: str, part_id: str) -> Key:
    return context.key(conversation, f"taken/{part_id}")


def _why(code: object) -> str:
    return f"taken by the platform, but it did not arrive: {code or 'no reason is known'}"
