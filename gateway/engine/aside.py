"""Parts that nobody will get: kept for a person to look at; what they asked was never asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from channels import OptedOut, Person, Unreachable
from gateway.access.silence import opt_out, opt_out_key, unreachable, unreachable_key
from gateway.engine import doubt, reports
from gateway.engine.outgoing import address_from_json, part_from_json
from gateway.engine.shared import Shared
from gateway.store.base import Dead, QueuedPart, Transaction

__all__ = ["put_aside"]


async def put_aside(
    shared: Shared,
    transaction: Transaction,
    parts: Sequence[QueuedPart],
    reason: str,
    *,
    shut: OptedOut | Unreachable | None = None,
) -> None:
    """Make dead letters of these parts of one conversation; `shut`: nothing gets through there, the platform says now.

    That is remembered, and what who has opted out had asked for is withdrawn.
    """
    conversation, store = parts[0].conversation, shared.store
    for queued in parts:
        if shut is None or _is_news(queued):
            transaction.dead.append(Dead(dead_id=queued.part_id, conversation=conversation, reason=reason, part=queued))
        reports.forget(shared, transaction, queued)
        doubt.forget(shared, transaction, queued)
    asks = [action_id for queued in parts for action_id in _asks(queued)]
    if not asks and shut is None:
        return
    desk = await shared.desk(conversation, "en")
    for action_id in asks:
        desk.undelivered(action_id, desk.now)
    match shut:
        case OptedOut():
            desk.withdraw(_alone(parts[0]), desk.now)
            transaction.puts[opt_out_key(store, conversation).name] = opt_out(desk.now)
        case Unreachable():
            transaction.puts[unreachable_key(store, conversation).name] = unreachable(desk.now, shut.code)
    desk.write(transaction)


def _is_news(queued: QueuedPart) -> bool:
    """Whether it says anything by itself: nobody misses an edit of what they do not see."""
    try:
        droppable = part_from_json(queued.body["part"]).droppable
    except ValueError:
        return True
    return queued.body["edits"] is None and not droppable


def _asks(queued: QueuedPart) -> list[str]:
    return cast("list[str]", queued.body.get("asks") or queued.body["shows"])


def _alone(queued: QueuedPart) -> str:
    """The person of a conversation that has no other."""
    address = address_from_json(queued.body["address"])
    return str(Person(channel=address.channel, account=address.account, user_id=address.place))
